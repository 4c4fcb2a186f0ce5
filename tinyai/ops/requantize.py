"""Requantization and the other operators between scales, lowered to steps.

``real = scale * (q - zero point)`` (Jacob et al., "Quantization and Training of Neural Networks
for Efficient Integer-Arithmetic-Only Inference", 2018). The arithmetic is that of TVM's QNN
dialect under the operator's ``rounding`` and ``compute_dtype``, or another framework's
(``source.Rounding``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyai.ir import Array, Builder, DType, Operand, QParams, Step
from tinyai.ops import steps
from tinyai.ops.elementwise import Elementwise, apply
from tinyai.ops.layout import Concatenate
from tinyai.source import (
    Call,
    Constant,
    Expr,
    Lower,
    Lowering,
    Refusal,
    Rounding,
    Tuple,
    constant_of,
    fixed_type,
    one_number,
    require,
    sources,
)

ROUNDINGS = ("UPWARD", "TONEAREST")
COMPUTE_DTYPES = ("int64", "float32")
NARROW = (DType.INT8, DType.UINT8)


@dataclass(frozen=True)
class Scale:
    """One scale, or one along ``axis``, as float32, and the zero point."""

    scale: Array
    zero_point: int
    axis: int | None = None

    @property
    def qparams(self) -> QParams:
        return QParams(tuple(map(float, self.scale.reshape(-1))), self.zero_point, self.axis)


def _scale(call: Call, index: int, what: str) -> Scale:
    """The scale and, behind it, the zero point among a call's arguments; each one number."""
    scale = np.float32(one_number(call, index, f"scale of the {what}"))
    zero_point = int(one_number(call, index + 1, f"zero point of the {what}"))
    require(bool(0 < scale < np.inf), f"scale of the {what}", scale, "a positive number")
    return Scale(np.asarray(scale), zero_point)


def _axis_scale(call: Call, index: int, what: str, rank: int) -> Scale:
    """As ``_scale``; a vector of scales lies along the call's axis."""
    scale = constant_of(call, index, f"scale of the {what}").astype(np.float32)
    if scale.ndim == 0:
        return _scale(call, index, what)
    require(scale.ndim == 1, f"scale of the {what}", f"shape {scale.shape}", "one or a vector")
    positive = bool(np.all(scale > 0) and np.all(np.isfinite(scale)))
    require(positive, f"scale of the {what}", scale.min(), "positive numbers")
    zeros = constant_of(call, index + 1, f"zero point of the {what}")
    same = zeros.min() == zeros.max()
    require(same, f"zero point of the {what}", f"{zeros.min()} .. {zeros.max()}", "one number")
    axis = int(call.attrs["axis"]) % rank
    return Scale(scale, int(zeros.reshape(-1)[0]), axis)


def rounding_of(attrs: Mapping[str, Any], default: Rounding) -> Rounding:
    """What an operator's attributes say, else ``default``."""
    rounding = _said(attrs, "rounding") or default.rounding
    compute_dtype = _said(attrs, "compute_dtype") or default.compute_dtype
    require(rounding in ROUNDINGS, "rounding", rounding, ", ".join(ROUNDINGS))
    allowed = ", ".join(COMPUTE_DTYPES)
    require(compute_dtype in COMPUTE_DTYPES, "compute_dtype", compute_dtype, allowed)
    said = bool(_said(attrs, "rounding") or _said(attrs, "compute_dtype"))
    return Rounding("upward" if said else default.mode, rounding, compute_dtype)


def _said(attrs: Mapping[str, Any], name: str) -> str:
    value = str(attrs.get(name) or "")
    return "" if value == "None" else value


