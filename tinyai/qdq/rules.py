"""How each float operator between quantized values is written with integers.

``RULES`` has a row for each operator that computes: it makes integers on the grid of the
quantization after it. ``ACCUMULATORS`` are those that make int32 sums, with what may follow before
the sums are requantized. ``MOVES`` only move values or pick some, ``LIMITS`` bound them: both run
on integers after any rule, for they commute with rounding. ``ELEMENTWISE`` operators of one
quantized value stay float between dequantize and quantize, to become a table.

Every rule refuses what it cannot do with a reason (``tinyai.source.Refusal``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinyai.qdq.operands import (
    INT32,
    NARROW,
    Array,
    Grid,
    Integers,
    Move,
    View,
    again,
    dequantize,
    is_call,
    name_of,
    of,
    operator_name,
    quantize,
    requantize,
    reshaped,
    retyped,
    scalars,
    scale_and_zero,
    shape_of,
    tuple_of,
    with_dtype,
)
from tinyai.source import Call, Constant, Expr, Field, Refusal, Tuple, require
from tinyai.vocabulary import call as made
from tinyai.vocabulary import constant, signature

# To where float64 holds every integer.
EXACT = 2**52

Rule = Callable[[View, Call, Grid], Expr]
Accumulate = Callable[[View, Call], Integers]


# --- Accumulators: sums, before they are requantized --------------------------------------------
# They are int32; int64 where sums of int16 by these weights, and a bias, might not fit.


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
    """Operand of a product, which may be multiplied by a number: that is another scale."""
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
    """The accumulator ``product``."""
    scales = tuple(data.scales[0] * scale for scale in by.scales)
    return _roomy(Integers(product, scales, (0,), axis, largest=largest))


def _largest_sum(data: Integers, weights: Integers, axis: int) -> int:
    """Of products of int16 by constant weights, whose output channels are along ``axis``; of 8 bits
    nobody asks."""
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
    """Sums, and what has been added to them."""
    if sums.op not in STEPS:
        return again(sums, *sums.args, dtype="int64")
    below, *more = sums.args
    assert isinstance(below, Call)
    constants = (constant(each.value, "int64") for each in more if isinstance(each, Constant))
    return again(sums, _in_64_bits(below), *constants, dtype="int64")


def _require_8_bits(*values: Integers) -> None:
    """Of operators that have no integers of 16 bits."""
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
    """A convolution, as the operator ``quantized`` computes it. One dimension becomes two, the
    height 1."""

    def accumulate(view: View, call: Call) -> Integers:
        view.alone(call)
        attrs = _own(call, quantized)
        layout, kernel_layout = attrs["layout"], attrs["weight_layout"]
        plain = len(layout) == len(kernel_layout) <= 4 and attrs["out_layout"] in ("", layout)
        require(plain, "layouts", f"{layout}, {kernel_layout}", "no blocks of channels")
        data = _data(view, call["data"])
        weights = _weights(view, call["weight"], kernel_layout.index("O"))
        if quantized == "quantized_conv2d_transpose":
            _require_8_bits(data)
        largest = _largest_sum(data, weights, kernel_layout.index("O"))
        shape, added = shape_of(call), None
        if "H" not in layout:
            attrs, added = _in_two_dimensions(attrs), layout.index("W")
            data = replace(data, expr=_with_height(data.expr, added, call.name))
            weights = _kernel_with_height(weights, kernel_layout.index("W"))
            shape = _lengthened(shape, added)
        channels = attrs["layout"].index("C")
        # A grouped transposed convolution has scales for one group, which no operator takes.
        fits = len(weights.scales) in (1, shape[channels])
        require(fits, "scales of the weights", len(weights.scales), shape[channels])
        operands = data.expr, weights.expr, *_quantization(data, weights)
        product = made(quantized, of(shape, "int32"), *operands, name=call.name, **attrs)
        return replace(_sums(product, data, weights, channels, largest), added=added)

    return accumulate


def _own(call: Call, operator: str) -> dict[str, Any]:
    """The attributes of a call that ``operator`` has too."""
    known = signature(operator)
    assert known is not None
    return {name: call.attrs[name] for name in known.attributes}


def _in_two_dimensions(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a convolution or pooling along W as those of one along H and W."""
    wide = dict(attrs)
    for key in attrs.keys() & {"layout", "weight_layout", "out_layout"}:
        wide[key] = attrs[key].replace("W", "HW")
    for key in attrs.keys() & {"strides", "dilation", "kernel"}:
        wide[key] = (1, *attrs[key])
    before, after = attrs["padding"]
    wide["padding"] = (0, before, 0, after)
    return wide


