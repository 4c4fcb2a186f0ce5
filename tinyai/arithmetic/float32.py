"""What ONNX Runtime and XNNPACK have in common: float32, halves to even."""

from __future__ import annotations

import numpy as np

from tinyai.builders import Arithmetic, Scale, Steps
from tinyai.ir import NARROW, Array, Builder, DType
from tinyai.ops import steps
from tinyai.ops.scales import dequantize, minus, narrow, plus, times
from tinyai.source import require


class Float32Arithmetic(Arithmetic):
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
            *stored(builder, target.zeros(0), to),
        )


def stored(builder: Builder, zeros: Array | int, to: DType) -> Steps:
    """From a float32 that is divided by the scale already."""
    return (
        steps.Round("even"),
        *plus(builder, np.asarray(zeros), DType.FLOAT32),
        *narrow(to),
    )