def fixed_point(multiplier: float) -> tuple[int, int]:
    """``multiplier`` as m * 2**(shift - 31), m in 2**30 .. 2**31 - 1: 31 bits, halves away from
    zero.

    Both are 0 for a multiplier so small that it takes every int32 to 0: a dead channel of a real
    network has one. (TVM shifts by more than 63 places there, which gives 0 on x86 without AVX2
    and 0 or -1 with it.)
    """
    significand, shift = math.frexp(multiplier)
    m = math.floor(significand * 2**31 + 0.5)
    m, shift = (m // 2, shift + 1) if m == 2**31 else (m, shift)
    return (m, shift) if shift >= -31 else (0, 0)


# --- Chains of steps ---------------------------------------------------------------------------


def _number(builder: Builder, value: Any, dtype: DType) -> Operand:
    return Operand(builder.constant(np.array(value, dtype.numpy)))


def _add(builder: Builder, value: int, dtype: DType = DType.INT32) -> tuple[Step, ...]:
    return (steps.Add(operand=_number(builder, value, dtype)),) if value else ()


def _subtract(builder: Builder, value: int, dtype: DType = DType.INT32) -> tuple[Step, ...]:
    return (steps.Subtract(operand=_number(builder, value, dtype)),) if value else ()


def multiply_step(builder: Builder, multiplier: int, shift: int) -> tuple[Step, ...]:
    """TVM's fixed_point_multiply of an int32, halves rounded up."""
    require(-31 <= shift <= 30, "shift", shift, "-31 .. 30")
    if multiplier != 2**30:
        return (steps.FixedPointMultiply((multiplier,), (shift,)),)
    # TVM turns the multiplier 0.5 into a shift whose rounding constant wraps in 32 bits.
    require(shift <= 0, "shift of the multiplier 2**30", shift, "at most 0")
    rounding = _number(builder, 1 << -shift, DType.INT32)
    places = _number(builder, 1 - shift, DType.INT32)
    return steps.Add(operand=rounding), steps.RightShift(operand=places)


def _rescale_int(builder: Builder, source: Scale, target: Scale, rounding: str) -> tuple[Step, ...]:
    """int32 -> int32: times the ratio of the scales, in fixed point."""
    if source.axis is None and source.scale == target.scale:
        return ()
    ratios = source.scale.reshape(-1).astype(np.float64) / np.float64(target.scale)
    numbers = [fixed_point(float(ratio)) for ratio in ratios]
    largest = max(shift for _, shift in numbers)
    require(largest <= 30, "ratio of the scales", f"2**{largest}", "at most 2**30")
    if source.axis is None and rounding == "UPWARD":
        return multiply_step(builder, *numbers[0])
    multipliers, shifts = zip(*numbers, strict=True)
    mode = {"UPWARD": "upward", "TONEAREST": "tonearest"}[rounding]
    return (steps.FixedPointMultiply(multipliers, shifts, source.axis, mode),)


def _rescale_float(builder: Builder, source: Scale, target: Scale, rank: int) -> tuple[Step, ...]:
    """float32 -> float32: times the ratio of the scales."""
    if source.axis is None and source.scale == target.scale:
        return ()
    ratio = source.scale.astype(np.float64) / np.float64(target.scale)
    if source.axis is not None:
        ratio = ratio.reshape(-1, *(1,) * (rank - source.axis - 1))
    return (steps.Multiply(operand=_number(builder, ratio, DType.FLOAT32)),)


def narrow(dtype: DType) -> tuple[Step, ...]:
    """Clipped to ``dtype``'s range and cast."""
    low, high = dtype.range
    return steps.Clip(low, high), steps.Cast(dtype)


def requantize_steps(
    builder: Builder,
    source: Scale,
    target: Scale,
    found: DType,
    to: DType,
    rank: int,
    how: Rounding,
) -> tuple[Step, ...]:
    """From ``found`` at ``source`` to ``to`` at ``target``; ``rank`` is the tensor's."""
    if how.compute_dtype == "float32":
        require(to in NARROW, "dtype of a float32 requantization", to, ", ".join(NARROW))
        return (
            steps.Cast(DType.FLOAT32),
            *_subtract(builder, source.zero_point, DType.FLOAT32),
            *_rescale_float(builder, source, target, rank),
            *_add(builder, target.zero_point, DType.FLOAT32),
            steps.Round("floor" if how.rounding == "UPWARD" else "cut"),
            *narrow(to),
        )
    return (
        *((steps.Cast(DType.INT32),) if found is not DType.INT32 else ()),
        *_subtract(builder, source.zero_point),
        *_rescale_int(builder, source, target, how.rounding),
        *_add(builder, target.zero_point),
        *(narrow(to) if to is not DType.INT32 else ()),
    )


# --- Builders ----------------------------------------------------------------------------------


def lower_fixed_point_multiply(call: Call, lowering: Lowering) -> str:
    """fixed_point_multiply by one number, on int32, or on int64 as relay.quantize writes it."""
    dtype = lowering.type(call.args[0]).dtype
    multiplier, shift = int(call.attrs["multiplier"]), int(call.attrs["shift"])
    require(dtype in (DType.INT32, DType.INT64), "dtype", dtype, "int32, int64")
    if dtype is DType.INT64:
        require(multiplier != 2**30, "multiplier of an int64", "2**30", "another")
    return apply(call, lowering, call.args[0], *multiply_step(lowering.builder, multiplier, shift))


def lower_requantize(call: Call, lowering: Lowering) -> str:
    """qnn.requantize of int8, uint8 or int32, per tensor or along an axis."""
    data = lowering.type(call.args[0])
    to = fixed_type(call.type, "result").dtype
    allowed = (*NARROW, DType.INT32)
    require(data.dtype in allowed, "dtype", data.dtype, ", ".join(allowed))
    require(to in allowed, "dtype of the result", to, ", ".join(allowed))
    source = _axis_scale(call, 1, "input", len(data.shape))
    target = _scale(call, 3, "output")
    how = rounding_of(call.attrs, lowering.rounding)
    rank = len(data.shape)
    chain = requantize_steps(lowering.builder, source, target, data.dtype, to, rank, how)
    return apply(call, lowering, call.args[0], *chain, quant=target.qparams)


def lower_quantize(call: Call, lowering: Lowering) -> str:
    """qnn.quantize of float32: divided by the scale, rounded half away from zero."""
    data = lowering.type(call.args[0])
    require(data.dtype.is_float, "dtype", data.dtype, "float32")
    to = fixed_type(call.type, "result").dtype
    require(to in NARROW, "dtype of the result", to, ", ".join(NARROW))
    target = _axis_scale(call, 1, "output", len(data.shape))
    scale = _spread(target, len(data.shape))
    chain = (
        steps.Divide(operand=_number(lowering.builder, scale, DType.FLOAT32)),
        steps.Round(),
        *_add(lowering.builder, target.zero_point, DType.FLOAT32),
        *narrow(to),
    )
    return apply(call, lowering, call.args[0], *chain, quant=target.qparams)


def lower_dequantize(call: Call, lowering: Lowering) -> str:
    """qnn.dequantize of int8, uint8 or int32 to float32."""
    data = lowering.type(call.args[0])
    allowed = (*NARROW, DType.INT32)
    require(data.dtype in allowed, "dtype", data.dtype, ", ".join(allowed))
    source = _axis_scale(call, 1, "input", len(data.shape))
    scale = _spread(source, len(data.shape))
    chain = (
        *((steps.Cast(DType.INT32),) if data.dtype is not DType.INT32 else ()),
        *_subtract(lowering.builder, source.zero_point),
        steps.Cast(DType.FLOAT32),
        steps.Multiply(operand=_number(lowering.builder, scale, DType.FLOAT32)),
    )
    return apply(call, lowering, call.args[0], *chain)


def _spread(of: Scale, rank: int) -> Array:
    """The scales, shaped to broadcast along their axis."""
    if of.axis is None:
        return of.scale
    return of.scale.reshape(-1, *(1,) * (rank - of.axis - 1))


def lower_qnn_binary(step: type[Step]) -> Lower:
    """qnn.add, qnn.subtract: both sides at the output's scale, then added or subtracted."""

    def lower(call: Call, lowering: Lowering) -> str:
        left, right = _narrow_sides(call, lowering)
        target = _scale(call, 6, "output")
        how = rounding_of({}, lowering.rounding)
        require(how.compute_dtype == "int64", "compute_dtype", how.compute_dtype, "int64")
        chains = [
            (
                steps.Cast(DType.INT32),
                *_subtract(lowering.builder, side.zero_point),
                *_rescale_int(lowering.builder, side, target, how.rounding),
            )
            for side in (_scale(call, 2, "left side"), _scale(call, 4, "right side"))
        ]
        operand = Operand(lowering.tensor(right), chains[1])
        to = fixed_type(call.type, "result").dtype
        chain = (
            *chains[0],
            step(operand=operand),
            *_add(lowering.builder, target.zero_point),
            *narrow(to),
        )
        return apply(call, lowering, left, *chain, quant=target.qparams)

    return lower


def lower_qnn_multiply(call: Call, lowering: Lowering) -> str:
    """qnn.mul: the product of both sides less their zero points, at the output's scale."""
    left, right = _narrow_sides(call, lowering)
    sides = _scale(call, 2, "left side"), _scale(call, 4, "right side")
    target = _scale(call, 6, "output")
    product = Scale(np.asarray(sides[0].scale * sides[1].scale), 0)
    builder = lowering.builder
    wide = steps.Cast(DType.INT32)
    operand = Operand(lowering.tensor(right), (wide, *_subtract(builder, sides[1].zero_point)))
    to = fixed_type(call.type, "result").dtype
    rank = len(call.type.shape)
    how = rounding_of({}, lowering.rounding)
    chain = (
        wide,
        *_subtract(builder, sides[0].zero_point),
        steps.Multiply(operand=operand),
        *requantize_steps(builder, product, target, DType.INT32, to, rank, how),
    )
    return apply(call, lowering, left, *chain, quant=target.qparams)


def _narrow_sides(call: Call, lowering: Lowering) -> tuple[Expr, Expr]:
    left, right = call.args[:2]
    for side in (left, right):
        dtype = lowering.type(side).dtype
        require(dtype in NARROW, "dtype", dtype, ", ".join(NARROW))
    return left, right


def lower_qnn_concatenate(call: Call, lowering: Lowering) -> str:
    """qnn.concatenate: every part at the output's scale, then concatenated."""
    parts, scales, zero_points = call.args[:3]
    if not isinstance(parts, Tuple):
        raise Refusal("argument", "a tuple made elsewhere", "a tuple made here")
    assert isinstance(scales, Tuple)
    assert isinstance(zero_points, Tuple)
    target = _scale(call, 3, "output")
    how = rounding_of({}, lowering.rounding)
    rank = len(call.type.shape)
    inputs = []
    for part, scale, zero_point in zip(
        parts.fields, scales.fields, zero_points.fields, strict=True
    ):
        require(
            isinstance(scale, Constant) and isinstance(zero_point, Constant),
            "scales of the parts",
            "computed at run time",
            "constants",
        )
        assert isinstance(scale, Constant)
        assert isinstance(zero_point, Constant)
        source = Scale(scale.value.astype(np.float32).reshape(()), int(zero_point.value))
        inputs.append(_at_scale(lowering, part, source, target, rank, how))
    axis = int(call.attrs["axis"]) % rank
    return lowering.builder.add(
        Concatenate(axis), inputs, sources=sources(call), quant=target.qparams
    )


def _at_scale(
    lowering: Lowering, part: Expr, source: Scale, target: Scale, rank: int, how: Rounding
) -> str:
    """A part of a concatenation at the scale of the whole."""
    of = lowering.type(part)
    require(of.dtype in NARROW, "dtype", of.dtype, ", ".join(NARROW))
    if (source.scale, source.zero_point) == (target.scale, target.zero_point):
        return lowering.tensor(part)
    chain = requantize_steps(lowering.builder, source, target, of.dtype, of.dtype, rank, how)
    return lowering.builder.add(
        Elementwise(of.shape), [lowering.tensor(part)], chain, quant=target.qparams
    )