def _with_height(value: Expr, at: int, name: str) -> Call:
    return reshaped(value, _lengthened(shape_of(value), at), name)


def _without_height(value: Expr, at: int, name: str) -> Call:
    shape = shape_of(value)
    return reshaped(value, (*shape[:at], *shape[at + 1 :]), name)


def _kernel_with_height(weights: Integers, at: int) -> Integers:
    assert isinstance(weights.expr, Constant)
    return replace(weights, expr=constant(np.expand_dims(weights.expr.value, at)))


def _lengthened(shape: tuple[int, ...], at: int | None) -> tuple[int, ...]:
    """``shape`` with a dimension of length 1 more, if it is to have one."""
    return shape if at is None else (*shape[:at], 1, *shape[at:])


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
    """A constant added to sums: rounded to the sums' scale."""
    view.alone(call)
    below, bias = call.args
    if view.is_constant(below):
        below, bias = bias, below
    sums = accumulator(view, below)
    shape = _lengthened(shape_of(call), sums.added)
    require(shape == sums.shape, "shape with bias", shape, sums.shape)
    values = _bias_values(view, bias, call)
    if sums.added is not None and values.ndim >= (behind := len(shape) - 1 - sums.added):
        values = np.expand_dims(values, values.ndim - behind)
    assert sums.axis is not None
    along = [len(shape) - values.ndim + d for d, size in enumerate(values.shape) if size > 1]
    by_channel = along in ([], [sums.axis])
    if by_channel:
        values = np.broadcast_to(values.reshape(-1), shape[sums.axis])
        scales = np.array(sums.scales)
    else:
        scales = sums.along_axis(sums.scales)
    steps = view.arithmetic.bias_steps(values, scales)
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


def _bias_values(view: View, bias: Expr, call: Call) -> Array:
    """The bias as it broadcasts against the sums."""
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
    last = last and sums.added is None
    require(last, "reshape of sums", f"{sums.shape} to {shape}", "channels that stay last")
    moved = again(call, sums.expr, dtype=sums.dtype)
    return replace(sums, expr=moved, axis=len(shape) - 1)


