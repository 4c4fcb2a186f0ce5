"""Emitted C made runnable: compilers, a ctypes runner without TVM, and TVM modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinyai.runtime.toolchain import Toolchain

if TYPE_CHECKING:
    from tinyai.runtime.tvm_module import CompiledFactory

__all__ = ["Toolchain", "compile"]


def compile(built: Any, toolchain: Toolchain | None = None) -> CompiledFactory:
    """A factory that runs at once, from the result of a plain ``relay.build``.

    See ``tinyai.runtime.tvm_module.compile``; TVM is imported when this is called.
    """
    from tinyai.runtime import tvm_module

    return tvm_module.compile(built, toolchain)
