"""The elementwise steps that an epilogue is made of, with their meaning in numpy.

Integers wrap as two's complement, shifts are arithmetic, as in TVM's generated code. Every kind is
one class; ``tinyai/codegen/steps.py`` holds the C expression of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.ir import Array, DType, Step

STEP_KINDS: dict[str, type[Step]] = {}


def _kind(cls: type[Step]) -> type[Step]:
    STEP_KINDS[cls.name] = cls
    return cls


def _integer(name: str, dtype: DType) -> DType:
    if dtype.is_float:
        raise ValueError(f"{name} of {dtype}: integers only")
    return dtype


@dataclass(frozen=True)
class _Binary(Step):
    """``value <op> operand``, both of one type, which is the type of the result."""

    def result(self, dtype: DType) -> DType:
        if self.operand is None:
            raise ValueError(f"{self.name} has no operand")
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        assert operand is not None, self.name
        with np.errstate(over="ignore", invalid="ignore"):  # an infinity times 0 is a NaN
            return np.asarray(self.apply(value, operand), dtype=value.dtype)

    def apply(self, value: Array, operand: Array) -> Array:
        raise NotImplementedError(self.name)


@_kind
@dataclass(frozen=True)
class Add(_Binary):
    name: ClassVar[str] = "add"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.add(value, operand)


@_kind
@dataclass(frozen=True)
class Subtract(_Binary):
    name: ClassVar[str] = "subtract"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.subtract(value, operand)


@_kind
@dataclass(frozen=True)
class SubtractFrom(_Binary):
    """``operand - value``: a subtraction whose second argument is the running value."""

    name: ClassVar[str] = "subtract_from"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.subtract(operand, value)


@_kind
@dataclass(frozen=True)
class Multiply(_Binary):
    name: ClassVar[str] = "multiply"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.multiply(value, operand)


@_kind
@dataclass(frozen=True)
class Maximum(_Binary):
    """``value > operand ? value : operand``: what TVM's max does with a NaN, too."""

    name: ClassVar[str] = "maximum"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.where(value > operand, value, operand)


@_kind
@dataclass(frozen=True)
class Minimum(_Binary):
    """``value < operand ? value : operand``: what TVM's min does with a NaN, too."""

    name: ClassVar[str] = "minimum"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.where(value < operand, value, operand)


@dataclass(frozen=True)
class _Shift(_Binary):
    """Shift by 0 .. bits-1 places; the builders check the amounts, which are constant."""

    def result(self, dtype: DType) -> DType:
        return super().result(_integer(self.name, dtype))


@_kind
@dataclass(frozen=True)
class RightShift(_Shift):
    name: ClassVar[str] = "right_shift"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.right_shift(value, operand)


@_kind
@dataclass(frozen=True)
class LeftShift(_Shift):
    name: ClassVar[str] = "left_shift"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.left_shift(value, operand)


@_kind
@dataclass(frozen=True)
class Clip(Step):
    """``max(min(value, high), low)``, in this order: a NaN becomes ``high``, as in TVM."""

    name: ClassVar[str] = "clip"
    low: float
    high: float

    def result(self, dtype: DType) -> DType:
        if dtype.is_float:
            return dtype
        low, high = dtype.range
        for bound in (self.low, self.high):
            if not (low <= bound <= high and float(bound).is_integer()):
                raise ValueError(f"clip bound {bound} is no {dtype}")
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        low, high = value.dtype.type(self.low), value.dtype.type(self.high)
        below = np.where(value < high, value, high)
        return np.where(below > low, below, low)


@_kind
@dataclass(frozen=True)
class Cast(Step):
    """Integers wrap; an integer becomes the nearest float; a float in range is cut to integer."""

    name: ClassVar[str] = "cast"
    to: DType

    def result(self, dtype: DType) -> DType:
        return self.to

    def reference(self, value: Array, operand: Array | None) -> Array:
        return value.astype(self.to.numpy)


@_kind
@dataclass(frozen=True)
class Relu(Step):
    name: ClassVar[str] = "relu"

    def result(self, dtype: DType) -> DType:
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        zero = value.dtype.type(0)
        return np.where(value > zero, value, zero)


@_kind
@dataclass(frozen=True)
class LeakyRelu(Step):
    """``value > 0 ? value : value * alpha``. TVM cuts alpha to the type of the value, so that an
    integer's slope is an integer: 0 for every alpha between -1 and 1."""

    name: ClassVar[str] = "leaky_relu"
    alpha: float

    def result(self, dtype: DType) -> DType:
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        with np.errstate(over="ignore"):
            return np.where(value > 0, value, value * value.dtype.type(self.alpha))


@_kind
@dataclass(frozen=True)
class Round(Step):
    """Nearest integer as a float, halves away from zero (C's ``roundf``)."""

    name: ClassVar[str] = "round"

    def result(self, dtype: DType) -> DType:
        if not dtype.is_float:
            raise ValueError(f"round of {dtype}: float32 only")
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        whole = np.trunc(value)
        with np.errstate(invalid="ignore"):  # an infinity has no fraction
            away = np.abs(value - whole) >= np.float32(0.5)
        return np.where(away, whole + np.sign(value), whole).astype(value.dtype)


@_kind
@dataclass(frozen=True)
class FixedPointMultiply(Step):
    """``value * multiplier * 2**(shift - 31)``, rounded half up, the result wrapped to int32.

    The product is taken in 64 bits; a positive shift is applied to the value first. TVM's
    ``q_multiply_shift`` wraps to int32 on int64 values too.
    """

    name: ClassVar[str] = "fixed_point_multiply"
    multiplier: int
    shift: int

    def result(self, dtype: DType) -> DType:
        if dtype not in (DType.INT32, DType.INT64):
            raise ValueError(f"{self.name} of {dtype}: int32 and int64 only")
        if not (-(2**31) <= self.multiplier < 2**31 and -31 <= self.shift <= 30):
            raise ValueError(f"{self.name} by {self.multiplier}, shift {self.shift}: out of range")
        return dtype

    @property
    def places(self) -> tuple[int, int]:
        """Places to shift left before the product, and right after it."""
        return max(self.shift, 0), 31 + max(-self.shift, 0)

    def reference(self, value: Array, operand: Array | None) -> Array:
        left, right = self.places
        with np.errstate(over="ignore"):
            wide = np.left_shift(value.astype(np.int64), left) * np.int64(self.multiplier)
            wide = np.right_shift(wide + np.int64(1 << (right - 1)), right)
        return wide.astype(np.int32).astype(value.dtype)