PRODUCTS: dict[str, Accumulate] = {
    **dict.fromkeys(("conv1d", "conv2d"), _convolution("quantized_conv2d")),
    "conv2d_transpose": _convolution("quantized_conv2d_transpose"),
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


# --- Rules: integers on the grid of the quantization --------------------------------------------


def _sums_rule(view: View, call: Call, grid: Grid) -> Expr:
    sums = accumulator(view, call)
    value = requantize(sums, grid, call.name)
    return value if sums.added is None else _without_height(value, sums.added, call.name)


def _binary(quantized: str) -> Rule:
    """A sum, difference or product; after a product, a constant joins the sums instead."""

    def rule(view: View, call: Call, grid: Grid) -> Expr:
        if call.op in STEPS and is_accumulator(view, call):
            return _sums_rule(view, call, grid)
        view.alone(call)
        operands: list[Integers] = []
        for arg in call.args:
            value = view.integers(arg)
            require(value.dtype != "int32", "dtype of an operand", "int32", "int8 or uint8")
            operands.append(value)
        # All have one dtype; an int16 among them makes them int16 until the result is there.
        wide = any(each.dtype == "int16" for each in operands)
        own = replace(grid, dtype="int16") if wide else grid
        operands = [with_dtype(each, own.dtype, call.name) for each in operands]
        exprs = [each.expr for each in operands]
        quantization = [part for each in operands for part in scale_and_zero(each.grid)]
        operands_of = (*exprs, *quantization, *scale_and_zero(own))
        result = made(quantized, retyped(call, own.dtype), *operands_of, name=call.name)
        return requantize(_on_grid(result, own), grid, call.name)

    return rule


def _concatenate(view: View, call: Call, grid: Grid) -> Expr:
    view.alone(call)
    whole = call["parts"]
    if not isinstance(whole, Tuple):
        raise Refusal("input", operator_name(whole), "a tuple")
    view.alone(whole)
    parts = [_as_part(view.integers(field), grid, call.name) for field in whole.fields]
    scales, zeros = zip(*(scale_and_zero(part.grid) for part in parts), strict=True)
    return made(
        "quantized_concatenate",
        retyped(call, grid.dtype),
        tuple_of(*(part.expr for part in parts)),
        tuple_of(*scales),
        tuple_of(*zeros),
        *scale_and_zero(grid),
        name=call.name,
        axis=int(call.attrs["axis"]),
    )


def _as_part(value: Integers, grid: Grid, name: str) -> Integers:
    """A part of a concatenation, of the dtype of the whole."""
    if "int16" in (value.dtype, grid.dtype) and value.dtype != grid.dtype:
        return _on_grid(requantize(value, grid, name), grid)
    return with_dtype(value, grid.dtype, name)


def _on_grid(value: Expr, grid: Grid) -> Integers:
    return Integers(value, (grid.scale,), (grid.zero_point,))


def _reduced(view: View, call: Call, grid: Grid) -> Expr:
    """A sum or average over whole axes.

    Of an average the count goes to the scale, but where a framework divides and rescales at once:
    its arithmetic needs to see that.
    """
    view.alone(call)
    value = view.integers(call["data"])
    count = math.prod(value.shape) // math.prod(shape_of(call))
    _require_int32(_span(value) * count)
    wide = _widened(value.expr, call)
    if is_call(call, "sum", "mean"):
        attrs = _own(call, "sum")
    else:
        if is_call(call, "adaptive_avg_pool1d"):
            _require_whole(call)
        layout = call.attrs["layout"]
        along = tuple(layout.index(axis) for axis in "HW" if axis in layout)
        attrs = {"axis": along, "keepdims": True, "exclude": False}
    if view.arithmetic.divides_with_rescaling and not is_call(call, "sum"):
        mean = made("mean", retyped(call, "int32"), wide, name=call.name, **attrs)
        return requantize(replace(value, expr=mean), grid, call.name)
    total = made("sum", retyped(call, "int32"), wide, name=call.name, **attrs)
    divisor = 1 if is_call(call, "sum") else count
    return _average(value.grid, total, divisor, count, grid, call)


def _span(value: Integers) -> int:
    """How far values may be from the zero point."""
    limits = np.iinfo(value.dtype)
    return int(limits.max) - int(limits.min)


def _widened(value: Expr, call: Call) -> Call:
    return made("cast", retyped(value, "int32"), value, name=call.name, dtype="int32")


def _require_whole(call: Call) -> None:
    """Refuse an adaptive pooling along one dimension that is not over all of it."""
    sizes = [int(size) for size in call.attrs["output_size"]]
    require(sizes == [1], f"output size of {call.spelled}", sizes, [1])


def _average(of: Grid, total: Expr, divisor: int, counted: int, grid: Grid, call: Call) -> Expr:
    """Requantize sums in which the zero point counts so often.

    The divisor goes to the output's scale, for ONNX Runtime forms the ratio so.
    """
    sums = Integers(total, (of.scale,), (of.zero_point * counted,))
    return requantize(sums, replace(grid, scale=grid.scale * divisor), call.name)


def _avg_pool(view: View, call: Call, grid: Grid) -> Expr:
    """An average over windows, in integers that every window's count divides.

    TVM cuts an integer average towards zero. So the values are multiplied first by the least common
    multiple of all counts: then there is nothing to cut.
    """
    view.alone(call)
    value, (attrs, added) = view.integers(call["data"]), _pool_attributes(call)
    grid_of = value.grid
    shape, out = (_lengthened(each, added) for each in (value.shape, shape_of(call)))
    counts = _window_counts(attrs, shape, out)
    multiple = math.lcm(*counts)
    _require_int32(_span(value) * multiple * max(counts))
    wide = value.expr if added is None else _with_height(value.expr, added, call.name)
    wide, counted = _widened(wide, call), multiple
    if attrs["count_include_pad"] and grid_of.zero_point:
        # Padding counts as the float 0, which has to be the integer 0 then.
        zero = constant(grid_of.zero_point, "int32")
        wide, counted = made("subtract", wide.type, wide, zero, name=call.name), 0
    if multiple > 1:
        wide = made("multiply", wide.type, wide, constant(multiple, "int32"), name=call.name)
    pooled = made("avg_pool2d", of(out, "int32"), wide, name=call.name, **attrs)
    result = _average(grid_of, pooled, multiple, counted, grid, call)
    return result if added is None else _without_height(result, added, call.name)


def _pool_attributes(call: Call) -> tuple[dict[str, Any], int | None]:
    """Attributes of a pooling in two dimensions, and which one of them it does not have."""
    attrs = _own(call, call.op)
    if not is_call(call, "avg_pool1d"):
        return attrs, None
    return _in_two_dimensions(attrs), attrs["layout"].index("W")


def _onnx_average(view: View, call: Call, grid: Grid, limits: list[Call]) -> Expr:
    """An average over windows as ONNX Runtime has it: of floats, between dequantize and quantize.

    Limits after it stay in between where they cut the grid, for then its kernel is another one.
    """
    view.alone(call)
    value, (attrs, added) = view.integers(call["data"]), _pool_attributes(call)
    if added is not None:
        value = replace(value, expr=_with_height(value.expr, added, call.name))
    result_type = of(_lengthened(shape_of(call), added), "float32")
    floats = dequantize(value, call.name)
    pooled = made("avg_pool2d", result_type, floats, name=call.name, **attrs)
    for limit in reversed(limits):
        low, high = _bounds(view, limit)
        if _cuts(grid, low, high):
            largest = float(np.finfo(np.float32).max)
            bounds = {"low": max(low, -largest), "high": min(high, largest)}
            pooled = made("clip", result_type, pooled, name=limit.name, **bounds)
    result = quantize(pooled, grid, call.name)
    return result if added is None else _without_height(result, added, call.name)


def _require_int32(largest: int) -> None:
    require(largest <= INT32.max, "sum of the average", f"up to {largest}", "an int32")


def _window_counts(attrs: dict[str, Any], shape: tuple[int, ...], out: tuple[int, ...]) -> set[int]:
    """Of how many values the windows of an average pooling take averages."""
    layout = attrs["layout"]
    top, left, bottom, right = attrs["padding"]
    found = []
    for place, (axis, before, after) in enumerate((("H", top, bottom), ("W", left, right))):
        at = layout.index(axis)
        window, stride, dilation = (attrs[k][place] for k in ("kernel", "strides", "dilation"))
        low, high = (-before, shape[at] + after) if attrs["count_include_pad"] else (0, shape[at])
        found.append(
            {
                sum(low <= first + tap * dilation < high for tap in range(window))
                for first in range(-before, out[at] * stride - before, stride)
            }
        )
    return {rows * columns for rows, columns in itertools.product(*found)} - {0}


AVERAGES = ("avg_pool1d", "avg_pool2d")
RULES: dict[str, Rule] = {
    **dict.fromkeys((*PRODUCTS, "bias_add"), _sums_rule),
    "divide": _sums_rule,
    "add": _binary("quantized_add"),
    "subtract": _binary("quantized_subtract"),
    "multiply": _binary("quantized_multiply"),
    "concatenate": _concatenate,
    **dict.fromkeys(AVERAGES, _avg_pool),
    **dict.fromkeys(("global_avg_pool2d", "adaptive_avg_pool1d"), _reduced),
    **dict.fromkeys(("mean", "sum"), _reduced),
}


# --- Moves: what also runs on integers as it is -------------------------------------------------


def _move(view: View, call: Call, grid: Grid, value: Expr) -> Expr:
    """The same operator on integers, further arguments (shapes, indices) as they became."""
    rest = (view.new[arg] for arg in call.args[1:])
    return again(call, value, *rest, dtype=value.type.dtype)


def _pad(view: View, call: Call, grid: Grid, value: Expr) -> Expr:
    padding = constant(grid.quantize(view.constant(call["value"])).reshape(()), grid.dtype)
    return again(call, value, padding, dtype=value.type.dtype)


def _resize(view: View, call: Call, grid: Grid, value: Expr) -> Expr:
    method, to = str(call.attrs["method"]), str(call.attrs.get("out_dtype", ""))
    require(method == "nearest_neighbor", "method", method, "nearest_neighbor")
    require(not to, "out_dtype", to, "none")
    return _move(view, call, grid, value)


def _max_pool1d(view: View, call: Call, grid: Grid, value: Expr) -> Expr:
    """By way of two dimensions, the height 1."""
    at = call.attrs["layout"].index("W")
    wide = _with_height(value, at, call.name)
    result = of(_lengthened(shape_of(call), at), value.type.dtype)
    if is_call(call, "adaptive_max_pool1d"):
        _require_whole(call)
        layouts = {"layout": call.attrs["layout"].replace("W", "HW"), "out_layout": ""}
        pooled = made("global_max_pool2d", result, wide, name=call.name, **layouts)
    else:
        attrs = _in_two_dimensions(_own(call, "max_pool2d"))
        pooled = made("max_pool2d", result, wide, name=call.name, **attrs)
    return _without_height(pooled, at, call.name)


MOVES: dict[str, Move] = {
    **dict.fromkeys(("reshape", "transpose", "strided_slice", "copy", "take", "tile"), _move),
    **dict.fromkeys(("depth_to_space", "space_to_depth", "layout_transform"), _move),
    **dict.fromkeys(("max_pool2d", "global_max_pool2d", "broadcast_to"), _move),
    **dict.fromkeys(("reverse", "repeat", "max", "min"), _move),
    **dict.fromkeys(("max_pool1d", "adaptive_max_pool1d"), _max_pool1d),
    "pad": _pad,
    "resize2d": _resize,
}


# --- Limits: bounds that round with the values --------------------------------------------------


def _clipped(value: Expr, grid: Grid, low: float, high: float, name: str) -> Expr:
    """Integers within two floats; nothing where the grid ends there."""
    if not _cuts(grid, low, high):
        return value
    first, last = map(float, _steps_of(grid, low, high))
    return made("clip", value.type, value, name=name, low=first, high=last)


def _steps_of(grid: Grid, low: float, high: float) -> tuple[int, int]:
    first, last = (int(grid.quantize(np.array(bound))) for bound in (low, high))
    return first, last


def _cuts(grid: Grid, low: float, high: float) -> bool:
    """Whether a grid has values outside of two floats."""
    limits = np.iinfo(grid.dtype)
    return _steps_of(grid, low, high) != (limits.min, limits.max)


def _bounds(view: View, call: Call) -> tuple[float, float]:
    """Between which floats an operator of ``LIMITS`` keeps its value."""
    if is_call(call, "relu"):
        return 0.0, math.inf
    if is_call(call, "clip"):
        return float(call.attrs["low"]), float(call.attrs["high"])
    place = _limit_place(view, call)
    value, of = call.args[1 - place], shape_of(call)
    require(
        shape_of(value) == of, f"shape of {call.spelled}", of, f"the value's, {shape_of(value)}"
    )
    bound = view.uniform(call.args[place])
    require(bound is not None, f"bound of {call.spelled}", "none or many", "one constant")
    assert bound is not None
    return (bound, math.inf) if is_call(call, "maximum") else (-math.inf, bound)


def _limit_place(view: View, call: Call) -> int:
    return 0 if view.is_constant(call.args[0]) else 1


LIMITS = ("relu", "clip", "maximum", "minimum")


# --- A quantization and what lies before it -----------------------------------------------------


def quantized(view: View, call: Call) -> Expr:
    """The integers that a quantize makes, without floats.

    Moves and limits are taken off from the end, the operator before them gets its rule, and they
    follow again on integers. After a float parameter of the model, only they do.
    """
    grid = view.grid(call)
    behind, core = _peel(view, call.args[0])
    if is_call(core, *AVERAGES) and view.arithmetic.averages_in_float:
        value = _onnx_average(view, core, grid, [each for each in behind if is_call(each, *LIMITS)])
    elif is_call(core, *RULES):
        value = RULES[core.op](view, core, grid)
    elif type(core) is Expr and behind:
        value = _again_on(view, call, view.new[core])
    else:
        known = is_call(core, "dequantize", *MOVES) or isinstance(core, Field)
        require(known, "operator", operator_name(core), "one with a rule for integers")
        last = core if not is_call(core, "dequantize") else behind[-1] if behind else call
        value = requantize(view.integers(core), grid, name_of(last))
    return _put_behind(view, behind, value, grid)


def _peel(view: View, expr: Expr) -> tuple[list[Call], Expr]:
    """Moves and limits from the end, last first, and what is before them.

    Moves of a quantized value stay with it: they run before its requantization.
    """
    behind: list[Call] = []
    while is_call(expr, *MOVES, *LIMITS) and not _is_quantized(view, expr):
        if is_call(expr, *LIMITS):
            _bounds(view, expr)
        view.alone(expr)
        behind.append(expr)
        place = 1 - _limit_place(view, expr) if is_call(expr, "maximum", "minimum") else 0
        expr = expr.args[place]
    return behind, expr


def _is_quantized(view: View, expr: Expr) -> bool:
    try:
        view.integers(expr)
    except Refusal:
        return False
    return True


def _put_behind(view: View, behind: list[Call], value: Expr, grid: Grid) -> Expr:
    for call in reversed(behind):
        if is_call(call, *LIMITS):
            value = _clipped(value, grid, *_bounds(view, call), call.name)
        else:
            value = view.move(call, value, grid)
    return value


# --- Chains that become tables ------------------------------------------------------------------

ELEMENTWISE = (
    *("abs", "negative", "sign", "ceil", "floor", "round", "trunc", "clip", "maximum", "minimum"),
    *("add", "subtract", "multiply", "divide", "power", "sqrt", "rsqrt"),
    *("exp", "log", "log2", "log10", "erf", "sin", "cos", "atan", "sigmoid", "tanh"),
    *("fast_exp", "fast_erf", "fast_tanh", "relu", "leaky_relu", "prelu", "function"),
)
SOFTMAX = ("softmax", "log_softmax", "fast_softmax")
# Of several quantized values, such as a sum of three branches: these have C for floats.
ARITHMETIC = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum"),
    *("clip", "round", "relu", "leaky_relu"),
)


