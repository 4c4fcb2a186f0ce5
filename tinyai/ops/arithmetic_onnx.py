"""The arithmetic of ONNX Runtime's CPU kernels (MLAS) for quantized operators, on x86 with FMA.

float32 throughout, halves to even. Each formula was compared with ONNX Runtime 1.31 on scales that
make ties.
"""

from __future__ import annotations

import itertools

import numpy as np

from tinyai.ir import NARROW, Array, Builder, DType, Operand, Step
from tinyai.ops import steps
from tinyai.ops.functions import fused_multiply_add
from tinyai.ops.scales import (
    Arithmetic,
    Scale,
    Sides,
    Steps,
    centred_product,
    dequantize,
    minus,
    narrow,
    number,
    plus,
    times,
)
from tinyai.source import require


class OnnxArithmetic(Arithmetic):
    def requantize(
        self, builder: Builder, source: Scale, target: Scale, found: DType, to: DType, rank: int
    ) -> Steps:
        """An accumulator times (data's scale * weights' scale) / output's scale; of anything else
        its real value, quantized."""
        require(to in NARROW, "dtype of the result", to, ", ".join(NARROW))
        if not source.factors:
            return (
                *dequantize(builder, source, found, rank),
                *self.quantize(builder, target, to, rank),
            )
        product: Array = np.float32(1) * source.factors[0]
        for factor in source.factors[1:]:
            product = np.asarray(product * factor, np.float32)
        ratio = np.asarray(product / np.float32(target.scale), np.float32)
        return (
            *minus(builder, source.zero_point),
            steps.Cast(DType.FLOAT32),
            *times(builder, source.spread(ratio, rank) if ratio.size > 1 else ratio.reshape(())),
            *_stored(builder, target, to),
        )

    def quantize(self, builder: Builder, target: Scale, to: DType, rank: int) -> Steps:
        scale = number(builder, target.spread(target.scale, rank), DType.FLOAT32)
        return steps.Divide(operand=scale), *_stored(builder, target, to, rank)

    def quantize_average(self, builder: Builder, target: Scale, to: DType) -> Steps:
        """QLinearAveragePool: the zero point is added before rounding."""
        scale = number(builder, target.scale.reshape(()), DType.FLOAT32)
        return (
            steps.Divide(operand=scale),
            *plus(builder, target.zero_point, DType.FLOAT32),
            steps.Round("even"),
            *narrow(to),
        )

    def add(
        self, builder: Builder, sides: Sides, target: Scale, to: DType, step: type[Step]
    ) -> Steps:
        """QLinearAdd: a * ra + (b * rb + fixed), two fused multiply-adds; ``fixed`` holds all three
        zero points. b is the operator's second argument, or its first where that is one number
        along the innermost dimension. A subtraction stays in float: its real value, quantized."""
        if step is not steps.Add:
            other = dequantize(builder, sides.right, DType.INT8, 0)
            return (
                *dequantize(builder, sides.left, DType.INT8, 0),
                step(operand=Operand(sides.tensor, other)),
                *self.quantize(builder, target, to, 0),
            )
        of_value, of_operand = sides.scales
        value_last = sides.swapped == _is_number_inside(*sides.shapes)
        a, b = (of_value, of_operand) if value_last else (of_operand, of_value)
        ra, rb = (np.asarray(side.scale / target.scale, np.float32) for side in (a, b))
        za, zb, zc = (np.asarray(s.zero_point, np.float32) for s in (a, b, target))
        fixed = zc - fused_multiply_add(ra, za, rb * zb)
        inner = steps.MultiplyAdd(float(rb), operand=number(builder, fixed, DType.FLOAT32))
        cast = steps.Cast(DType.FLOAT32)
        if value_last:
            total: Steps = (
                steps.MultiplyAdd(float(ra), operand=Operand(sides.tensor, (cast, inner))),
            )
        else:
            total = inner, steps.AddProduct(float(ra), operand=Operand(sides.tensor, (cast,)))
        return cast, *total, steps.Round("even"), *narrow(to)

    def multiply(self, builder: Builder, sides: Sides, target: Scale, to: DType) -> Steps:
        """QLinearMul: the zero point is added before rounding."""
        return (
            *centred_product(builder, sides),
            steps.Cast(DType.FLOAT32),
            *times(builder, sides.product_ratio(target)),
            *plus(builder, target.zero_point, DType.FLOAT32),
            steps.Round("even"),
            *narrow(to),
        )


def _is_number_inside(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether the first of two shapes broadcasts along the innermost dimension that they have."""
    pairs = itertools.zip_longest(reversed(first), reversed(second), fillvalue=1)
    one, other = next((pair for pair in pairs if pair != (1, 1)), (1, 1))
    return one < other


def _stored(builder: Builder, target: Scale, to: DType, rank: int = 0) -> Steps:
    return (
        steps.Round("even"),
        *plus(builder, target.zeros(rank), DType.FLOAT32),
        *narrow(to),
    )
