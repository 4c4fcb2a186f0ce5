"""tinyai: a Bring-Your-Own-Codegen back end for Apache TVM that turns int8 networks into C.

The names below that need a TVM with Relay are found when they are asked for, so that the package
imports without one. Where TVM is importable, importing tinyai registers the hooks.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tinyai.errors import EnvironmentProblem, TinyAIError
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target

if TYPE_CHECKING:
    from tinyai.frontends.build import build
    from tinyai.frontends.explain import explain
    from tinyai.frontends.relay import partition_for_tinyai
    from tinyai.frontends.seal import seal, unseal

__all__ = [
    "Target",
    "TinyAIError",
    "Toolchain",
    "build",
    "explain",
    "partition_for_tinyai",
    "register",
    "seal",
    "unseal",
]
__version__ = "0.1.0"

_NEED_RELAY = {
    "build": "tinyai.frontends.build",
    "explain": "tinyai.frontends.explain",
    "partition_for_tinyai": "tinyai.frontends.relay",
    "seal": "tinyai.frontends.seal",
    "unseal": "tinyai.frontends.seal",
}


def register() -> bool:
    """Register tinyai's hooks with TVM; again changes nothing. False where no Relay is found."""
    if not _has_relay():
        return False
    importlib.import_module("tinyai.frontends.relay").register_hooks()
    importlib.import_module("tinyai.frontends.tvmc").register_drivers()
    return True


def _has_relay() -> bool:
    try:
        return find_spec("tvm.relay") is not None
    except Exception:  # a broken TVM raises what it likes; the doctor says what is wrong with it
        return False


def __getattr__(name: str) -> Any:
    if name not in _NEED_RELAY:
        raise AttributeError(f"module 'tinyai' has no attribute {name!r}")
    if not _has_relay():
        raise EnvironmentProblem(
            f"tinyai.{name} needs a TVM with Relay",
            found="no module tvm.relay",
            allowed="TVM 0.8 to 0.19",
            hint="python -m tinyai doctor",
        )
    return getattr(importlib.import_module(_NEED_RELAY[name]), name)


register()
