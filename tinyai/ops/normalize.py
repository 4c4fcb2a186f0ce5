"""Layer normalization and RMS normalization of integers, whose mean and variance are exact.

Ba, Kiros and Hinton, "Layer Normalization", 2016: (x - mean) / sqrt(variance + epsilon), times
gamma, plus beta. Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019: the same with 0
in place of the mean. A zero point moves x and what is taken off alike, and a scale is a factor of
both sides of the fraction, so the integers are normalized, with epsilon in steps of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.builders import Lowering, OperatorRow, Scale, Steps
from tinyai.ir import Array, DType, Example, Type
from tinyai.ops import steps
from tinyai.ops.scales import dequantize_below, number, require_compared
from tinyai.ops.softmax import AlongAxisOp, high_product, shift_rounded
from tinyai.source import IN_FLOATS, Call, Constant, constant_of, require, sources

# Operators of the vocabulary: around the mean, and around 0.
NORMS = ("layer_norm", "rms_norm")
# So many values along an axis: their number times one of them fits 32 bits, and times their squares
# 64 bits.
MOST = {DType.INT8: 2**22, DType.UINT8: 2**22, DType.INT16: 2**15}
# Less is lost beside the least variance, 1 / n**2. Without it a row of equal values has no inverse.
LEAST = 1e-30
# The square of the least norm that TFLite divides by: integers do not show it.
LEAST_SQUARES = 1e-12
# So many squares of differences of bytes fit 31 bits.
MOST_SQUARES = (2**31 - 1) // 255**2


@dataclass(frozen=True)
class Normalize(AlongAxisOp):
    """(x - mean) / sqrt(variance + ``epsilon``) of the n values along ``axis``, where the variance
    is the mean of (x - mean)**2. With a ``zero_point`` that is in place of the mean.

    In integers: with the sum s of x and the sum q of x**2, the deviations n * x - s are exact, and
    so is n * q - s**2, the variance times n**2. Where a zero point is taken off x, s is 0. The
    reciprocal of the variance's root, with ``epsilon`` times n**2 added, is computed in float64 and
    rounded to float32 once; the product is float32.
    in: int8, uint8, or int16, whose zero point is 0; out: float32 of its shape.
    """

    name: ClassVar[str] = "normalize"
    axis: int
    epsilon: float
    zero_point: int | None = None

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if data.dtype not in MOST:
            raise ValueError(f"normalize of {data}: {', '.join(MOST)}")
        most = MOST[data.dtype]
        if not 0 <= self.axis < len(data.shape) or not 0 < data.shape[self.axis] <= most:
            raise ValueError(f"normalize along axis {self.axis} of {data}: one of 1 to {most}")
        if not LEAST <= self.epsilon < math.inf:
            raise ValueError(f"epsilon {self.epsilon}: a number of at least {LEAST}")
        if self.zero_point is not None:
            low, high = (0, 0) if data.dtype is DType.INT16 else data.dtype.range
            if not low <= self.zero_point <= high:
                raise ValueError(f"zero point {self.zero_point}: {low} to {high}")
        return Type(data.shape, DType.FLOAT32)

    def added(self, count: int) -> float:
        """``epsilon`` times the square of the number of values."""
        return self.epsilon * (count * count)

    def reference(self, *inputs: Array) -> Array:
        x = inputs[0].astype(np.int64) - (self.zero_point or 0)
        count = x.shape[self.axis]
        total = x.sum(axis=self.axis, keepdims=True) if self.zero_point is None else np.int64(0)
        squares = (x * x).sum(axis=self.axis, keepdims=True)
        spread = (count * squares - total * total).astype(np.float64) + self.added(count)
        inverse = (1 / np.sqrt(spread)).astype(np.float32)
        return np.asarray((count * x - total).astype(np.float32) * inverse)

    @staticmethod
    def examples() -> Iterator[Example]:
        for dtype in (DType.INT8, DType.UINT8, DType.INT16):
            yield Normalize(1, 0.01), (Type((2, 40), dtype),)
            yield Normalize(1, 2.0), (Type((2, 5, 3), dtype),)
            yield Normalize(1, 0.5, 0), (Type((2, 40, 2), dtype),)
        yield Normalize(0, LEAST), (Type((1,), DType.INT8),)
        yield Normalize(1, LEAST, -128), (Type((3, 60), DType.INT8),)
        yield Normalize(2, 1e-6), (Type((1, 3, 200), DType.INT8),)
        yield Normalize(0, 1e-6), (Type((2**15 + 9,), DType.UINT8),)


@dataclass(frozen=True)
class IntegerL2Norm(AlongAxisOp):
    """Each value over the root of the sum of squares of the values along ``axis``, in fixed point
    as TFLite's reference kernel computes it: scale 1/128, zero point 0.

    in: int8, from which ``zero_point`` is taken; out: int8 of its shape.
    """

    name: ClassVar[str] = "integer_l2_norm"
    axis: int
    zero_point: int

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if data.dtype is not DType.INT8 or not 0 <= self.axis < len(data.shape):
            raise ValueError(f"norm of {data} along axis {self.axis}: int8, an axis of it")
        if data.shape[self.axis] > MOST_SQUARES:
            raise ValueError(f"norm of more than {MOST_SQUARES} values")
        low, high = data.dtype.range
        if not low <= self.zero_point <= high:
            raise ValueError(f"zero point {self.zero_point}: {low} to {high}")
        return data

    def reference(self, *inputs: Array) -> Array:
        x = inputs[0].astype(np.int64) - self.zero_point
        root, places = _inverse_root((x * x).sum(axis=self.axis, keepdims=True))
        places = places - 7
        product = high_product(x << np.maximum(-places, 0), root)
        result = shift_rounded(product, np.maximum(places, 0))
        return np.clip(result, -128, 127).astype(np.int8)

    @staticmethod
    def examples() -> Iterator[Example]:
        for zero_point in (0, 3, -128):
            yield IntegerL2Norm(1, zero_point), (Type((3, 40), DType.INT8),)
        yield IntegerL2Norm(0, 127), (Type((5, 2, 3), DType.INT8),)
        yield IntegerL2Norm(1, 0), (Type((7, 1), DType.INT8),)
        yield IntegerL2Norm(0, 127), (Type((MOST_SQUARES,), DType.INT8),)


def l2_factor(count: int) -> np.float32:
    """What makes an RMS norm of so many values the norm by the root of the sum of squares."""
    return np.float32(1 / np.sqrt(count))


def _inverse_root(squares: Array) -> tuple[Array, Array]:
    """1 / sqrt(squares) as a number in Q0.31 and places to shift it right: five steps of Newton's
    method from 1 (``GetInvSqrtQuantizedMultiplierExp``). 0 is taken for 1."""
    few, power = squares <= 1, np.frexp(squares.astype(np.float64))[1].astype(np.int64)
    # A power of four brings the number to 2**27 .. 2**29.
    pairs = (power - 28) // 2
    scaled = np.where(pairs > 0, squares >> (2 * np.maximum(pairs, 0)), squares)
    scaled = scaled << (2 * np.maximum(-pairs, 0))
    half, root = shift_rounded(scaled >> 1, 1), np.full_like(squares, 2**28)
    for _ in range(5):
        cube = np.minimum(high_product(high_product(root, root), root) << 6, 2**31 - 1)
        root = (high_product(3 << 27, root) - high_product(half, cube)) << 3
    root, places = high_product(root, 1518500250), 11 + pairs
    root = root << np.maximum(-places, 0)
    return np.where(few, 2**31 - 1, root), np.where(few, 0, np.maximum(places, 0))


def _is_l2_norm(call: Call) -> bool:
    gamma, beta = call["gamma"], call["beta"]
    if call.op != "rms_norm" or not isinstance(gamma, Constant) or not isinstance(beta, Constant):
        return False
    (shape,) = {tuple(of.shape) for of in call.types}
    factor = l2_factor(int(shape[call.attrs["axis"]]))
    known = call.attrs["epsilon"] <= LEAST_SQUARES and not beta.value.any()
    return known and bool((gamma.value == factor).all())


def add_tflite_l2_norm(call: Call, lowering: Lowering, source: Scale, target: Scale) -> str:
    """The rms_norm ``call`` of dequantized int8 that is TFLite's L2_NORMALIZATION."""
    data = call["data"]
    assert isinstance(data, Call)
    of = lowering.type(data["data"])
    axis = int(call.attrs["axis"]) % len(of.shape)
    count, quantization = of.shape[axis], (float(target.scale), target.zero_point)
    require(_is_l2_norm(call), "TFLite's arithmetic of", call.spelled, "an L2 norm")
    require(quantization == (1 / 128, 0), "quantization of a norm", quantization, (1 / 128, 0))
    require(count <= MOST_SQUARES, "length of a norm", count, f"<= {MOST_SQUARES}")
    op = IntegerL2Norm(axis, source.zero_point)
    return lowering.builder.add(op, [lowering.tensor(data["data"])], sources=sources(call))


