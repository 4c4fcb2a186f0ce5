"""Steps that are functions of one value: a table of all results, or a float function that
becomes one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from tinyai.ir import Array, DType, Step, Type
from tinyai.ops.functions import EXACT_FUNCTIONS, FRAMEWORK_FUNCTIONS, FUNCTIONS
from tinyai.traits import Range

ALL_FUNCTIONS = {**FUNCTIONS, **FRAMEWORK_FUNCTIONS}
# How many values the dtypes have that tables are of.
VALUES: Mapping[DType, int] = MappingProxyType(
    {DType.INT8: 2**8, DType.UINT8: 2**8, DType.INT16: 2**16}
)


@dataclass(frozen=True)
class Lookup(Step):
    """``table[value - lowest value]``: any function of an integer of 8 or 16 bits, as 256 or 65,536
    results."""

    name: ClassVar[str] = "lookup"
    table: tuple[int, ...]
    to: DType

    @functools.cached_property
    def _ends(self) -> tuple[int, int]:
        return min(self.table), max(self.table)

    @functools.cached_property
    def results(self) -> Array:
        """The table as an array of its dtype."""
        return np.array(self.table, self.to.numpy)

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range:
        first = of.dtype.range[0]
        ends = zip(value.low.tolist(), value.high.tolist(), strict=True)
        parts = [self.results[low - first : high - first + 1] for low, high in ends]
        return Range(*(np.array([int(end(part)) for part in parts]) for end in (np.min, np.max)))

    def result(self, dtype: DType) -> DType:
        count = VALUES.get(dtype)
        if len(self.table) != count:
            allowed = "one for each of 8 or 16 bits"
            raise ValueError(f"lookup of {dtype} in {len(self.table)} values: {allowed}")
        low, high = self.to.range
        least, most = self._ends
        if least < low or most > high:
            raise ValueError(f"a table of values that are no {self.to}")
        return self.to

    def reference(self, value: Array, operand: Array | None) -> Array:
        lowest = int(np.iinfo(value.dtype).min)
        return np.asarray(self.results[value.astype(np.int64) - lowest])

    def text(self, show: Callable[[str], str]) -> str:
        return f"{self.name}({len(self.table)} values of {self.to})"


@dataclass(frozen=True)
class Function(Step):
    """A float32 function of one value, by its name in ``ops/functions.py``.

    ``passes/tabulate_functions.py`` turns the nodes around it, from an integer of 8 or 16 bits to
    one, into a table. Where that is not possible, ``EXACT_FUNCTIONS`` have C, and no others.
    """

    name: ClassVar[str] = "function"
    function: str

    @property
    def has_code(self) -> bool:
        return self.function in EXACT_FUNCTIONS

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
