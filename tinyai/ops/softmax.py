"""``softmax`` in float32, as TVM's CPU code computes it, in TFLite's fixed point, and from ONNX
Runtime's table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tinyai.builders import Lowering, OperatorRow, Scale
from tinyai.ir import Array, DType, Example, Op, Type
from tinyai.ops import steps
from tinyai.ops.functions import FUNCTIONS, exp
from tinyai.ops.scales import fixed_point, narrow, plus
from tinyai.ops.steps import FixedPointMultiply
from tinyai.source import Call, Expr, require, sources
from tinyai.traits import Dims


class AlongAxisOp(Op):
    """An operator that works on each line of elements along ``axis``, from the first element to the
    last."""

    takes_epilogue: ClassVar[bool] = True
    dims: ClassVar[Dims] = Dims.ALIGNED
    axis: int

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op:
        return replace(self, axis=dims.index(self.axis))  # type: ignore[type-var]

    def bound_dims(self) -> tuple[int, ...]:
        return (self.axis,)


@dataclass(frozen=True)
class Softmax(AlongAxisOp):
    """exp(x - max) / sum of exp(x - max) along ``axis``, summed from the first element on; where
    ``log``, x - max - log(sum).

    in, out: float32 of one shape. The functions are the C library's ``expf`` and ``logf``.
    """

    name: ClassVar[str] = "softmax"
    axis: int
    log: bool = False

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if not data.dtype.is_float or not 0 <= self.axis < len(data.shape):
            raise ValueError(f"softmax of {data} along axis {self.axis}: float32, an axis of it")
        return data

    def reference(self, *inputs: Array) -> Array:
        x = np.moveaxis(inputs[0], self.axis, -1)
        with np.errstate(invalid="ignore"):  # of an infinity
            less = x - x.max(axis=-1, keepdims=True)
            powers = exp(less)
            total = np.add.accumulate(powers, axis=-1, dtype=np.float32)[..., -1:]
            result = less - FUNCTIONS["log"](total) if self.log else powers / total
            return np.moveaxis(result, -1, self.axis)

    @staticmethod
    def examples() -> Iterator[Example]:
        yield Softmax(1), (Type((2, 10), DType.FLOAT32),)
        yield Softmax(1), (Type((2, 5, 3), DType.FLOAT32),)
        yield Softmax(0), (Type((1,), DType.FLOAT32),)
        yield Softmax(1, log=True), (Type((2, 10), DType.FLOAT32),)
        yield Softmax(0, log=True), (Type((5, 3), DType.FLOAT32),)


@dataclass(frozen=True)
class IntegerSoftmax(AlongAxisOp):
    """Softmax of int8 in fixed point, as TFLite's reference kernel computes it (the exponential and
    the reciprocal are gemmlowp's): scale 1/256, zero point -128.

    ``powers[255 + x - max]`` is exp(scale * (x - max)) in Q0.31, 0 where it is too small to count.
    in, out: int8 of one shape.
    """

    name: ClassVar[str] = "integer_softmax"
    axis: int
    powers: tuple[int, ...]

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if data.dtype is not DType.INT8 or not 0 <= self.axis < len(data.shape):
            raise ValueError(f"softmax of {data} along axis {self.axis}: int8, an axis of it")
        if len(self.powers) != 256 or not all(0 <= power < 2**31 for power in self.powers):
            raise ValueError("softmax needs 256 powers of 31 bits")
        if data.shape[self.axis] > MOST_POWERS:
            raise ValueError(f"softmax of more than {MOST_POWERS} values")
        return data

    def reference(self, *inputs: Array) -> Array:
        x = np.moveaxis(inputs[0], self.axis, -1).astype(np.int64)
        powers = np.array(self.powers, np.int64)[255 + x - x.max(axis=-1, keepdims=True)]
        total = shift_rounded(powers, 12).sum(axis=-1, keepdims=True)
        zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
        inverse = _reciprocal((total << zeros) - 2**31)
        places = 12 - zeros + 31 - 8
        result = shift_rounded(high_product(inverse, powers), places) - 128
        return np.moveaxis(np.clip(result, -128, 127).astype(np.int8), -1, self.axis)

    @staticmethod
    def examples() -> Iterator[Example]:
        for scale in (0.004, 0.1, 1.5):
            powers = tflite_powers(scale)
            yield IntegerSoftmax(1, powers), (Type((2, 10), DType.INT8),)
            yield IntegerSoftmax(0, powers), (Type((3, 4), DType.INT8),)

    def __str__(self) -> str:
        return f"{self.name}(axis={self.axis}, 256 powers)"


@dataclass(frozen=True)
class TableSoftmax(AlongAxisOp):
    """Softmax of 8 bits in float32, times ``factor``, as ONNX Runtime's QLinearSoftmax computes it:
    ``powers[255 + x - max] * factor / total``, summed from the first element on.

    in: int8 or uint8; out: float32 of its shape.
    """

    name: ClassVar[str] = "table_softmax"
    axis: int
    powers: tuple[float, ...]
    factor: float

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        narrow = data.dtype in (DType.INT8, DType.UINT8)
        if not narrow or not 0 <= self.axis < len(data.shape):
            raise ValueError(f"softmax of {data} along axis {self.axis}: 8 bits, an axis of it")
        if len(self.powers) != 256 or not all(0 <= p < math.inf for p in self.powers):
            raise ValueError("softmax needs 256 finite powers")
        return Type(data.shape, DType.FLOAT32)

    def reference(self, *inputs: Array) -> Array:
        x = np.moveaxis(inputs[0], self.axis, -1).astype(np.int64)
        powers = np.array(self.powers, np.float32)[255 + x - x.max(axis=-1, keepdims=True)]
        total = np.add.accumulate(powers, axis=-1, dtype=np.float32)[..., -1:]
        return np.moveaxis(powers * np.float32(self.factor) / total, -1, self.axis)

    @staticmethod
    def examples() -> Iterator[Example]:
        for scale in (0.004, 0.1, 1.5):
            powers = onnx_powers(scale, 10)
            yield TableSoftmax(1, powers, 256.0), (Type((2, 10), DType.INT8),)
            yield TableSoftmax(0, powers, 64.0), (Type((3, 4), DType.UINT8),)
            yield TableSoftmax(2, powers, 256.0), (Type((3, 2, 9), DType.UINT8),)

    def __str__(self) -> str:
        return f"{self.name}(axis={self.axis}, 256 powers, factor={self.factor})"


# The sum of so many powers in Q12.19 fits 32 bits.
MOST_POWERS = 2**12


def high_product(a: Array | int, b: Array | int) -> Array:
    """a * b / 2**31, rounded half up (for numbers of 32 bits that are not both the lowest)."""
    return np.asarray((np.asarray(a, np.int64) * np.asarray(b, np.int64) + (1 << 30)) >> 31)


def shift_rounded(x: Array, places: Array | int) -> Array:
    """x / 2**places, halves away from zero."""
    places = np.asarray(places, np.int64)
    mask = np.left_shift(np.int64(1), places) - 1
    return np.asarray((x >> places) + ((x & mask) > (mask >> 1) + (x < 0)))


def _reciprocal(a: Array) -> Array:
    """1 / (1 + a), both in Q0.31: three steps of Newton's method from 48/17 - 32/17 d, with
    d = (1 + a) / 2, in Q2.29."""
    half = (a + 2**31) >> 1
    x = 1515870810 + high_product(half, -1010580540)
    for _ in range(3):
        x = x + (high_product(x, 2**29 - high_product(half, x)) << 2)
    return np.asarray(np.minimum(x << 1, 2**31 - 1))


# exp(-2**k) for k = -2 .. 4, in Q0.31.
_POWERS_OF_E = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


def _exponential(a: Array) -> Array:
    """exp(a) in Q0.31 of a <= 0 in Q5.26: a polynomial around -1/8 on (-1/4, 0], then a factor for
    each binary digit above."""
    rest = (a & (2**24 - 1)) - 2**24
    x = (rest << 5) + 2**28
    square = high_product(x, x)
    cube, fourth = high_product(square, x), high_product(square, square)
    tail = high_product(shift_rounded(fourth, 2) + cube, 715827883) + square
    result = 1895147668 + high_product(1895147668, x + shift_rounded(tail, 1))
    for digit, factor in enumerate(_POWERS_OF_E):
        has = ((rest - a) >> (24 + digit)) & 1
        result = np.where(has == 1, high_product(result, factor), result)
    return np.where(a == 0, 2**31 - 1, result)


def tflite_powers(scale: float) -> tuple[int, ...]:
    """exp(scale * d) in Q0.31 for d = -255 .. 0."""
    multiplier, shift = fixed_point(min(scale * 2.0**26, 2.0**31 - 1))
    difference = np.arange(-255, 1)
    lowest = -math.floor((31 << 26) / 2.0**shift)
    step = FixedPointMultiply((multiplier,), (shift,), None, "twice")
    counts = difference >= lowest
    scaled = step.reference(np.where(counts, difference, 0).astype(np.int32), None)
    powers = np.where(counts, _exponential(scaled.astype(np.int64)), 0)
    return tuple(int(power) for power in powers)


def add_tflite_softmax(call: Call, lowering: Lowering, data: Expr, scale: float) -> str:
    """The softmax ``call`` of the int8 tensor ``data`` at ``scale``."""
    of = lowering.type(data)
    require(of.dtype is DType.INT8, "dtype of TFLite's softmax", of.dtype, "int8")
    axis = int(call.attrs["axis"]) % len(of.shape)
    require(of.shape[axis] <= MOST_POWERS, "length of softmax", of.shape[axis], f"<= {MOST_POWERS}")
    op = IntegerSoftmax(axis, tflite_powers(scale))
    return lowering.builder.add(op, [lowering.tensor(data)], sources=sources(call))


def onnx_powers(scale: float, count: int) -> tuple[float, ...]:
    """exp(scale * d) for d = -255 .. 0, all times a power of e that leaves room for the sum of
    ``count``: in double precision but for that room's logarithm, then as float32."""
    largest = float(np.finfo(np.float32).max / np.float32(count))
    shift = max(0.0, float(np.float32(math.log(largest))) - 5) / scale
    return tuple(float(np.float32(math.exp((i - 255 + shift) * scale))) for i in range(256))