def has_16_bits(view: View, calls: Iterable[Call]) -> bool:
    """Whether a function of one value may be of int16: a table of 65,536 values it has not."""
    return all(
        is_call(each, *ARITHMETIC)
        or (is_call(each, "prelu") and view.uniform(each["slope"]) is not None)
        for each in calls
    )


@dataclass(frozen=True)
class Function:
    """The float operators in front of a quantize that may stay, and its new expression."""

    calls: list[Call]
    expr: Expr


def function_of_values(view: View, call: Call) -> Function:
    """A quantize of a function of single values, of a softmax, or of float arithmetic on
    several values, which stays float.

    Moves in front of it and after it go to the integers; then nothing but the function is between
    dequantize and quantize, and no other function reads its dequantized values. Refuses any other
    operator there.
    """
    grid = view.grid(call)
    behind, root = _moves_behind(view, call.args[0])
    inside, leaves = _inside(view, root)
    if not all(is_call(each, *ARITHMETIC) for each in inside):
        # One that is dequantized for each of its readers is one.
        count = len({view.integers(leaf) for leaf in leaves})
        require(count == 1, "quantized inputs of the function", count, "one")
        known = (arg for each in inside for arg in each.args if isinstance(arg, Constant))
        shape = next((arg.type.shape for arg in known if view.uniform(arg) is None), ())
        require(not shape, "shape of the function's constant", shape, "one number")
    wide = "int16" in (grid.dtype, *(view.integers(leaf).dtype for leaf in leaves))
    require(not wide or has_16_bits(view, inside), "dtype of the function", "int16", "8 bits")
    own: set[Expr] = {*inside, *behind}
    alone = (is_call(leaf, "dequantize") and view.within(leaf, own) for leaf in leaves)
    if not behind and all(alone):
        return Function(inside, _again_on(view, call, view.new[root]))
    shared = [each for each in inside if not view.within(each, own)]
    require(not shared, "function with moves", "used as float32 too", "quantized only")
    new: dict[Expr, Expr] = {
        leaf: dequantize(view.integers(leaf), name_of(leaf)) for leaf in leaves
    }
    for each in inside:
        new[each] = _on_floats(view, each, new)
    return Function(inside, _put_behind(view, behind, _again_on(view, call, new[root]), grid))


