"""Scales and zero points: reading them from a call, and the steps that every arithmetic shares.

``real = scale * (q - zero point)`` (Jacob et al., "Quantization and Training of Neural Networks
for Efficient Integer-Arithmetic-Only Inference", 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinyai.builders import Lowering, Scale, Sides, Steps
from tinyai.ir import NARROW, Array, Builder, DType, Operand
from tinyai.ops import steps
from tinyai.source import Call, Constant, Expr, Refusal, constant_of, one_number, require

ACCUMULATORS = (
    *("quantized_conv2d", "quantized_conv2d_transpose"),
    *("quantized_dense", "quantized_batch_matmul"),
)
# Their operands.
QUANTIZED_PRODUCT = "data weight data_zero_point weight_zero_point data_scale weight_scale"


def scale_of(call: Call, side: str, what: str = "") -> Scale:
    """The operands ``side``_scale and ``side``_zero_point of a call, each one number."""
    what = what or side
    scale = np.float32(one_number(call, f"{side}_scale", f"scale of the {what}"))
    zero_point = int(one_number(call, f"{side}_zero_point", f"zero point of the {what}"))
    return Scale(require_positive(scale, f"scale of the {what}"), zero_point)


def require_positive(found: Any, what: str) -> Array:
    """``found`` scales, of which none is 0, negative, infinite or no number, or a ``Refusal``."""
    scales: Array = np.asarray(found)
    bad = scales[~((scales > 0) & np.isfinite(scales))].reshape(-1)
    allowed = "a positive number" if scales.size == 1 else "positive numbers"
    require(bad.size == 0, what, bad[0] if bad.size else None, allowed)
    return scales


def require_compared(lowering: Lowering, *dtypes: DType) -> None:
    """What frameworks do with more than 8 bits was not compared with all of them."""
    how = lowering.arithmetic
    for dtype in dtypes:
        compared = how.compares_wide or dtype not in (DType.INT16, DType.INT64)
        found = f"{dtype}, not compared"
        require(compared, f"{how.whose} arithmetic of", found, ", ".join(NARROW))


def dequantize_below(
    call: Call, lowering: Lowering, allowed: Sequence[DType] = NARROW
) -> tuple[Call, Scale]:
    """The dequantize of the allowed types whose floats an operator is of, and its scale."""
    below = call["data"]
    if not isinstance(below, Call) or below.op != "dequantize":
        raise Refusal(f"floats of {call.spelled}", "computed ones", "those of a dequantize")
    data = lowering.type(below["data"]).dtype
    require(data in allowed, f"dtype of {call.spelled}", data, ", ".join(allowed))
    return below, scale_of(below, "input")


def require_factors(product: Call) -> None:
    """Refuse a qnn product whose constant scales, of data and weights, are none."""
    for side, what in (("data", "data"), ("weight", "weights")):
        scales = product[f"{side}_scale"]
        if isinstance(scales, Constant):
            require_positive(scales.value, f"scale of the {what}")


def axis_scale_of(call: Call, what: str, rank: int) -> Scale:
    """As ``scale_of``; a vector of scales lies along the call's axis."""
    scale = constant_of(call, f"{what}_scale", f"scale of the {what}").astype(np.float32)
    if scale.ndim == 0:
        return scale_of(call, what)
    require(scale.ndim == 1, f"scale of the {what}", f"shape {scale.shape}", "one or a vector")
    require_positive(scale, f"scale of the {what}")
    zeros = constant_of(call, f"{what}_zero_point", f"zero point of the {what}")
    zeros = zeros.reshape(-1)
    fits = zeros.size in (1, scale.size)
    require(fits, f"zero points of the {what}", zeros.size, f"1 or {scale.size}")
    axis = int(call.attrs["axis"]) % rank
    differ = zeros if zeros.min() != zeros.max() else None
    return Scale(scale, int(zeros[0]), axis, zero_points=differ)


# Of float32, in which importers multiply the factors: a few last digits.
SAME = 2.0**-21


def with_factors(scale: Scale, value: Expr) -> Scale:
    """``scale`` with the factors that it is the product of, where ``value`` is an accumulator, with
    or without a bias, in any shape; a sum has one. A scale that is another number is what it says,
    and nothing else: it may have a factor of its own."""
    while isinstance(value, Call) and value.op in ("bias_add", "add", "reshape"):
        value = value.args[0]
    if isinstance(value, Call) and value.op == "sum":
        return replace(scale, factors=(scale.scale,), maker=value.op)
    if not isinstance(value, Call) or value.op not in ACCUMULATORS:
        return scale
    data = np.float32(one_number(value, "data_scale", "scale of the data"))
    weight = constant_of(value, "weight_scale", "scale of the weights").astype(np.float32)
    product = np.float64(data) * weight
    fits = product.size in (1, scale.scale.size)
    if not fits or not np.allclose(product, scale.scale, rtol=SAME, atol=0):
        return scale
    return replace(scale, factors=(np.asarray(data), weight), maker=value.op)


