"""Layer normalization and RMS normalization of integers, whose mean and variance are exact.

Ba, Kiros and Hinton, "Layer Normalization", 2016: (x - mean) / sqrt(variance + epsilon), times
gamma, plus beta. Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019: the same with 0
in place of the mean. A zero point moves x and what is taken off alike, and a scale is a factor of
both sides of the fraction, so the integers are normalized, with epsilon in steps of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tinyai.builders import Lowering, OperatorRow, Steps
from tinyai.ir import Array, DType, Example, Op, Type
from tinyai.ops import steps
from tinyai.ops.scales import dequantize_below, number, require_compared
from tinyai.source import Call, constant_of, require, sources
from tinyai.traits import Dims

# Operators of the vocabulary: around the mean, and around 0.
NORMS = ("layer_norm", "rms_norm")
# So many values along an axis: their number times one of them fits 32 bits, and times their squares
# 64 bits.
MOST = {DType.INT8: 2**22, DType.UINT8: 2**22, DType.INT16: 2**15}
# Less is lost beside the least variance, 1 / n**2. Without it a row of equal values has no inverse.
LEAST = 1e-30


@dataclass(frozen=True)
class Normalize(Op):
    """(x - mean) / sqrt(variance + ``epsilon``) of the n values along ``axis``, where the variance
    is the mean of (x - mean)**2. With a ``zero_point`` that is in place of the mean.

    In integers: with the sum s of x and the sum q of x**2, the deviations n * x - s are exact, and
    so is n * q - s**2, the variance times n**2. Where a zero point is taken off x, s is 0. The
    reciprocal of the variance's root, with ``epsilon`` times n**2 added, is computed in float64 and
    rounded to float32 once; the product is float32.
    in: int8, uint8, or int16, whose zero point is 0; out: float32 of its shape.
    """

    name: ClassVar[str] = "normalize"
    takes_epilogue: ClassVar[bool] = True
    dims: ClassVar[Dims] = Dims.ALIGNED
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

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op:
        return replace(self, axis=dims.index(self.axis))

    def bound_dims(self) -> tuple[int, ...]:
        return (self.axis,)

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


def lower_norm(call: Call, lowering: Lowering) -> str:
    """layer_norm or rms_norm of dequantized values, in floats between their integers and those of
    the result. No framework's kernel has a known order of sums: it is as exact as float32 lets it
    be. Where all deviations are 0 the result is beta, of any epsilon."""
    how = lowering.arithmetic
    allowed = "operators that it has kernels of"
    require(how.has_layer_norm, f"{how.whose} arithmetic of", call.spelled, allowed)
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
