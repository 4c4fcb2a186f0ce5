"""Steps of what is true or not: comparisons, logic, and a number in place of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tinyai.ir import Array, DType, Step, Type
from tinyai.traits import Range

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
LOGIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


@dataclass(frozen=True)
class _WithOperand(Step):
    """A step that has an operand, and of bools no other operand than these."""

    def require(self, dtype: DType | None = None) -> None:
        """``ValueError`` where there is no operand, or the value is of another type."""
        if self.operand is None:
            raise ValueError(f"{self.name} has no operand")
        if dtype not in (None, DType.BOOL):
            raise ValueError(f"{self.name} of {dtype}: bool only")


@dataclass(frozen=True)
class Compare(_WithOperand):
    """``value <sign> operand`` of one type: true or not. Of a NaN only ``!=`` is true."""

    name: ClassVar[str] = "compare"
    sign: str

    @property
    def commuted(self) -> Step:
        return replace(self, sign=_TURNED.get(self.sign, self.sign))

    def result(self, dtype: DType) -> DType:
        self.require()
        return DType.BOOL

    def reference(self, value: Array, operand: Array | None) -> Array:
        return np.asarray(COMPARISONS[self.sign](value, operand))


@dataclass(frozen=True)
class Logic(_WithOperand):
    """``value <word> operand`` of bools: and, or, xor."""

    name: ClassVar[str] = "logic"
    word: str

    @property
    def commuted(self) -> Step:
        return self

    def result(self, dtype: DType) -> DType:
        self.require(dtype)
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        return np.asarray(LOGIC[self.word](value, operand))


@dataclass(frozen=True)
class Not(Step):
    """Of a bool."""

    name: ClassVar[str] = "not"

    def result(self, dtype: DType) -> DType:
        if dtype is not DType.BOOL:
            raise ValueError(f"not of {dtype}: bool only")
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        return np.logical_not(value)


@dataclass(frozen=True)
class Fill(_WithOperand):
    """``number`` where the operand, a bool, is ``when``; elsewhere the value."""

    name: ClassVar[str] = "fill"
    number: float
    when: bool = True

    def result(self, dtype: DType) -> DType:
        self.require()
        if not dtype.is_float:
            low, high = dtype.range
            if not (low <= self.number <= high and self.number == int(self.number)):
                raise ValueError(f"{self.number} is no {dtype}")
        return dtype

    def operand_type(self, dtype: DType) -> DType:
        return DType.BOOL

    def reference(self, value: Array, operand: Array | None) -> Array:
        return np.where(operand == self.when, value.dtype.type(self.number), value)

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range:
        return value.hull(self.number)
