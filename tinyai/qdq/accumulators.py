"""Sums of products as integers, before they are requantized.

``PRODUCTS`` has a row for each operator that makes such sums, ``STEPS`` one for each that may
follow before the sums are requantized, ``ACCUMULATORS`` both. The sums are int32, or int64 where
sums of int16 by these weights, and a bias, might not fit. Every row refuses what it cannot do with
a reason (``tinyai.source.Refusal``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tinyai.qdq.operands import (
    INT32,
    NARROW,
    Array,
    Integers,
    View,
    again,
    is_call,
    of,
    operator_name,
    own_attributes,
    retyped,
    scalars,
    shape_of,
)
from tinyai.qdq.two_dimensions import of_images
from tinyai.source import Call, Constant, Expr, Refusal, require
from tinyai.vocabulary import call as made
from tinyai.vocabulary import constant

# To where float64 holds every integer.
EXACT = 2**52
Accumulate = Callable[[View, Call], Integers]


def accumulator(view: View, expr: Expr) -> Integers:
    """The sums that a float value stands for."""
    if not is_call(expr, *ACCUMULATORS):
        raise Refusal("accumulator", operator_name(expr), ", ".join(ACCUMULATORS))
    return ACCUMULATORS[expr.op](view, expr)


def is_accumulator(view: View, expr: Expr) -> bool:
    """Whether ``expr`` is a convolution or product of matrices, or a step after one."""
    while is_call(expr, *STEPS):
        variable = [arg for arg in expr.args if not view.is_constant(arg)]
        if len(variable) != 1:
            return False
        expr = variable[0]
    return is_call(expr, *PRODUCTS)


def _data(view: View, expr: Expr) -> Integers:
    """The integers of a product's operand. A number that multiplies it joins its scale."""
    factor = _factor(view, expr) if is_call(expr, "multiply", "divide") else None
    if factor is None:
        value = view.integers(expr)
        require(not value.per_channel, "scales of the data", len(value.scales), "one")
        return value
    view.alone(expr)
    value = _data(view, factor[0])
    return replace(value, scales=(value.scales[0] * factor[1],))


def _factor(view: View, call: Call) -> tuple[Expr, float] | None:
    """A value and the positive number that ``call`` multiplies it by, if that is what it does."""
    left, right = call["left"], call["right"]
    for value, other in ((left, right), (right, left)):
        number = view.uniform(other)
        if number is not None and 0 < number < math.inf and shape_of(value) == shape_of(call):
            if is_call(call, "multiply"):
                return value, number
            return (value, 1 / number) if other is right else None
    return None


def _weights(view: View, expr: Expr, axis: int) -> Integers:
    """Constant weights with one scale, or one for each output channel."""
    value = view.integers(expr)
    known = isinstance(value.expr, Constant) and value.dtype in NARROW
    require(known, "weights", "computed at run time", "quantized constants")
    fits = not value.per_channel or value.axis == axis
    require(fits, "axis of the weights' scales", value.axis, axis)
    return value


def _sums(product: Call, data: Integers, by: Integers, axis: int, largest: int = 0) -> Integers:
    """``product`` as integers with the products of the operands' scales."""
    scales = tuple(data.scales[0] * scale for scale in by.scales)
    return _roomy(Integers(product, scales, (0,), axis, largest=largest))


def _largest_sum(data: Integers, weights: Integers, axis: int) -> int:
    """A bound of the sums of int16 by constant weights, whose output channels are along ``axis``; 0
    for data of 8 bits, whose sums fit int32."""
    if data.dtype in NARROW:
        return 0
    require(data.zero_points == (0,), "zero point of int16", data.zero_points[0], 0)
    assert isinstance(weights.expr, Constant)
    zeros = weights.along_axis(weights.zero_points)
    steps = np.abs(weights.expr.value.astype(np.int64) - zeros)
    along = tuple(d for d in range(steps.ndim) if d != axis)
    return int(steps.sum(axis=along).max(initial=0)) << 15


def _roomy(sums: Integers) -> Integers:
    """The same sums, in 64 bits where 32 might not hold them."""
    if sums.dtype == "int64" or sums.largest <= INT32.max:
        return sums
    assert isinstance(sums.expr, Call)
    return replace(sums, expr=_in_64_bits(sums.expr))