def fixed_point(multiplier: float) -> tuple[int, int]:
    """``multiplier`` as m * 2**(shift - 31), m in 2**30 .. 2**31 - 1: 31 bits, halves away from
    zero.

    Both are 0 for a multiplier so small that it takes every int32 to 0: a dead channel of a real
    network has one. (TVM shifts by more than 63 places there, which gives 0 on x86 without AVX2
    and 0 or -1 with it.)
    """
    ((m, shift),) = _fixed_points(np.array([multiplier], np.float64))
    return m, shift


def _fixed_points(multipliers: Array) -> list[tuple[int, int]]:
    finite = bool(np.isfinite(multipliers).all())
    require(finite, "ratio of the scales", "infinite, or no number", "a finite one")
    significand, shift = np.frexp(multipliers)
    m = np.floor(significand * 2**31 + 0.5).astype(np.int64)
    m, shift = np.where(m == 2**31, m // 2, m), np.where(m == 2**31, shift + 1, shift)
    dead = shift < -31
    m, shift = np.where(dead, 0, m), np.where(dead, 0, shift)
    return list(zip(m.tolist(), shift.tolist(), strict=True))


def fixed_point_step(ratios: Array, axis: int | None, ties: str) -> FixedPoint:
    """One fixed-point multiplication by numbers of float64, one or one along ``axis``."""
    numbers = _fixed_points(ratios.reshape(-1).astype(np.float64))
    largest = max(shift for _, shift in numbers)
    require(largest <= 30, "ratio of the scales", f"2**{largest}", "at most 2**30")
    multipliers, shifts = zip(*numbers, strict=True)
    return steps.FixedPointMultiply(multipliers, shifts, axis, ties)


FixedPoint = steps.FixedPointMultiply


def number(builder: Builder, value: Any, dtype: DType) -> Operand:
    return Operand(builder.constant(np.array(value, dtype.numpy)))


def plus(builder: Builder, value: Array | int, dtype: DType = DType.INT32) -> Steps:
    return (steps.Add(operand=number(builder, value, dtype)),) if np.any(value) else ()


def minus(builder: Builder, value: Array | int, dtype: DType = DType.INT32) -> Steps:
    return (steps.Subtract(operand=number(builder, value, dtype)),) if np.any(value) else ()


def times(builder: Builder, value: Array) -> Steps:
    return (steps.Multiply(operand=number(builder, value, DType.FLOAT32)),)


def widen(found: DType, to: DType = DType.INT32) -> Steps:
    return (steps.Cast(to),) if found is not to else ()


def narrow(dtype: DType) -> Steps:
    """Clipped to ``dtype``'s range and cast."""
    low, high = dtype.range
    return steps.Clip(low, high), steps.Cast(dtype)


def dequantize(builder: Builder, source: Scale, found: DType, rank: int) -> Steps:
    """To float32: (q - zero point) * scale. All arithmetics agree on it."""
    return (
        *widen(found),
        *minus(builder, source.zeros(rank)),
        steps.Cast(DType.FLOAT32),
        *times(builder, source.spread(source.scale, rank)),
    )


def centred_product(builder: Builder, sides: Sides) -> Steps:
    """int32: both sides less their zero points, multiplied."""
    wide = steps.Cast(DType.INT32)
    operand = Operand(sides.tensor, (wide, *minus(builder, sides.right.zero_point)))
    return wide, *minus(builder, sides.left.zero_point), steps.Multiply(operand=operand)


def divided(builder: Builder, divisor: Array) -> Steps:
    """A float32 by a constant: TVM's simplifier turns a division by one number of shape () into a
    product, which is another float at times."""
    if divisor.shape == ():
        return times(builder, np.asarray(np.float32(1) / divisor))
    return (steps.Divide(operand=number(builder, divisor, DType.FLOAT32)),)


def multiply_step(builder: Builder, multiplier: int, shift: int) -> Steps:
    """TVM's fixed_point_multiply of an int32, halves rounded up."""
    require(-31 <= shift <= 30, "shift", shift, "-31 .. 30")
    if multiplier != 2**30:
        return (steps.FixedPointMultiply((multiplier,), (shift,)),)
    # TVM turns the multiplier 0.5 into a shift: to the left without more, or to the right after a
    # rounding constant that wraps in 32 bits. In between it would shift 1 by -1 places.
    if shift > 1:
        return (steps.LeftShift(operand=number(builder, shift - 1, DType.INT32)),)
    require(shift <= 0, "shift of the multiplier 2**30", shift, "any but 1")
    half = number(builder, 1 << -shift, DType.INT32)
    places = number(builder, 1 - shift, DType.INT32)
    return steps.Add(operand=half), steps.RightShift(operand=places)
