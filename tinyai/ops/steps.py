"""The elementwise steps that an epilogue is made of, with their meaning in numpy.

Integers wrap as two's complement, shifts are arithmetic, as in TVM's generated code. Every kind is
one class; ``tinyai/codegen/steps.py`` holds the C expression of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from tinyai.ir import Array, DType, Step, Type
from tinyai.ops.functions import FRAMEWORK_FUNCTIONS, FUNCTIONS, fused_multiply_add
from tinyai.traits import Range

ALL_FUNCTIONS = {**FUNCTIONS, **FRAMEWORK_FUNCTIONS}
STEP_KINDS: dict[str, type[Step]] = {}


def _kind(cls: type[Step]) -> type[Step]:
    STEP_KINDS[cls.name] = cls
    return cls


def _integer(name: str, dtype: DType) -> DType:
    if dtype.is_float:
        raise ValueError(f"{name} of {dtype}: integers only")
    return dtype


# --- How steps answer for their ranges -----------------------------------------------------------


def _extremes(step: Step, value: Range, operand: Range | None) -> Range:
    """The least and the largest result of a step at the ends of its arguments, and at 0: of a step
    that is monotonic in the value and in the operand, on both sides of 0, rounding included.
    Infinite bounds give infinite ones or none, which no type holds."""
    values = (value.low, value.high, np.clip(np.zeros_like(value.low), value.low, value.high))
    others = (operand.low, operand.high) if operand else (None,)
    with np.errstate(all="ignore"):
        results = [step.reference(v, other) for v in values for other in others]
        return Range(np.min(results, axis=0), np.max(results, axis=0))


class _Monotonic(Step):
    """A step whose own arithmetic at the ends gives the extremes."""

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        return _extremes(self, value, operand)


def _small(*values: Range | None) -> bool:
    """Whether sums of two cannot leave 64 bits."""
    ends = (end for value in values if value for end in (value.low, value.high))
    return all(end.dtype.kind == "f" or np.all(abs(end.astype(float)) < 2.0**62) for end in ends)


class _Sum(Step):
    """A monotonic step whose results are no larger than its value and its operand together."""

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        return _extremes(self, value, operand) if _small(value, operand) else None


class _Product(Step):
    """A monotonic step that may wrap in 64 bits unseen."""

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        return None if of.dtype is DType.INT64 else _extremes(self, value, operand)


# --- Steps ---------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class _Commutative(_Binary):
    """Value and operand may change places."""

    @property
    def commuted(self) -> type[Step]:
        return type(self)


@dataclass(frozen=True)
class _Additive(_Sum, _Binary):
    """Adds the operand to the value, or takes it off."""

    def is_identity(self, dtype: DType, operand: Array | None) -> bool:
        return operand is not None and not operand.any()

    def largest(self, size: int, operand: int, constant: Array | None) -> int:
        return size + operand


@_kind
@dataclass(frozen=True)
class Add(_Additive, _Commutative):
    name: ClassVar[str] = "add"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.add(value, operand)


@_kind
@dataclass(frozen=True)
class Subtract(_Additive):
    name: ClassVar[str] = "subtract"

    @property
    def commuted(self) -> type[Step]:
        return SubtractFrom

    def apply(self, value: Array, operand: Array) -> Array:
        return np.subtract(value, operand)


@_kind
@dataclass(frozen=True)
class SubtractFrom(_Sum, _Binary):
    """``operand - value``: a subtraction whose second argument is the running value."""

    name: ClassVar[str] = "subtract_from"

    @property
    def commuted(self) -> type[Step]:
        return Subtract

    def apply(self, value: Array, operand: Array) -> Array:
        return np.subtract(operand, value)


@_kind
@dataclass(frozen=True)
class Multiply(_Product, _Commutative):
    name: ClassVar[str] = "multiply"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.multiply(value, operand)


@_kind
@dataclass(frozen=True)
class Divide(_Binary):
    """Floats divide; integers are cut towards zero, as in C, and their divisor is constant and
    positive (the builders check)."""

    name: ClassVar[str] = "divide"

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        if operand is None or not np.all(operand.constant & (operand.low > 0)):
            return None
        return _extremes(self, value, operand)

    def apply(self, value: Array, operand: Array) -> Array:
        if value.dtype.kind == "f":
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.divide(value, operand)
        size = np.abs(value) // operand
        return np.where(value < 0, -size, size)


@_kind
@dataclass(frozen=True)
class Maximum(_Monotonic, _Commutative):
    """``value > operand ? value : operand``: what TVM's max does with a NaN, too."""

    name: ClassVar[str] = "maximum"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.where(value > operand, value, operand)


