"""What TVM's Python lacks for Relay's functions."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import tvm
from tvm import relay

from tinyai.target import COMPILER, Target, options_of


def has(func: relay.Function, attribute: str) -> bool:
    return func.attrs is not None and attribute in list(func.attrs.keys())


def region_options(func: relay.Function) -> dict[str, str]:
    """Names and texts of the options that a region carries."""
    names = list(func.attrs.keys()) if func.attrs is not None else []
    return options_of({str(name): str(func.attrs[name]) for name in names})


def region_target(func: relay.Function) -> Target:
    """What a region is compiled for."""
    return Target.from_options(region_options(func))


def regions(mod: tvm.IRModule) -> dict[tvm.ir.GlobalVar, relay.Function]:
    """The functions of ``mod`` that tinyai compiles, by their variable, sorted by name."""
    return regions_of(mod, COMPILER)


def regions_of(mod: tvm.IRModule, compiler: str) -> dict[tvm.ir.GlobalVar, relay.Function]:
    """The functions of ``mod`` for a compiler, by their variable, sorted by name."""
    found = {v: f for v, f in mod.functions.items() if compiler_of(f) == compiler}
    return dict(sorted(found.items(), key=lambda item: item[0].name_hint))


def with_functions(mod: tvm.IRModule, functions: Mapping[tvm.ir.GlobalVar, Any]) -> tvm.IRModule:
    """``mod`` with these functions instead of its own, its types inferred."""
    return relay.transform.InferType()(tvm.IRModule(functions, mod.type_definitions, mod.attrs))


def compiler_of(func: Any) -> str | None:
    """The compiler that a function is for, or None."""
    attrs = getattr(func, "attrs", None)
    return (
        str(attrs["Compiler"]) if attrs is not None and "Compiler" in list(attrs.keys()) else None
    )


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """TVM's Python visitors recurse once an operator; networks are deeper than Python's default."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 50_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
