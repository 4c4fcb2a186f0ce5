"""The elementwise steps that an epilogue is made of, with their meaning in numpy.

Integers wrap as two's complement, shifts are arithmetic, as in TVM's generated code. Every kind is
one class; ``tinyai/codegen/steps.py`` holds the C expression of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.ir import Array, DType, Step
from tinyai.ops.functions import FRAMEWORK_FUNCTIONS, FUNCTIONS, fused_multiply_add

ALL_FUNCTIONS = {**FUNCTIONS, **FRAMEWORK_FUNCTIONS}
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
class Divide(_Binary):
    """Floats divide; integers are cut towards zero, as in C, and their divisor is constant and
    positive (the builders check)."""

    name: ClassVar[str] = "divide"

    def apply(self, value: Array, operand: Array) -> Array:
        if value.dtype.kind == "f":
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.divide(value, operand)
        size = np.abs(value) // operand
        return np.where(value < 0, -size, size)


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
class Prelu(_Binary):
    """``value > 0 ? value : value * operand``."""

    name: ClassVar[str] = "prelu"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.where(value > 0, value, value * operand)


@_kind
@dataclass(frozen=True)
class MultiplyAdd(_Binary):
    """``value * factor + operand`` of float32, rounded once."""

    name: ClassVar[str] = "multiply_add"
    factor: float

    def result(self, dtype: DType) -> DType:
        if not dtype.is_float:
            raise ValueError(f"{self.name} of {dtype}: float32 only")
        return super().result(dtype)

    def apply(self, value: Array, operand: Array) -> Array:
        return fused_multiply_add(value, np.asarray(np.float32(self.factor)), operand)


@_kind
@dataclass(frozen=True)
class Round(Step):
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


def _along(numbers: tuple[int, ...], axis: int | None, rank: int) -> Array:
    """Numbers as an array that broadcasts along ``axis`` of a tensor of ``rank`` dimensions."""
    shape = (1,) * rank if axis is None else (*(1,) * axis, -1, *(1,) * (rank - axis - 1))
    return np.array(numbers, np.int64).reshape(shape)


@_kind
@dataclass(frozen=True)
class FixedPointMultiply(Step):
    """``value * multiplier * 2**(shift - 31)``, the result wrapped to int32.

    One multiplier and shift, or one for each element along ``axis`` of the node's output. The
    product is taken in 64 bits; a positive shift is applied to the value first. ``rounding`` of a
    half: "upward", or away from zero ("tonearest"): TVM's two; or "tflite": as its reference
    kernels round, once at 2**31 and once more at the rest of the shift, halves away from zero
    (and a positive shift wraps in 32 bits). TVM's ``q_multiply_shift`` wraps to int32 on int64
    values too.
    """

    name: ClassVar[str] = "fixed_point_multiply"
    multiplier: tuple[int, ...]
    shift: tuple[int, ...]
    axis: int | None = None
    rounding: str = "upward"

    def result(self, dtype: DType) -> DType:
        if dtype not in (DType.INT32, DType.INT64):
            raise ValueError(f"{self.name} of {dtype}: int32 and int64 only")
        if len(self.multiplier) != len(self.shift):
            raise ValueError(f"{self.name}: one multiplier and one shift a channel")
        if self.axis is None and len(self.shift) != 1:
            raise ValueError(f"{self.name}: {len(self.shift)} numbers without an axis")
        for name, numbers, (low, high) in (
            ("multiplier", self.multiplier, DType.INT32.range),
            ("shift", self.shift, (-31, 30)),
        ):
            least, most = min(numbers, default=0), max(numbers, default=0)
            if least < low or most > high:
                found = f"{least} .. {most}, allowed {low} .. {high}"
                raise ValueError(f"{name} of {self.name} out of range: {found}")
        if self.rounding not in ("upward", "tonearest", "tflite"):
            raise ValueError(f"rounding {self.rounding}: upward, tonearest or tflite only")
        return dtype

    def fits(self, shape: tuple[int, ...]) -> bool:
        return self.axis is None or (
            0 <= self.axis < len(shape) and shape[self.axis] == len(self.shift)
        )

    @property
    def left(self) -> tuple[int, ...]:
        """Places to shift left before the product."""
        return tuple(max(shift, 0) for shift in self.shift)

    @property
    def right(self) -> tuple[int, ...]:
        """Places to shift right after the product."""
        return tuple(31 + max(-shift, 0) for shift in self.shift)

    def reference(self, value: Array, operand: Array | None) -> Array:
        multiplier, left, right = (
            _along(numbers, self.axis, value.ndim)
            for numbers in (self.multiplier, self.left, self.right)
        )
        half = np.left_shift(np.int64(1), right - 1)
        with np.errstate(over="ignore"):
            wide = np.left_shift(value.astype(np.int64), left)
            if self.rounding == "tflite":
                wide = _twice_rounded(wide.astype(np.int32) * multiplier, right - 31)
            else:
                wide = wide * multiplier
                down = (wide < 0) if self.rounding == "tonearest" else False
                wide = np.right_shift(wide + half - down, right)
        return wide.astype(np.int32).astype(value.dtype)

    def text(self, show: Callable[[str], str]) -> str:
        if self.axis is None:
            return super().text(show)
        return f"{self.name}({len(self.shift)} along axis {self.axis}, {self.rounding})"


@_kind
@dataclass(frozen=True)
class RealMultiply(Step):
    """``value * multiplier + offset`` in double precision, rounded, held within ``low`` and
    ``high``.

    One multiplier, or one for each element along ``axis`` of the node's output. ``rounding`` of a
    half is one of ``Round``'s modes: "floor", "cut" or "away".
    """

    name: ClassVar[str] = "real_multiply"
    multiplier: tuple[float, ...]
    axis: int | None
    rounding: str
    offset: int
    low: int
    high: int

    def result(self, dtype: DType) -> DType:
        if dtype not in (DType.INT32, DType.INT64):
            raise ValueError(f"{self.name} of {dtype}: int32 and int64 only")
        if self.axis is None and len(self.multiplier) != 1:
            raise ValueError(f"{self.name}: {len(self.multiplier)} numbers without an axis")
        if not np.isfinite(self.multiplier).all():
            raise ValueError(f"{self.name} by a number that is not finite")
        if self.rounding not in ("floor", "cut", "away"):
            raise ValueError(f"rounding {self.rounding}: floor, cut or away only")
        least, most = DType.INT32.range
        if not least <= self.low <= self.high <= most:
            raise ValueError(f"{self.name} within {self.low} .. {self.high}: bounds of int32")
        return DType.INT32

    def fits(self, shape: tuple[int, ...]) -> bool:
        return self.axis is None or (
            0 <= self.axis < len(shape) and shape[self.axis] == len(self.multiplier)
        )

    def reference(self, value: Array, operand: Array | None) -> Array:
        shape = (1,) * value.ndim
        if self.axis is not None:
            shape = (*shape[: self.axis], -1, *shape[self.axis + 1 :])
        x = value.astype(np.float64) * np.array(self.multiplier).reshape(shape) + self.offset
        match self.rounding:
            case "floor":
                whole = np.floor(x + 0.5)
            case "cut":
                whole = np.trunc(x + np.where(x < 0, -0.5, 0.5))
            case _:
                whole = np.trunc(x)
                whole = whole + (x - whole >= 0.5) - (x - whole <= -0.5)
        return np.asarray(np.clip(whole, self.low, self.high).astype(np.int32))

    def text(self, show: Callable[[str], str]) -> str:
        if self.axis is None:
            return super().text(show)
        numbers = f"{len(self.multiplier)} along axis {self.axis}"
        bounds = f"{self.low} .. {self.high}"
        return f"{self.name}({numbers}, {self.rounding}, + {self.offset}, {bounds})"


# The steps that hold numbers of each channel.
BY_CHANNEL = (FixedPointMultiply, RealMultiply)


def _twice_rounded(product: Array, right: Array) -> Array:
    """A product over 2**31, then over 2**right; each rounded, halves away from zero."""
    nudge = np.where(product >= 0, 1 << 30, 1 - (1 << 30)).astype(np.int64)
    total = product + nudge
    high = np.where(total >= 0, total >> 31, -((-total) >> 31))
    mask = np.left_shift(np.int64(1), right) - 1
    threshold = (mask >> 1) + (high < 0)
    return np.asarray((high >> right) + ((high & mask) > threshold))


@_kind
@dataclass(frozen=True)
class Lookup(Step):
    """``table[value - lowest value]``: any function of an 8-bit integer, as 256 results."""

    name: ClassVar[str] = "lookup"
    table: tuple[int, ...]
    to: DType

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


@_kind
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
