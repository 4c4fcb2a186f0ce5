"""The arithmetic of PyTorch's quantized networks on a phone: XNNPACK's kernels, as ExecuTorch's
delegate calls them.

float32, halves to even, as ONNX Runtime's but for the order of a few operations; sums of two
tensors are of fixed point. Each formula was compared with XNNPACK's delegate of executorch 1.5.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tinyai.arithmetic.float32 import Float32Arithmetic, stored
from tinyai.builders import Scale, Sides, Steps
from tinyai.ir import NARROW, Array, Builder, DType, Operand, Step
from tinyai.ops import steps
from tinyai.ops.scales import centred_product, narrow, number, plus, times
from tinyai.source import require

# The larger factor of a sum is at least two to the power of this, and below twice that.
SUM_BITS = 20


class TorchArithmetic(Float32Arithmetic):
    whose: ClassVar[str] = "PyTorch's"
    divides_with_rescaling: ClassVar[bool] = True

    def quantize(self, builder: Builder, target: Scale, to: DType, rank: int) -> Steps:
        """A product with the inverse scale."""
        inverse = np.asarray(np.float32(1) / target.spread(target.scale, rank), np.float32)
        return *times(builder, inverse), *stored(builder, target.zeros(rank), to)

    def add(
        self, builder: Builder, sides: Sides, target: Scale, to: DType, step: type[Step]
    ) -> Steps:
        """Both sides by whole factors, the larger of ``SUM_BITS`` bits and the leading one, shifted
        with halves up."""
        require(to in NARROW, "dtype of the result", to, ", ".join(NARROW))
        ratios = [np.float32(side.scale / target.scale) for side in sides.scales]
        sign = -1 if step is steps.Subtract else 1
        shift = SUM_BITS - int(np.frexp(max(ratios))[1] - 1)
        require(0 < shift < 32, "ratio of the scales", float(max(ratios)), "2**-11 to 2**19")
        left, right = (int(np.rint(np.ldexp(np.float64(ratio), shift))) for ratio in ratios)
        right *= sign
        left_zero, right_zero = (side.zero_point for side in sides.scales)
        fixed = (1 << (shift - 1)) - left * left_zero - right * right_zero
        info = np.iinfo(np.int32)
        fits = info.min <= fixed <= info.max
        require(fits, "zero points of a sum", f"{left_zero} and {right_zero}", "an int32 of both")

        def scaled(factor: int) -> Steps:
            by = number(builder, factor, DType.INT32)
            return steps.Cast(DType.INT32), steps.Multiply(operand=by)

        return (
            *scaled(left),
            steps.Add(operand=Operand(sides.tensor, scaled(right))),
            *plus(builder, fixed),
            steps.RightShift(operand=number(builder, shift, DType.INT32)),
            *plus(builder, target.zero_point),
            *narrow(to),
        )

    def multiply(self, builder: Builder, sides: Sides, target: Scale, to: DType) -> Steps:
        return (
            *centred_product(builder, sides),
            steps.Cast(DType.FLOAT32),
            *times(builder, sides.product_ratio(target)),
            *stored(builder, target.zero_point, to),
        )

    def mean(self, builder: Builder, source: Scale, target: Scale, count: int, to: DType) -> Steps:
        """One product in float32, and both zero points in what is added to it before the result is
        rounded."""
        factor = np.float32(source.scale / target.scale) * (np.float32(1) / np.float32(count))
        zeros = np.float32(target.zero_point) - np.float32(source.zero_point * count) * factor
        return (
            steps.Cast(DType.FLOAT32),
            *times(builder, np.asarray(factor)),
            *plus(builder, np.asarray(zeros), DType.FLOAT32),
            steps.Round("even"),
            *narrow(to),
        )

    def bias_steps(self, values: Array, scales: Array) -> Array:
        """By float32 inverses, as XNNPACK's delegate does it: of a bias of 100,000 steps four in a
        thousand are other integers than by a division."""
        channels = scales.astype(np.float32) if scales.size > 1 else scales
        inverses = (1 / channels).astype(np.float32)
        rounded: Array = np.rint(values.astype(np.float32) * inverses)
        return rounded.astype(np.float64)
