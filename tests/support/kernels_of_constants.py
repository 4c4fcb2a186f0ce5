"""Kernels with which TVM folds constants, kept as long as the process lives.

TVM's pass FoldConstant compiles a kernel for every operator on constants, once for each layer, and
forgets it: half of what quantizing or building a network takes. Equal kernels are equal machine
code, so one of them serves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tvm

NAME = "relay.backend.build"
LIMIT = 2000


@contextmanager
def kept() -> Iterator[None]:
    """What FoldConstant asks for is looked up before it is compiled."""
    compiled = tvm.get_global_func(NAME)
    tvm.register_func(NAME, Kept(compiled), override=True)
    try:
        yield
    finally:
        tvm.register_func(NAME, compiled, override=True)


class Kept:
    """``compiled``, which is called once for modules that are structurally equal."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._found: OrderedDict[Any, tuple[tvm.IRModule, Any]] = OrderedDict()

    def __call__(self, mod: tvm.IRModule, *targets: Any) -> Any:
        key = (tvm.ir.structural_hash(mod), *map(str, targets))
        found = self._found.get(key)
        if found is None or not tvm.ir.structural_equal(found[0], mod):
            found = (mod, self._compiled(mod, *targets))
        self._found[key] = found
        self._found.move_to_end(key)
        if len(self._found) > LIMIT:
            self._found.popitem(last=False)
        return found[1]
