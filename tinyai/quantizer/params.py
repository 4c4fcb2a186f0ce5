"""Scales and zero points from ranges and weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyai.qdq.operands import Grid
from tinyai.quantizer.config import LARGEST_WEIGHT, QuantConfig

Array = npt.NDArray[Any]

# A bias in steps of the sums stays below this, so that sums have room beside it.
LARGEST_BIAS = 2.0**30
# What is below this, beside what a softmax reads, is not to be seen.
MASKED = -5000.0
_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)


def has_mask(values: Array) -> bool:
    """Whether some of the numbers that are added to others are a mask."""
    return bool((values < MASKED).any())


def grid(
    low: float, high: float, dtype: str, *, symmetric: bool = False, power_of_two: bool = False
) -> Grid:
    """The grid of a dtype that reaches from ``low`` to ``high`` and holds 0 exactly; that of int16
    is ``symmetric``.

    A scale is a float32. A power of two is the next one up, so that nothing of the range is lost.
    """
    limits = np.iinfo(dtype)
    middle = (limits.min + limits.max + 1) // 2
    low, high = min(low, 0.0), max(high, 0.0)
    symmetric = symmetric or dtype == "int16"
    if symmetric:
        scale = max(-low, high) / (limits.max - middle)
    else:
        # Each side by itself, for the difference of two large floats may be none.
        scale = high / (limits.max - limits.min) - low / (limits.max - limits.min)
    scale = _scale(scale, power_of_two)
    if symmetric:
        return Grid(dtype, scale, middle)
    zero = round(limits.min - low / scale)
    return Grid(dtype, scale, max(limits.min, min(limits.max, zero)))


def configured_grid(low: float, high: float, config: QuantConfig) -> Grid:
    """The grid of ``config``'s dtype that reaches from ``low`` to ``high``."""
    return grid(
        low, high, config.dtype, symmetric=config.symmetric, power_of_two=config.power_of_two
    )


def weight_scales(
    weights: Array,
    axis: int | None,
    *,
    largest: int = LARGEST_WEIGHT,
    bias: Array | None = None,
    input_scale: float = 1.0,
    power_of_two: bool = False,
) -> Array:
    """The scale of symmetric int8 weights, or one for each index along ``axis``, as float32; the
    ``largest`` is so many steps.

    Where a ``bias`` (one number, or one a channel) would not fit into int32 at the sums' scale, the
    scale is larger. A channel without weights has the largest scale of the others.
    """
    along = tuple(d for d in range(weights.ndim) if d != axis)
    most = np.abs(weights.astype(np.float64)).max(axis=along, initial=0.0).reshape(-1)
    scales = most / largest
    scales[scales == 0] = scales.max(initial=0.0) or 1.0
    if bias is not None:
        least = np.abs(bias.astype(np.float64)).reshape(-1) / (input_scale * LARGEST_BIAS)
        alike = least.size == scales.size  # else it may be a matrix
        scales = np.maximum(scales, least if alike else least.max(initial=0.0))
    return np.array([_scale(each, power_of_two) for each in scales.tolist()], np.float32)


def quantized_weights(
    weights: Array, scales: Array, axis: int | None, largest: int = LARGEST_WEIGHT
) -> Array:
    """Weights in steps of their scales, int8, up to the ``largest``."""
    shape = [-1 if d == axis else 1 for d in range(weights.ndim)]
    along = scales.astype(np.float64).reshape(shape if axis is not None else ())
    steps = np.rint(weights.astype(np.float64) / along)
    return np.asarray(np.clip(steps, -largest, largest), np.int8)


def _scale(scale: float, power_of_two: bool) -> float:
    if scale == 0:
        return 1.0
    if power_of_two:
        mantissa, exponent = math.frexp(scale)
        scale = math.ldexp(0.5 if mantissa == 0.5 else 1.0, exponent)
    return max(float(np.float32(scale)), _SMALLEST_SCALE)
