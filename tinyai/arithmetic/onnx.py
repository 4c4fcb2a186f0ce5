"""The arithmetic of ONNX Runtime's CPU kernels (MLAS) for quantized operators, on x86 with FMA.

float32 throughout, halves to even. Each formula was compared with ONNX Runtime 1.31 on scales that
make ties.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from tinyai.arithmetic.float32 import Float32Arithmetic, stored
from tinyai.builders import Lowering, Scale, Sides, Steps
from tinyai.ir import Builder, DType, Operand, Step
from tinyai.ops import steps
from tinyai.ops.elementwise import Elementwise
from tinyai.ops.functions import fused_multiply_add
from tinyai.ops.pool2d import add_average_of_floats
from tinyai.ops.scales import centred_product, dequantize, narrow, number, plus, scale_of, times
from tinyai.ops.softmax import add_onnx_softmax
from tinyai.source import Call, sources


class OnnxArithmetic(Float32Arithmetic):
    whose: ClassVar[str] = "ONNX Runtime's"
    averages_in_float: ClassVar[bool] = True
    interpolates_floats: ClassVar[bool] = True
    has_log_softmax: ClassVar[bool] = False
    functions: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"sigmoid": "mlas_logistic", "tanh": "mlas_tanh"}
    )

    def quantize(self, builder: Builder, target: Scale, to: DType, rank: int) -> Steps:
        scale = number(builder, target.spread(target.scale, rank), DType.FLOAT32)
        return steps.Divide(operand=scale), *stored(builder, target.zeros(rank), to)

    def quantized_function(
        self, quantize: Call, lowering: Lowering, target: Scale, to: DType
    ) -> str | None:
        """QLinearSoftmax and QLinearAveragePool. Of two types ONNX Runtime runs the dequantize, the
        operator and the quantize one by one."""
        value = quantize["data"]
        if not isinstance(value, Call) or value.op not in ("softmax", "avg_pool2d"):
            return None
        below = value["data"]
        if not isinstance(below, Call) or below.op != "dequantize":
            return None
        if below["data"].type.dtype != to:
            return None
        if value.op == "avg_pool2d":
            return self._quantized_average(quantize, value, lowering, target, to)
        source = scale_of(below, "input")
        return add_onnx_softmax(value, lowering, below["data"], source, target)

    def _quantized_average(
        self, quantize: Call, average: Call, lowering: Lowering, target: Scale, to: DType
    ) -> str:
        total = add_average_of_floats(average, lowering, by_columns=False)
        chain = self._quantize_average(lowering.builder, target, to)
        of, names = lowering.builder.type(total), (*sources(average), *sources(quantize))
        return lowering.builder.add(Elementwise(of.shape), [total], chain, names, target.qparams)

    def average_of_floats(self, average: Call, lowering: Lowering) -> str | None:
        return add_average_of_floats(average, lowering, by_columns=True)

    def _quantize_average(self, builder: Builder, target: Scale, to: DType) -> Steps:
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
