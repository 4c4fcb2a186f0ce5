"""tinyai: a Bring-Your-Own-Codegen back end for Apache TVM that turns int8 networks into C.

Importing tinyai does not import TVM. The names below are found when they are asked for; some need
a TVM with Relay, a few of which a TVM with Relax has too (``tinyai.relax``). Its hooks are
registered with a TVM that is imported already, or once one is.
"""

from __future__ import annotations

import tinyai.interrupts  # noqa: F401  # first, for what comes next takes time

# isort: split

import importlib
import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tinyai._version import __version__ as __version__
from tinyai.errors import (
    BoundaryError,
    DefectError,
    EnvironmentProblem,
    FormatError,
    LimitError,
    ModelError,
    OptionError,
    OwnCodeError,
    TinyAIError,
    ToolchainError,
    UnsupportedError,
)
from tinyai.frontends.tvms import NEED_RELAY, has, has_relax, of_tvm
from tinyai.imported import when_imported
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target

if TYPE_CHECKING:
    from tinyai.backend import CompileSpec, compile_graph
    from tinyai.checking.check import check
    from tinyai.checking.result import Comparison
    from tinyai.frontends.bundle import lower
    from tinyai.frontends.cut import cut_file
    from tinyai.frontends.explain import explain
    from tinyai.frontends.model import Model, compile, network_of
    from tinyai.frontends.quantize import calibrate_file, quantize_file
    from tinyai.frontends.relay.build import build
    from tinyai.frontends.relay.own import partition_for
    from tinyai.frontends.relay.partition import partition_for_tinyai
    from tinyai.frontends.relay.quantize import calibrate, quantize
    from tinyai.frontends.relay.seal import seal, unseal
    from tinyai.ir import Graph
    from tinyai.lowering import graph_of, refusal_of_composite, refusal_of_operator
    from tinyai.network import Network, Port
    from tinyai.own import register_backend
    from tinyai.package import Package, emit_c, package_of
    from tinyai.qdq import Rewriting
    from tinyai.quantizer import QuantConfig
    from tinyai.quantizer.calibration import Calibration
    from tinyai.quantizer.mixed import Mixed
    from tinyai.reference import run_graph
    from tinyai.report import Report
    from tinyai.runtime.bundle import Bundle
    from tinyai.runtime.runner import Runner
    from tinyai.source import Rounding
    from tinyai.tensor_spec import TensorSpec

__all__ = [
    "BoundaryError",
    "Bundle",
    "Calibration",
    "Comparison",
    "CompileSpec",
    "DefectError",
    "EnvironmentProblem",
    "FormatError",
    "Graph",
    "LimitError",
    "Mixed",
    "Model",
    "ModelError",
    "Network",
    "OptionError",
    "OwnCodeError",
    "Package",
    "Port",
    "QuantConfig",
    "Report",
    "Rewriting",
    "Rounding",
    "Runner",
    "Target",
    "TensorSpec",
    "TinyAIError",
    "Toolchain",
    "ToolchainError",
    "UnsupportedError",
    "build",
    "calibrate",
    "calibrate_file",
    "check",
    "compile",
    "compile_graph",
    "cut_file",
    "emit_c",
    "explain",
    "graph_of",
    "lower",
    "network_of",
    "package_of",
    "partition_for",
    "partition_for_tinyai",
    "quantize",
    "quantize_file",
    "refusal_of_composite",
    "refusal_of_operator",
    "register",
    "register_backend",
    "run_graph",
    "seal",
    "unseal",
]

# What a front end of one's own is made with, beside ``tinyai.vocabulary``.
_NEUTRAL = {
    "Model": "tinyai.frontends.model",
    "Network": "tinyai.network",
    "Port": "tinyai.network",
    "Report": "tinyai.report",
    "TensorSpec": "tinyai.tensor_spec",
    "Package": "tinyai.package",
    "compile": "tinyai.frontends.model",
    "emit_c": "tinyai.package",
    "explain": "tinyai.frontends.explain",
    "package_of": "tinyai.package",
    "network_of": "tinyai.frontends.model",
    "calibrate_file": "tinyai.frontends.quantize",
    "cut_file": "tinyai.frontends.cut",
    "quantize_file": "tinyai.frontends.quantize",
    "Graph": "tinyai.ir",
    "Calibration": "tinyai.quantizer.calibration",
    "Mixed": "tinyai.quantizer.mixed",
    "QuantConfig": "tinyai.quantizer",
    "Rewriting": "tinyai.qdq",
    "Rounding": "tinyai.source",
    "Runner": "tinyai.runtime.runner",
    "Comparison": "tinyai.checking.result",
    "check": "tinyai.checking.check",
    "Bundle": "tinyai.runtime.bundle",
    "CompileSpec": "tinyai.backend",
    "compile_graph": "tinyai.backend",
    "lower": "tinyai.frontends.bundle",
    "graph_of": "tinyai.lowering",
    "refusal_of_composite": "tinyai.lowering",
    "refusal_of_operator": "tinyai.lowering",
    "register_backend": "tinyai.own",
    "run_graph": "tinyai.reference",
}


def register() -> bool:
    """Register tinyai's hooks with TVM, which is imported; again changes nothing. False where
    neither Relay is found nor, without it, Relax. Who imports TVM himself need not call it."""
    if not has("tvm.relay"):
        if not has_relax():
            return False
        importlib.import_module("tinyai.frontends.relax.pipeline").register_hooks()
        return True
    importlib.import_module("tinyai.frontends.relay.hooks").register_hooks()
    importlib.import_module("tinyai.frontends.relay.tvmc").register_drivers()
    return True


def _register_with(_: ModuleType) -> None:
    """A TVM with neither Relay nor Relax (its runtime alone) is left alone."""
    if "tvm.relay" not in sys.modules and not ("tvm.relax" in sys.modules and has_relax()):
        return
    try:
        register()
    except Exception as error:  # or nobody could import this TVM who has imported tinyai
        warnings.warn(f"tinyai cannot register with this TVM: {error}", stacklevel=2)


def _memoize_in_memory(pickle_memoize: Any) -> None:
    """TVM makes a folder for results of functions where it is imported, reads pickles of anybody's
    from it, and fails where it cannot be made. What is not to be saved needs none."""
    theirs = pickle_memoize.Cache
    if isinstance(getattr(theirs, "cache", None), property):
        return  # 0.25 and later make the folder where something is saved

    class Cache(theirs):  # type: ignore[misc, valid-type]  # TVM has no type hints
        def __init__(self, key: str, save_at_exit: bool) -> None:
            self.path, self.dirty, self.save_at_exit = "", False, False
            self.cache: dict[Any, Any] = {}
            if save_at_exit:
                super().__init__(key, save_at_exit)

    pickle_memoize.Cache = Cache


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _NEUTRAL:
        return getattr(importlib.import_module(_NEUTRAL[name]), name)
    if name not in NEED_RELAY:
        raise AttributeError(f"module 'tinyai' has no attribute {name!r}")
    return of_tvm(name)


when_imported("tvm.contrib.pickle_memoize", _memoize_in_memory)
when_imported("tvm", _register_with)  # at once where it is imported already