@_kind
@dataclass(frozen=True)
class Minimum(_Monotonic, _Commutative):
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
class RightShift(_Sum, _Shift):
    name: ClassVar[str] = "right_shift"

    def largest(self, size: int, operand: int, constant: Array | None) -> int:
        return size if constant is None else -(-size >> int(constant.min()))

    def apply(self, value: Array, operand: Array) -> Array:
        return np.right_shift(value, operand)


@_kind
@dataclass(frozen=True)
class LeftShift(_Product, _Shift):
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

    def is_identity(self, dtype: DType, operand: Array | None) -> bool:
        return self.to is dtype

    def commutes_with_widening(self) -> bool:
        return True

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        """A conversion is monotonic where it does not wrap; integers that do fit no type."""
        kind = np.float32 if self.to.is_float else np.int64
        if kind is np.int64 and value.low.dtype.kind == "f":
            low, high = self.to.range
            if not (np.all(value.low >= low) and np.all(value.high <= high)):
                return None
        return Range(value.low.astype(kind), value.high.astype(kind))

    def largest(self, size: int, operand: int, constant: Array | None) -> int:
        return size


@_kind
@dataclass(frozen=True)
class Relu(_Monotonic):
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


@_kind
@dataclass(frozen=True)
class LeakyRelu(Step):
    """``value > 0 ? value : value * alpha``. TVM cuts alpha to the type of the value, so that an
    integer's slope is an integer: 0 for every alpha between -1 and 1."""

    name: ClassVar[str] = "leaky_relu"
    alpha: float

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        if of.dtype is DType.INT64 or (self.alpha < 0 and not of.dtype.is_float):
            return None
        return _extremes(self, value, operand)

    def result(self, dtype: DType) -> DType:
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        with np.errstate(over="ignore"):
            return np.where(value > 0, value, value * value.dtype.type(self.alpha))


@_kind
@dataclass(frozen=True)
class Prelu(_Product, _Binary):
    """``value > 0 ? value : value * operand``."""

    name: ClassVar[str] = "prelu"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.where(value > 0, value, value * operand)


@_kind
@dataclass(frozen=True)
class MultiplyAdd(_Monotonic, _Binary):
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
class AddProduct(MultiplyAdd):
    """``value + operand * factor`` of float32, rounded once."""

    name: ClassVar[str] = "add_product"

    def apply(self, value: Array, operand: Array) -> Array:
        return fused_multiply_add(operand, np.asarray(np.float32(self.factor)), value)