def lower_norm(call: Call, lowering: Lowering) -> str:
    """layer_norm or rms_norm of dequantized values, in floats between their integers and those of
    the result. No framework's kernel has a known order of sums: it is as exact as float32 lets it
    be. Where all deviations are 0 the result is beta, of any epsilon."""
    how = lowering.arithmetic
    allowed = "operators that it has kernels of"
    known = how.has_layer_norm or (_is_l2_norm(call) and call.origin != IN_FLOATS)
    require(known, f"{how.whose} arithmetic of", call.spelled, allowed)
    below, source = dequantize_below(call, lowering, tuple(MOST))
    of, builder = lowering.type(below["data"]), lowering.builder
    axis, epsilon = int(call.attrs["axis"]) % len(of.shape), float(call.attrs["epsilon"])
    count = of.shape[axis]
    require_compared(lowering, of.dtype)
    most = MOST[of.dtype]
    require(0 < count <= most, f"length of a {call.op}", count, f"1 to {most}")
    require(0 <= epsilon < math.inf, "epsilon", epsilon, "a number of at least 0")
    zero_point = source.zero_point if call.op == "rms_norm" else None
    op = Normalize(axis, max(epsilon / float(source.scale) ** 2, LEAST), zero_point)
    affine: Steps = ()
    for operand, what in (("gamma", steps.Multiply), ("beta", steps.Add)):
        value = constant_of(call, operand, f"{operand} of {call.spelled}").astype(np.float32)
        fits = value.ndim <= len(of.shape) and all(
            size in (1, whole)
            for size, whole in zip(value.shape[::-1], of.shape[::-1], strict=False)
        )
        require(fits, f"shape of {operand}", value.shape, f"one that broadcasts to {of}")
        finite = bool(np.isfinite(value).all())
        require(finite, f"{operand} of {call.spelled}", "an infinity, or no number", "finite ones")
        if (value != (1 if what is steps.Multiply else 0)).any():
            spread = value.reshape((1,) * (len(of.shape) - value.ndim) + value.shape)
            affine += (what(operand=number(builder, spread, DType.FLOAT32)),)
    return builder.add(op, [lowering.tensor(below["data"])], affine, sources(call))


OPERATORS = {name: OperatorRow(lower_norm, "data gamma beta", "axis epsilon") for name in NORMS}
