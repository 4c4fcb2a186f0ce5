"""Operators between scales, lowered to steps. ``source.Rounding`` says whose arithmetic it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyai.builders import Lower, Lowering, OperatorRow, Scale, Sides
from tinyai.ir import NARROW, DType, Step
from tinyai.ops import reduce, steps
from tinyai.ops.elementwise import Elementwise, apply
from tinyai.ops.layout import Concatenate
from tinyai.ops.scales import (
    axis_scale_of,
    dequantize,
    fixed_point_step,
    multiply_step,
    require_compared,
    require_positive,
    scale_of,
    with_factors,
)
from tinyai.source import (
    Call,
    Constant,
    Expr,
    Refusal,
    Tuple,
    fixed_type,
    require,
    sources,
)

SHORT = (*NARROW, DType.INT16)
WIDE = (*SHORT, DType.INT32)


def _require_dtype(what: str, dtype: DType, allowed: tuple[DType, ...]) -> None:
    require(dtype in allowed, what, dtype, ", ".join(allowed))


def lower_fixed_point_multiply(call: Call, lowering: Lowering) -> str:
    """fixed_point_multiply by one number, on int32, or on int64 as relay.quantize writes it."""
    dtype = lowering.type(call["data"]).dtype
    multiplier, shift = int(call.attrs["multiplier"]), int(call.attrs["shift"])
    _require_dtype("dtype", dtype, (DType.INT32, DType.INT64))
    if dtype is DType.INT64:
        require(multiplier != 2**30, "multiplier of an int64", "2**30", "another")
    chain = multiply_step(lowering.builder, multiplier, shift)
    return apply(call, lowering, call["data"], *chain)


def lower_rescale(call: Call, lowering: Lowering) -> str:
    """rescale of int32 by a number, in fixed point as TFLite's kernels do it."""
    _require_dtype("dtype", lowering.type(call["data"]).dtype, (DType.INT32,))
    step = fixed_point_step(np.asarray(float(call.attrs["ratio"])), None, "twice")
    return apply(call, lowering, call["data"], step)


def lower_requantize(call: Call, lowering: Lowering) -> str:
    """requantize of integers, per tensor or along an axis."""
    data = lowering.type(call["data"])
    to = fixed_type(call.type, "result").dtype
    _require_dtype("dtype", data.dtype, (*WIDE, DType.INT64))
    _require_dtype("dtype of the result", to, WIDE)
    require_compared(lowering, data.dtype, to)
    rank = len(data.shape)
    source = with_factors(axis_scale_of(call, "input", rank), call["data"])
    target = scale_of(call, "output")
    how = lowering.arithmetic.of_operator(call.attrs)
    mean = call["data"]
    if how.divides_with_rescaling and isinstance(mean, Call) and mean.op == "mean":
        return _mean(call, mean, lowering, source, target)
    chain = how.requantize(lowering.builder, source, target, data.dtype, to, rank)
    value = call["data"]
    relu = _of_same_operator(call)
    if relu is not None:
        bounds = float(relu.attrs["low"]), float(relu.attrs["high"])
        limits = how.limits_after(bounds, source, target, data.dtype, to)
        if limits is not None:
            value, chain = relu["data"], chain + limits
    return apply(call, lowering, value, *chain, quant=target.qparams)


def _of_same_operator(requantize: Call) -> Call | None:
    """The clip that a requantization is of, where both are one operator of the source model."""
    clip = requantize["data"]
    same = isinstance(clip, Call) and clip.op == "clip" and clip.name == requantize.name != ""
    return clip if same and isinstance(clip, Call) else None


def _mean(call: Call, mean: Call, lowering: Lowering, source: Scale, target: Scale) -> str:
    """A mean and the requantization after it, which divides and rescales at once."""
    total, count = reduce.add_sum(mean, lowering)
    to = fixed_type(call.type, "result").dtype
    chain = lowering.arithmetic.mean(lowering.builder, source, target, count, to)
    shape = fixed_type(call.type, "result").shape
    names = (*sources(mean), *sources(call))
    return lowering.builder.add(Elementwise(shape), [total], chain, names, target.qparams)


def lower_quantize(call: Call, lowering: Lowering) -> str:
    """quantize of float32."""
    data = lowering.type(call["data"])
    _require_dtype("dtype", data.dtype, (DType.FLOAT32,))
    to = fixed_type(call.type, "result").dtype
    _require_dtype("dtype of the result", to, SHORT)
    require_compared(lowering, to)
    rank = len(data.shape)
    target = axis_scale_of(call, "output", rank)
    how = lowering.arithmetic.of_operator({})
    function = how.quantized_function(call, lowering, target, to)
    if function is not None:
        return function
    chain = how.quantize(lowering.builder, target, to, rank)
    return apply(call, lowering, call["data"], *chain, quant=target.qparams)


def lower_dequantize(call: Call, lowering: Lowering) -> str:
    """dequantize of int8, uint8, int16 or int32 to float32."""
    data = lowering.type(call["data"])
    _require_dtype("dtype", data.dtype, WIDE)
    require_compared(lowering, data.dtype)
    rank = len(data.shape)
    source = axis_scale_of(call, "input", rank)
    chain = dequantize(lowering.builder, source, data.dtype, rank)
    return apply(call, lowering, call["data"], *chain)