def _again_on(view: View, call: Call, value: Expr) -> Call:
    """A quantize of another value; of its own value it is the same object."""
    if value is call["data"]:
        return call
    return quantize(value, view.grid(call), call.name)


def _moves_behind(view: View, expr: Expr) -> tuple[list[Call], Expr]:
    behind = []
    while is_call(expr, *MOVES):
        view.alone(expr)
        behind.append(expr)
        expr = expr.args[0]
    return behind, expr


def _inside(view: View, root: Expr) -> tuple[list[Call], list[Expr]]:
    """The operators of a function of values, in order, and the quantized values that it is of.
    Constants of many numbers are neither."""
    inside: set[Call] = set()
    leaves: set[Expr] = set()
    stack = [root]
    while stack:
        expr = stack.pop()
        if is_call(expr, *ELEMENTWISE) or (is_call(expr, *SOFTMAX) and expr is root):
            inside.add(expr)
            stack += [arg for arg in expr.args if view.uniform(arg) is None and arg not in inside]
        elif not isinstance(expr, Constant):
            view.integers(expr)
            leaves.add(expr)
    return sorted(inside, key=view.place), list(leaves)


def _on_floats(view: View, call: Call, new: dict[Expr, Expr]) -> Expr:
    """An operator of a function of values on other floats, constants as they are."""
    slope = view.uniform(call["slope"]) if is_call(call, "prelu") else None
    if slope is not None:  # which the shape of the values does not matter to
        return made("leaky_relu", call.type, new[call["data"]], name=call.name, alpha=slope)
    args = (new.get(arg, view.new[arg]) for arg in call.args)
    return again(call, *args, dtype=call.type.dtype)