def _in_64_bits(sums: Call) -> Call:
    """A product and the steps after it, with int64 results."""
    if sums.op not in STEPS:
        return again(sums, *sums.args, dtype="int64")
    below, *more = sums.args
    assert isinstance(below, Call)
    constants = (constant(each.value, "int64") for each in more if isinstance(each, Constant))
    return again(sums, _in_64_bits(below), *constants, dtype="int64")


def _require_8_bits(*values: Integers) -> None:
    """Refuses operands of 16 bits, for operators that have none."""
    for value in values:
        require(value.dtype in NARROW, "dtype of an operand", value.dtype, " or ".join(NARROW))


def _quantization(data: Integers, weights: Integers) -> tuple[Expr, ...]:
    """Zero points and scales in the order of quantized products."""
    return (
        scalars(data.zero_points, "int32"),
        scalars(weights.zero_points, "int32"),
        scalars(data.scales, "float32"),
        scalars(weights.scales, "float32"),
    )


def _convolution(quantized: str) -> Accumulate:
    """A convolution, as the operator ``quantized`` computes it along two dimensions, whether it
    has one, two or three (``two_dimensions.py``)."""

    def accumulate(view: View, call: Call) -> Integers:
        view.alone(call)
        attrs = own_attributes(call, quantized)
        layout, kernel_layout = attrs["layout"], attrs["weight_layout"]
        plain = len(layout) == len(kernel_layout) <= 5 and attrs["out_layout"] in ("", layout)
        require(plain, "layouts", f"{layout}, {kernel_layout}", "no blocks of channels")
        data = _data(view, call["data"])
        weights = _weights(view, call["weight"], kernel_layout.index("O"))
        if quantized == "quantized_conv2d_transpose":
            _require_8_bits(data)
        largest = _largest_sum(data, weights, kernel_layout.index("O"))
        attrs, integers, kernels, reshaping = of_images(
            call, attrs, data.expr, weights.expr, data.grid.zero_point
        )
        data, weights = replace(data, expr=integers), replace(weights, expr=kernels)
        shape = shape_of(call)
        if reshaping is not None:
            shape = reshaping.shape(shape)
            scales, zeros = (
                tuple(reshaping.channels(np.array(each)).tolist())
                for each in (weights.scales, weights.zero_points)
            )
            weights = replace(weights, scales=scales, zero_points=zeros)
        channels = attrs["layout"].index("C")
        # A grouped transposed convolution has scales for one group, which no operator takes.
        fits = len(weights.scales) in (1, shape[channels])
        require(fits, "scales of the weights", len(weights.scales), shape[channels])
        operands = data.expr, weights.expr, *_quantization(data, weights)
        product = made(quantized, of(shape, "int32"), *operands, name=call.name, **attrs)
        return replace(_sums(product, data, weights, channels, largest), reshaping=reshaping)

    return accumulate


def _dense(view: View, call: Call) -> Integers:
    view.alone(call)
    data, right = _data(view, call["data"]), call["weight"]
    if view.is_constant(right):
        weights = _weights(view, right, 0)
        largest = _largest_sum(data, weights, 0)
    else:
        weights = _data(view, right)
        _require_8_bits(data, weights)
        largest = 0
    operands = data.expr, weights.expr, *_quantization(data, weights)
    shape = shape_of(call)
    product = made("quantized_dense", of(shape, "int32"), *operands, name=call.name)
    return _sums(product, data, weights, len(shape) - 1, largest)


def _batch_matmul(view: View, call: Call) -> Integers:
    view.alone(call)
    require(not call.attrs["transpose_a"], "transpose_a", True, False)
    data, other = _data(view, call["data"]), _data(view, call["weight"])
    _require_8_bits(data, other)
    if not call.attrs["transpose_b"]:
        batch, rows, columns = other.shape
        turned = of((batch, columns, rows), other.dtype)
        right = made("transpose", turned, other.expr, name=call.name, axes=(0, 2, 1))
        other = replace(other, expr=right)
    operands = data.expr, other.expr, *_quantization(data, other)
    product = made("quantized_batch_matmul", retyped(call, "int32"), *operands, name=call.name)
    return _sums(product, data, other, 2)


