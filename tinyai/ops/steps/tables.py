"""Steps that are functions of one value: a table of 256 results, or a float function that
becomes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tinyai.ir import Array, DType, Step, Type
from tinyai.ops.functions import FRAMEWORK_FUNCTIONS, FUNCTIONS
from tinyai.traits import Range

ALL_FUNCTIONS = {**FUNCTIONS, **FRAMEWORK_FUNCTIONS}


@dataclass(frozen=True)
class Lookup(Step):
    """``table[value - lowest value]``: any function of an 8-bit integer, as 256 results."""

    name: ClassVar[str] = "lookup"
    table: tuple[int, ...]
    to: DType

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range:
        first = of.dtype.range[0]
        ends = zip(value.low.tolist(), value.high.tolist(), strict=True)
        parts = [self.table[low - first : high - first + 1] for low, high in ends]
        return Range(*(np.array([end(part) for part in parts]) for end in (min, max)))

    def result(self, dtype: DType) -> DType:
        if dtype not in (DType.INT8, DType.UINT8) or len(self.table) != 256:
            raise ValueError(f"lookup of {dtype} in {len(self.table)} values: 8 bits in 256 only")
        low, high = self.to.range
        if min(self.table) < low or max(self.table) > high:
            raise ValueError(f"a table of values that are no {self.to}")
        return self.to

    def reference(self, value: Array, operand: Array | None) -> Array:
        lowest = int(np.iinfo(value.dtype).min)
        return np.asarray(np.array(self.table, self.to.numpy)[value.astype(np.int64) - lowest])

    def text(self, show: Callable[[str], str]) -> str:
        return f"{self.name}(256 values of {self.to})"


@dataclass(frozen=True)
class Function(Step):
    """A float32 function of one value, by its name in ``ops/functions.py``.

    It has no C: ``passes/tabulate_functions.py`` turns the nodes from 8 bits to 8 bits around it
    into a table.
    """

    name: ClassVar[str] = "function"
    function: str

    def result(self, dtype: DType) -> DType:
        if not dtype.is_float or self.function not in ALL_FUNCTIONS:
            known = ", ".join(ALL_FUNCTIONS)
            raise ValueError(f"{self.function} of {dtype}: {known} of float32 only")
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(ALL_FUNCTIONS[self.function](value), dtype=np.float32)


@dataclass(frozen=True)
class GivenFunction(Function):
    """A function that a front end brings: ``compute`` computes it, and ``function`` identifies it
    with all its numbers."""

    compute: Callable[[Array], Array] = field(compare=False, repr=False, kw_only=True)

    def result(self, dtype: DType) -> DType:
        if not dtype.is_float:
            raise ValueError(f"{self.function} of {dtype}: float32 only")
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        result = np.asarray(self.compute(np.asarray(value, np.float32)), np.float32)
        if result.shape != value.shape:
            raise ValueError(f"{self.function} of {value.shape}: found {result.shape}")
        return result
