"""The functions that ``relay.build`` calls by name."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence

import tvm
from tvm import relay

from tinyai.backend import CompileSpec, PreprocessResult, TinyAIBackend, check_limits, whole_source
from tinyai.frontends.relay.cut import register_operators
from tinyai.frontends.relay.functions import region_options, region_target
from tinyai.frontends.relay.source import graph_from_region
from tinyai.frontends.relay.trial import code_of_trial
from tinyai.ir import Graph
from tinyai.ops import operators_added
from tinyai.own import OwnBackend, when_registered
from tinyai.patterns import PatternRow
from tinyai.target import COMPILER


def compile_region(func: relay.Function) -> tvm.runtime.Module:
    """``relay.ext.tinyai``: the C source module of one region, that of its trial where the region
    is still what was tried."""
    compiled = code_of_trial(func, last=True)
    if compiled is None:
        module = compile_with(TinyAIBackend.preprocess, func)
    else:
        check_limits(compiled, region_target(func))
        module = _c_module(compiled.source.text, compiled.source.symbol)
    # Weights as text are several times as large as they are. glibc keeps what was freed of them,
    # and the C compiler, which comes next, takes as much again.
    with contextlib.suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)
    return module


def compile_with(
    code_of: Callable[[Graph, Sequence[CompileSpec]], PreprocessResult],
    func: relay.Function,
    patterns: Sequence[PatternRow] = (),
) -> tvm.runtime.Module:
    """The C source module of a region: what ``code_of`` makes of its graph and compile specs.
    ``patterns`` are of composites that have builders."""
    specs = [
        CompileSpec(name, text.encode(errors="surrogateescape"))
        for name, text in region_options(func).items()
    ]
    graph = graph_from_region(func, patterns)
    return _c_module(whole_source(code_of(graph, specs)), graph.name)


def _c_module(text: str, symbol: str) -> tvm.runtime.Module:
    return tvm.get_global_func("runtime.CSourceModuleCreate")(text, "c", [symbol], [])


def update_constants(func: relay.Function, symbol: str) -> dict[str, tvm.nd.NDArray]:
    """``relay.ext.tinyai.constant_updater``: none, for the weights are in the source. Without it
    TVM would store every constant a second time."""
    return {}


def register_hooks() -> None:
    """Register the hooks by name; again changes nothing."""
    tvm.register_func(f"relay.ext.{COMPILER}", compile_region, override=True)
    tvm.register_func(f"relay.ext.{COMPILER}.constant_updater", update_constants, override=True)
    register_operators()
    when_registered(_register_own)


def _register_own(own: OwnBackend) -> None:
    def compile_own(func: relay.Function) -> tvm.runtime.Module:
        with operators_added(own.operators):
            return compile_with(own.preprocess, func, own.patterns)

    tvm.register_func(f"relay.ext.{own.name}", compile_own, override=True)
    tvm.register_func(f"relay.ext.{own.name}.constant_updater", update_constants, override=True)
