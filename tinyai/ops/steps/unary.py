"""Steps of the value alone: bounds, conversions, rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.ir import Array, DType, Step, Type
from tinyai.ops.steps.ranges import Monotonic, extremes
from tinyai.traits import Range


@dataclass(frozen=True)
class Clip(Step):
    """``max(min(value, high), low)``, in this order: a NaN becomes ``high``, as in TVM."""

    name: ClassVar[str] = "clip"
    keeps_scale: ClassVar[bool] = True
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

    def is_identity(self, dtype: DType, operand: Array | None) -> bool:
        return (self.low, self.high) == dtype.range

    def commutes_with_widening(self) -> bool:
        least, most = DType.INT32.range
        return least <= self.low and self.high <= most

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range:
        kind = np.float32 if of.dtype.is_float else np.int64
        low, high = np.asarray(self.low, kind), np.asarray(self.high, kind)
        return Range(np.clip(value.low, low, high), np.clip(value.high, low, high))

    def largest(self, size: int, operand: int, constant: Array | None) -> int:
        return int(max(abs(self.low), abs(self.high)))


@dataclass(frozen=True)
class Cast(Step):
    """Integers wrap; an integer becomes the nearest float; a float in range is cut to integer. A
    bool says whether a number is other than 0, and becomes 0 or 1."""

    name: ClassVar[str] = "cast"
    to: DType

    def result(self, dtype: DType) -> DType:
        return self.to

    def reference(self, value: Array, operand: Array | None) -> Array:
        return value.astype(self.to.numpy)

    def is_identity(self, dtype: DType, operand: Array | None) -> bool:
        return self.to is dtype

    def commutes_with_widening(self) -> bool:
        return True

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        """A conversion is monotonic where it does not wrap; integers that do fit no type."""
        if self.to is DType.BOOL:
            return None
        kind = np.float32 if self.to.is_float else np.int64
        if kind is np.int64 and value.low.dtype.kind == "f":
            low, high = self.to.range
            if not (np.all(value.low >= low) and np.all(value.high <= high)):
                return None
        return Range(value.low.astype(kind), value.high.astype(kind))

    def largest(self, size: int, operand: int, constant: Array | None) -> int:
        return size


@dataclass(frozen=True)
class Relu(Monotonic):
    name: ClassVar[str] = "relu"

    def commutes_with_widening(self) -> bool:
        return True

    def largest(self, size: int, operand: int, constant: Array | None) -> int:
        return size

    def result(self, dtype: DType) -> DType:
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        zero = value.dtype.type(0)
        return np.where(value > zero, value, zero)


@dataclass(frozen=True)
class LeakyRelu(Step):
    """``value > 0 ? value : value * alpha``. TVM cuts alpha to the type of the value, so that an
    integer's slope is an integer: 0 for every alpha between -1 and 1."""

    name: ClassVar[str] = "leaky_relu"
    alpha: float

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        if of.dtype is DType.INT64 or (self.alpha < 0 and not of.dtype.is_float):
            return None
        return extremes(self, value, operand)

    def result(self, dtype: DType) -> DType:
        if dtype is DType.BOOL:
            raise ValueError(f"leaky_relu of {dtype}: numbers only")
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        with np.errstate(over="ignore"):
            return np.where(value > 0, value, value * value.dtype.type(self.alpha))


@dataclass(frozen=True)
class Round(Monotonic):
    """Nearest integer, as a float.

    ``mode`` says where a half goes: "away" from zero (C's ``roundf``), to "even"
    (``nearbyintf``), or what TVM's float32 requantization writes out: "floor" of (value + 0.5),
    and "cut": (value ± 0.5) cut towards zero, the sign the value's.
    """

    name: ClassVar[str] = "round"
    mode: str = "away"

    def result(self, dtype: DType) -> DType:
        if not dtype.is_float:
            raise ValueError(f"round of {dtype}: float32 only")
        if self.mode not in ("away", "even", "floor", "cut"):
            raise ValueError(f"round {self.mode}: away, even, floor or cut only")
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        half = np.float32(0.5)
        with np.errstate(invalid="ignore"):  # an infinity has no fraction
            match self.mode:
                case "even":
                    return np.asarray(np.rint(value))
                case "floor":
                    return np.asarray(np.floor(value + half))
                case "cut":
                    return np.asarray(np.trunc(value + np.where(value < 0, -half, half)))
            whole = np.trunc(value)
            away = np.abs(value - whole) >= half
        return np.where(away, whole + np.sign(value), whole).astype(value.dtype)