def _bias(view: View, call: Call) -> Integers:
    """The sums with a constant added, which is rounded to their scale."""
    view.alone(call)
    below, bias = call.args
    if view.is_constant(below):
        below, bias = bias, below
    sums = accumulator(view, below)
    shape, values = shape_of(call), _bias_values(view, bias, call)
    if sums.reshaping is not None:
        shape, values = sums.reshaping.shape(shape), sums.reshaping.numbers(values, len(shape))
    require(shape == sums.shape, "shape with bias", shape, sums.shape)
    assert sums.axis is not None
    along = [len(shape) - values.ndim + d for d, size in enumerate(values.shape) if size > 1]
    by_channel = along in ([], [sums.axis])
    if by_channel:
        values = np.broadcast_to(values.reshape(-1), shape[sums.axis])
        scales = np.array(sums.scales)
    else:
        scales = sums.along_axis(sums.scales)
    steps = view.arithmetic.bias_steps(values, scales)
    own = _own_scales(view, bias) if by_channel else None
    if own is not None and sums.reshaping is not None:
        own = sums.reshaping.channels(own)
    if own is not None and bool((own == scales.astype(np.float32)).all()):
        steps = np.rint(values / own)  # its integers: the product of the scales is no float32
    largest, most = np.abs(steps).max(initial=0), EXACT if sums.largest else INT32.max
    require(bool(largest <= most), "bias in steps of the sums", largest, f"at most {most}")
    steps = steps.astype(np.int64)
    if sums.largest:
        sums = _roomy(replace(sums, largest=sums.largest + int(largest)))
    bias, of_sums = constant(steps, sums.dtype), sums.expr.type
    if by_channel:
        total = made("bias_add", of_sums, sums.expr, bias, name=call.name, axis=sums.axis)
    else:
        total = made("add", of_sums, sums.expr, bias, name=call.name)
    return replace(sums, expr=total)


def _own_scales(view: View, bias: Expr) -> Array | None:
    """The scales that a bias is quantized with, if it is one of integers."""
    while is_call(bias, "reshape"):
        bias = bias["data"]
    if not is_call(bias, "dequantize"):
        return None
    return np.asarray(view.constant(bias["input_scale"]), np.float64).reshape(-1)


def _bias_values(view: View, bias: Expr, call: Call) -> Array:
    """The bias in a shape that broadcasts with the sums."""
    values = view.constant(bias).astype(np.float64)
    if is_call(call, "bias_add"):
        rank = len(shape_of(call))
        axis = int(call.attrs["axis"]) % rank
        values = values.reshape([-1 if d == axis else 1 for d in range(rank)])
    return values


def _scaled(view: View, call: Call) -> Integers:
    """Sums times a positive number: the number joins their scale, by way of the data's."""
    view.alone(call)
    factor = _factor(view, call)
    if factor is None:
        raise Refusal("factor of the sums", "no positive number", "one positive number")
    sums = accumulator(view, factor[0])
    assert isinstance(sums.expr, Call)
    scales = tuple(scale * factor[1] for scale in sums.scales)
    return replace(sums, expr=_with_larger_data(sums.expr, factor[1]), scales=scales)


def _with_larger_data(sums: Call, factor: float) -> Call:
    """The same sums of data whose scale is ``factor`` times as large: some arithmetics start from
    the scales of a product's operands, not from that of its sums."""
    if sums.op in STEPS:
        below, *more = sums.args
        assert isinstance(below, Call)
        return again(sums, _with_larger_data(below, factor), *more, dtype=sums.type.dtype)
    scale = sums["data_scale"]
    assert isinstance(scale, Constant)
    larger = constant(scale.value * np.float64(factor), "float32")
    args = (larger if arg is scale else arg for arg in sums.args)
    return again(sums, *args, dtype=sums.type.dtype)


def _reshaped(view: View, call: Call) -> Integers:
    """Sums in another shape, with the channels last as before."""
    view.alone(call)
    sums, shape = accumulator(view, call["data"]), shape_of(call)
    last = sums.axis == len(sums.shape) - 1 and shape[-1:] == sums.shape[-1:]
    last = last and sums.reshaping is None
    require(last, "reshape of sums", f"{sums.shape} to {shape}", "channels that stay last")
    moved = again(call, sums.expr, dtype=sums.dtype)
    return replace(sums, expr=moved, axis=len(shape) - 1)


PRODUCTS: dict[str, Accumulate] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution("quantized_conv2d")),
    **dict.fromkeys(
        ("conv2d_transpose", "conv3d_transpose"), _convolution("quantized_conv2d_transpose")
    ),
    "dense": _dense,
    "batch_matmul": _batch_matmul,
}
STEPS: dict[str, Accumulate] = {
    "bias_add": _bias,
    "add": _bias,
    "multiply": _scaled,
    "divide": _scaled,
    "reshape": _reshaped,
}
ACCUMULATORS = PRODUCTS | STEPS
