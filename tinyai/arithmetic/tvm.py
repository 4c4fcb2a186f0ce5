"""The arithmetic of TVM's QNN dialect, under an operator's ``rounding`` and ``compute_dtype``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tinyai.builders import Arithmetic, Scale, Sides, Steps
from tinyai.ir import NARROW, Builder, DType, Operand, Step
from tinyai.ops import steps
from tinyai.ops.scales import (
    centred_product,
    divided,
    fixed_point,
    fixed_point_step,
    minus,
    multiply_step,
    narrow,
    plus,
    times,
    widen,
)
from tinyai.source import require

MODES = {"UPWARD": "upward", "TONEAREST": "tonearest"}


TIES = ("UPWARD", "TONEAREST")
COMPUTE_DTYPES = ("int64", "float32", "float64")


@dataclass(frozen=True)
class TvmArithmetic(Arithmetic):
    whose: ClassVar[str] = "TVM's"
    compares_wide: ClassVar[bool] = True
    inverts_divisors: ClassVar[bool] = True
    ties: str = "UPWARD"
    compute_dtype: str = "int64"

    def of_operator(self, attributes: Mapping[str, Any]) -> TvmArithmetic:
        """As the attributes ``rounding`` and ``compute_dtype`` say, where these are not None."""
        said = {name: str(attributes.get(name) or "None") for name in ("rounding", "compute_dtype")}
        ties = self.ties if said["rounding"] == "None" else said["rounding"]
        compute = self.compute_dtype if said["compute_dtype"] == "None" else said["compute_dtype"]
        require(ties in TIES, "rounding", ties, ", ".join(TIES))
        require(compute in COMPUTE_DTYPES, "compute_dtype", compute, ", ".join(COMPUTE_DTYPES))
        return TvmArithmetic(ties, compute)

    def requantize(
        self, builder: Builder, source: Scale, target: Scale, found: DType, to: DType, rank: int
    ) -> Steps:
        if found is DType.INT64:  # which in fixed point TVM cuts to int32
            fits = self.compute_dtype in ("int64", "float64")
            require(fits, "compute_dtype", self.compute_dtype, "int64, float64")
        if self.compute_dtype == "float32":
            return self._requantize_float(builder, source, target, to, rank)
        if self.compute_dtype == "float64":
            return self._requantize_double(builder, source, target, found, to, rank)
        return (
            *widen(found),
            *minus(builder, source.zeros(rank)),
            *self._rescale(builder, source, target),
            *plus(builder, target.zero_point),
            *(narrow(to) if to is not DType.INT32 else ()),
        )

    def _requantize_float(
        self, builder: Builder, source: Scale, target: Scale, to: DType, rank: int
    ) -> Steps:
        allowed = *NARROW, DType.INT16
        require(to in allowed, "dtype of a float32 requantization", to, ", ".join(allowed))
        ratio = source.scale.astype(np.float64) / np.float64(target.scale)
        same = source.axis is None and source.scale == target.scale
        return (
            steps.Cast(DType.FLOAT32),
            *minus(builder, source.zeros(rank), DType.FLOAT32),
            *(() if same else times(builder, source.spread(ratio, rank))),
            *plus(builder, target.zero_point, DType.FLOAT32),
            steps.Round("floor" if self.ties == "UPWARD" else "cut"),
            *narrow(to),
        )

    def _requantize_double(
        self, builder: Builder, source: Scale, target: Scale, found: DType, to: DType, rank: int
    ) -> Steps:
        """A double holds every int32 less a zero point; where that is 0, it is one already. An
        int64 it rounds, as TVM's does."""
        ratio = source.scale.astype(np.float64) / np.float64(target.scale)
        less = minus(builder, source.zeros(rank), DType.INT64)
        mode = "floor" if self.ties == "UPWARD" else "cut"
        numbers = tuple(ratio.reshape(-1).tolist())
        step = steps.RealMultiply(numbers, source.axis, mode, target.zero_point, *to.range)
        cast = (steps.Cast(to),) if to is not DType.INT32 else ()
        if found is DType.INT64:
            require(not less, "zero point of an int64", source.zero_point, 0)
            return step, *cast
        return *widen(found, DType.INT64 if less else DType.INT32), *less, step, *cast

    def _rescale(self, builder: Builder, source: Scale, target: Scale) -> Steps:
        """int32 -> int32: times the ratio of the scales, in fixed point."""
        if source.axis is None and source.scale == target.scale:
            return ()
        ratios = source.scale.astype(np.float64) / np.float64(target.scale)
        if source.axis is None and self.ties == "UPWARD":
            return multiply_step(builder, *fixed_point(float(ratios.reshape(()))))
        return (fixed_point_step(ratios, source.axis, MODES[self.ties]),)

    def quantize(self, builder: Builder, target: Scale, to: DType, rank: int) -> Steps:
        scale = target.spread(target.scale, rank)
        return (
            *divided(builder, scale),
            steps.Round(),
            *plus(builder, target.zeros(rank), DType.FLOAT32),
            *narrow(to),
        )

    def add(
        self, builder: Builder, sides: Sides, target: Scale, to: DType, step: type[Step]
    ) -> Steps:
        """Both sides at the output's scale, rounded, then added or subtracted."""
        require(self.compute_dtype == "int64", "compute_dtype", self.compute_dtype, "int64")
        left, other = (
            (
                steps.Cast(DType.INT32),
                *minus(builder, side.zero_point),
                *self._rescale(builder, side, target),
            )
            for side in sides.scales
        )
        return (
            *left,
            step(operand=Operand(sides.tensor, other)),
            *plus(builder, target.zero_point),
            *narrow(to),
        )

    def multiply(self, builder: Builder, sides: Sides, target: Scale, to: DType) -> Steps:
        product = Scale(np.asarray(sides.left.scale * sides.right.scale), 0)
        return (
            *centred_product(builder, sides),
            *self.requantize(builder, product, target, DType.INT32, to, 0),
        )