def add_onnx_softmax(
    call: Call, lowering: Lowering, data: Expr, source: Scale, target: Scale
) -> str:
    """The softmax ``call`` of the tensor ``data`` of 8 bits at ``source``, of the same type at
    ``target``. ONNX Runtime cuts the output's reciprocal scale to a whole number, and what it
    stores in an int8 wraps."""
    of = lowering.type(data)
    axis = int(call.attrs["axis"]) % len(of.shape)
    powers = onnx_powers(float(np.float32(source.scale)), of.shape[axis])
    factor = float(np.floor(np.float32(1) / np.float32(target.scale)))
    fits = factor * powers[-1] <= float(np.finfo(np.float32).max)
    found = f"1 / {factor}, of {of.shape[axis]} values"
    require(fits, "scale of a softmax", found, "one by which ONNX Runtime's float32 is no infinity")
    builder = lowering.builder
    chain = (
        steps.Round("even"),
        *plus(builder, target.zero_point, DType.FLOAT32),
        *narrow(of.dtype),
    )
    op = TableSoftmax(axis, powers, factor)
    name = lowering.tensor(data)
    return builder.add(op, [name], chain, sources(call), target.qparams)


def lower_softmax(call: Call, lowering: Lowering) -> str:
    """softmax of float32."""
    data = lowering.type(call["data"])
    require(data.dtype.is_float, "dtype of softmax", data.dtype, "float32")
    op = Softmax(int(call.attrs["axis"]) % len(data.shape))
    return lowering.builder.add(op, [lowering.tensor(call["data"])], sources=sources(call))


def lower_log_softmax(call: Call, lowering: Lowering) -> str:
    """log_softmax of float32. Not ONNX Runtime's or TFLite's, which were not compared."""
    data = lowering.type(call["data"])
    require(data.dtype.is_float, "dtype of softmax", data.dtype, "float32")
    how = lowering.arithmetic
    require(how.has_log_softmax, f"{how.whose} arithmetic of", call.spelled, "softmax")
    op = Softmax(int(call.attrs["axis"]) % len(data.shape), log=True)
    return lowering.builder.add(op, [lowering.tensor(call["data"])], sources=sources(call))


OPERATORS = {
    "softmax": OperatorRow(lower_softmax, "data", "axis"),
    "log_softmax": OperatorRow(lower_log_softmax, "data", "axis"),
}