@_kind
@dataclass(frozen=True)
class Round(_Monotonic):
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
    product is taken in 64 bits; a positive shift is applied to the value first. ``ties`` says where
    a half goes: "upward", or away from zero ("tonearest"); or "twice": rounded once at 2**31 and
    once more at the rest of the shift, halves away from zero (and a positive shift wraps in 32
    bits). TVM's ``q_multiply_shift`` wraps to int32 on int64
    values too.
    """

    name: ClassVar[str] = "fixed_point_multiply"
    multiplier: tuple[int, ...]
    shift: tuple[int, ...]
    axis: int | None = None
    ties: str = "upward"

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
        if self.ties not in ("upward", "tonearest", "twice"):
            raise ValueError(f"ties {self.ties}: upward, tonearest or tflite only")
        return dtype

    def fits(self, shape: tuple[int, ...]) -> bool:
        return self.axis is None or (
            0 <= self.axis < len(shape) and shape[self.axis] == len(self.shift)
        )

    @property
    def along(self) -> int | None:
        return self.axis

    def with_elements(self, elements: Sequence[int], axis: int) -> Step:
        multiplier = tuple(self.multiplier[i] for i in elements)
        shift = tuple(self.shift[i] for i in elements)
        return replace(self, multiplier=multiplier, shift=shift, axis=axis)

    def apart(self) -> tuple[Step, Array]:
        numbers = np.array([self.multiplier, self.shift]).T
        return replace(self, multiplier=(), shift=()), numbers

    def commutes_with_widening(self) -> bool:
        return True

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range:
        """The ends, multiplied; all int32 where a product or its result may wrap."""
        if self.axis == len(of.shape) - 1:
            return replace(self, axis=1)._products(value)
        each = [one._products(value) for one in self._factors()]
        lows, highs = zip(*((one.low, one.high) for one in each), strict=True)
        return Range(np.min(lows, axis=0), np.max(highs, axis=0))

    def _factors(self) -> Iterator[FixedPointMultiply]:
        """A step for each pair of a multiplier and a shift."""
        for multiplier, shift in set(zip(self.multiplier, self.shift, strict=True)):
            yield replace(self, multiplier=(multiplier,), shift=(shift,), axis=None)

    def _products(self, value: Range) -> Range:
        ends = np.stack([value.low, value.high])
        size = abs(ends.astype(float)).max(axis=0)
        shift, multiplier = np.array(self.shift), abs(np.array(self.multiplier, float))
        shifted = size * 2.0 ** np.maximum(shift, 0)
        result = size * multiplier * 2.0 ** (shift - 31)
        fits = (shifted < 2.0**31) & (shifted * multiplier < 2.0**61) & (result < 2.0**31 - 2)
        results = self.reference(ends, None)
        low, high = DType.INT32.range
        return Range(
            np.where(fits, results.min(axis=0), low), np.where(fits, results.max(axis=0), high)
        )

    def largest(self, size: int, operand: int, constant: Array | None) -> int:
        factors = zip(self.multiplier, self.shift, strict=True)
        largest: int = max(-(-size * abs(m) * 2 ** (31 + s) >> 62) for m, s in factors)
        return largest + 1

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
            if self.ties == "twice":
                wide = _twice_rounded(wide.astype(np.int32) * multiplier, right - 31)
            else:
                wide = wide * multiplier
                down = (wide < 0) if self.ties == "tonearest" else False
                wide = np.right_shift(wide + half - down, right)
        return wide.astype(np.int32).astype(value.dtype)

    def text(self, show: Callable[[str], str]) -> str:
        if self.axis is None:
            return super().text(show)
        return f"{self.name}({len(self.shift)} along axis {self.axis}, {self.ties})"


@_kind
@dataclass(frozen=True)
class RealMultiply(Step):
    """``value * multiplier + offset`` in double precision, rounded, held within ``low`` and
    ``high``.

    One multiplier, or one for each element along ``axis`` of the node's output. ``mode``
    is one of ``Round``'s: "floor", "cut" or "away".
    """

    name: ClassVar[str] = "real_multiply"
    keeps_channels: ClassVar[bool] = True  # no range is known of it that would make one constant
    multiplier: tuple[float, ...]
    axis: int | None
    mode: str
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
        if self.mode not in ("floor", "cut", "away"):
            raise ValueError(f"round {self.mode}: floor, cut or away only")
        least, most = DType.INT32.range
        if not least <= self.low <= self.high <= most:
            raise ValueError(f"{self.name} within {self.low} .. {self.high}: bounds of int32")
        return DType.INT32

    def fits(self, shape: tuple[int, ...]) -> bool:
        return self.axis is None or (
            0 <= self.axis < len(shape) and shape[self.axis] == len(self.multiplier)
        )

    @property
    def along(self) -> int | None:
        return self.axis

    def with_elements(self, elements: Sequence[int], axis: int) -> Step:
        return replace(self, multiplier=tuple(self.multiplier[i] for i in elements), axis=axis)

    def reference(self, value: Array, operand: Array | None) -> Array:
        shape = (1,) * value.ndim
        if self.axis is not None:
            shape = (*shape[: self.axis], -1, *shape[self.axis + 1 :])
        x = value.astype(np.float64) * np.array(self.multiplier).reshape(shape) + self.offset
        match self.mode:
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
        return f"{self.name}({numbers}, {self.mode}, + {self.offset}, {bounds})"


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


@dataclass(frozen=True)
class GivenFunction(Function):
    """One that a front end brings: ``compute`` is it, and ``function`` says which it is, with all
    its numbers."""

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