def lower_quantized_binary(step: type[Step]) -> Lower:
    """quantized_add, quantized_subtract, and quantized_multiply where ``step`` is Multiply."""

    def lower(call: Call, lowering: Lowering) -> str:
        left, right = call["left"], call["right"]
        for side in (left, right):
            _require_dtype("dtype", lowering.type(side).dtype, SHORT)
            require_compared(lowering, lowering.type(side).dtype)
        scales = scale_of(call, "left", "left side"), scale_of(call, "right", "right side")
        shapes = lowering.type(left).shape, lowering.type(right).shape
        few, many = lowering.type(left).elements, lowering.type(right).elements
        # What is broadcast, or else a constant, is the operand.
        narrower = few < many or (few == many and isinstance(left, Constant))
        swapped = narrower and step is not steps.Subtract
        if swapped:
            left, right, scales = right, left, scales[::-1]
        target = scale_of(call, "output")
        to = fixed_type(call.type, "result").dtype
        how = lowering.arithmetic.of_operator({})
        both = Sides(*scales, lowering.tensor(right), shapes, swapped)
        if step is steps.Multiply:
            # TVM multiplies in int32 and takes it to be free of overflow.
            ends, zeros = lowering.type(left).dtype.range, [side.zero_point for side in scales]
            one, other = (max(abs(end - zero) for end in ends) for zero in zeros)
            fits, found = one * other <= DType.INT32.range[1], " and ".join(map(str, zeros))
            require(fits, "zero points of a product", found, "such that products fit int32")
            chain = how.multiply(lowering.builder, both, target, to)
        else:
            chain = how.add(lowering.builder, both, target, to, step)
        return apply(call, lowering, left, *chain, quant=target.qparams)

    return lower


def lower_quantized_concatenate(call: Call, lowering: Lowering) -> str:
    """quantized_concatenate: every part at the output's scale, then concatenated."""
    parts, scales, zero_points = call["parts"], call["scales"], call["zero_points"]
    if not isinstance(parts, Tuple):
        raise Refusal("argument", "a tuple made elsewhere", "a tuple made here")
    target = scale_of(call, "output")
    rank = len(call.type.shape)
    inputs = []
    for part, scale, zero_point in zip(
        parts.fields, _numbers(scales), _numbers(zero_points), strict=True
    ):
        positive = require_positive(np.float32(scale), "scale of a part")
        inputs.append(_at_scale(lowering, part, Scale(positive, int(zero_point)), target))
    op = Concatenate(int(call.attrs["axis"]) % rank)
    return lowering.builder.add(op, inputs, sources=sources(call), quant=target.qparams)


def _numbers(values: Expr) -> list[Any]:
    """A tuple of constants, each one number."""
    fields = values.fields if isinstance(values, Tuple) else (values,)
    numbers = [each.value.reshape(-1) for each in fields if isinstance(each, Constant)]
    found = f"{len(numbers)} constants of {len(fields)}"
    single = len(numbers) == len(fields) and all(n.size == 1 for n in numbers)
    require(single, "scales of the parts", found, "a constant of one number for each part")
    return [n[0] for n in numbers]


def _at_scale(lowering: Lowering, part: Expr, source: Scale, target: Scale) -> str:
    """A part of a concatenation at the scale of the whole."""
    of = lowering.type(part)
    _require_dtype("dtype", of.dtype, SHORT)
    require_compared(lowering, of.dtype)
    if (source.scale, source.zero_point) == (target.scale, target.zero_point):
        return lowering.tensor(part)
    how = lowering.arithmetic.of_operator({})
    rank = len(of.shape)
    chain = how.requantize(lowering.builder, source, target, of.dtype, of.dtype, rank)
    return lowering.builder.add(
        Elementwise(of.shape), [lowering.tensor(part)], chain, quant=target.qparams
    )


SIDES = "left right left_scale left_zero_point right_scale right_zero_point"
INPUT, OUTPUT = "input_scale input_zero_point", "output_scale output_zero_point"
OPERATORS = {
    "requantize": OperatorRow(
        lower_requantize, f"data {INPUT} {OUTPUT}", "axis rounding compute_dtype"
    ),
    "quantize": OperatorRow(lower_quantize, f"data {OUTPUT}", "axis"),
    "dequantize": OperatorRow(lower_dequantize, f"data {INPUT}", "axis"),
    "quantized_add": OperatorRow(lower_quantized_binary(steps.Add), f"{SIDES} {OUTPUT}"),
    "quantized_subtract": OperatorRow(lower_quantized_binary(steps.Subtract), f"{SIDES} {OUTPUT}"),
    "quantized_multiply": OperatorRow(lower_quantized_binary(steps.Multiply), f"{SIDES} {OUTPUT}"),
    "quantized_concatenate": OperatorRow(
        lower_quantized_concatenate, f"parts scales zero_points {OUTPUT}", "axis"
    ),
    "rescale": OperatorRow(lower_rescale, "data", "ratio"),
    "fixed_point_multiply": OperatorRow(lower_fixed_point_multiply, "data", "multiplier shift"),
}
