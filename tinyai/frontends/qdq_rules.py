"""How each float operator between quantized values is written with integers.

``RULES`` has a row for each operator that computes: it makes integers on the grid of the
quantization behind it. ``ACCUMULATORS`` are those that make int32 sums, with what may follow before
the sums are requantized. ``MOVES`` only move values or pick some, ``LIMITS`` bound them: both run
on integers behind any rule, for they commute with rounding. ``ELEMENTWISE`` operators of one
quantized value stay float between dequantize and quantize, to become a table.

Every rule refuses what it cannot do with a reason (``tinyai.source.Refusal``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relay

from tinyai.frontends.qdq_values import (
    INT32,
    RESHAPES,
    Array,
    Grid,
    Integers,
    Move,
    View,
    again,
    dequantize,
    is_call,
    operator_name,
    quantize,
    requantize,
    scalars,
    shape_of,
    spanned,
    with_dtype,
)
from tinyai.frontends.relay_source import attributes
from tinyai.source import Refusal, require

Rule = Callable[[View, relay.Call, Grid], relay.Expr]
Accumulate = Callable[[View, relay.Call], Integers]


# --- Accumulators: int32 sums, before they are requantized --------------------------------------


def accumulator(view: View, expr: relay.Expr) -> Integers:
    """The int32 sums that a float value stands for."""
    known = is_call(expr) and expr.op.name in ACCUMULATORS
    require(known, "accumulator", operator_name(expr), ", ".join(ACCUMULATORS))
    return ACCUMULATORS[expr.op.name](view, expr)


def is_accumulator(view: View, expr: relay.Expr) -> bool:
    """Whether ``expr`` is a convolution or product of matrices, or a step behind one."""
    while is_call(expr, *STEPS):
        variable = [arg for arg in expr.args if not view.is_constant(arg)]
        if len(variable) != 1:
            return False
        expr = variable[0]
    return is_call(expr, *PRODUCTS)


def _data(view: View, expr: relay.Expr) -> Integers:
    """Operand of a product, which may be multiplied by a number: that is another scale."""
    factor = _factor(view, expr) if is_call(expr, "multiply", "divide") else None
    if factor is None:
        value = view.integers(expr)
        require(not value.per_channel, "scales of the data", len(value.scales), "one")
        return value
    view.alone(expr)
    value = _data(view, factor[0])
    return replace(value, scales=(value.scales[0] * factor[1],))


def _factor(view: View, call: relay.Call) -> tuple[relay.Expr, float] | None:
    """A value and the positive number that ``call`` multiplies it by, if that is what it does."""
    left, right = call.args
    for value, other in ((left, right), (right, left)):
        number = view.uniform(other)
        if number is not None and 0 < number < math.inf and shape_of(value) == shape_of(call):
            if is_call(call, "multiply"):
                return value, number
            return (value, 1 / number) if other.same_as(right) else None
    return None


def _weights(view: View, expr: relay.Expr, axis: int) -> Integers:
    """Constant weights with one scale, or one for each output channel."""
    value = view.integers(expr)
    constant = isinstance(value.expr, relay.Constant) and value.dtype != "int32"
    require(constant, "weights", "computed at run time", "quantized constants")
    fits = not value.per_channel or value.axis == axis
    require(fits, "axis of the weights' scales", value.axis, axis)
    return value


def _sums(call: relay.Call, like: relay.Call, data: Integers, by: Integers, axis: int) -> Integers:
    """The accumulator ``call`` under the name of the float operator ``like``."""
    scales = tuple(data.scales[0] * scale for scale in by.scales)
    return Integers(spanned(call, like.span), "int32", shape_of(like), scales, (0,), axis)


def _quantization(data: Integers, weights: Integers) -> tuple[relay.Expr, ...]:
    """Zero points and scales in the order of Relay's QNN products."""
    return (
        scalars(data.zero_points, "int32"),
        scalars(weights.zero_points, "int32"),
        scalars(data.scales, "float32"),
        scalars(weights.scales, "float32"),
    )


def _convolution(make: Callable[..., relay.Call], kernel_axis: str) -> Accumulate:
    """A convolution, as ``make`` of ``relay.qnn.op`` computes it. The kernel's layout names its
    output channels ``kernel_axis``. One dimension becomes two, the height 1."""

    def accumulate(view: View, call: relay.Call) -> Integers:
        view.alone(call)
        attrs = attributes(call.attrs)
        layout, kernel_layout = attrs["data_layout"], attrs["kernel_layout"]
        plain = len(layout) == len(kernel_layout) <= 4 and attrs["out_layout"] in ("", layout)
        require(plain, "layouts", f"{layout}, {kernel_layout}", "no blocks of channels")
        data = _data(view, call.args[0])
        weights = _weights(view, call.args[1], kernel_layout.index(kernel_axis))
        shape, added = shape_of(call), None
        if "H" not in layout:
            attrs, added = _in_two_dimensions(attrs), layout.index("W")
            data = replace(data, expr=_with_height(data.expr, added, call.span))
            weights = _kernel_with_height(weights, kernel_layout.index("W"))
            shape = _lengthened(shape, added)
        layout, kernel_layout = attrs["data_layout"], attrs["kernel_layout"]
        channels = layout.index("C")
        attrs["channels"] = shape[channels]
        # A grouped transposed convolution has scales for one group, which QNN does not take.
        fits = len(weights.scales) in (1, attrs["channels"])
        require(fits, "scales of the weights", len(weights.scales), attrs["channels"])
        attrs["kernel_size"] = tuple(weights.shape[kernel_layout.index(d)] for d in "HW")
        attrs["out_dtype"] = "int32"
        product = make(data.expr, weights.expr, *_quantization(data, weights), **attrs)
        sums = _sums(product, call, data, weights, channels)
        return replace(sums, shape=shape, added=added)

    return accumulate


def _in_two_dimensions(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes of a convolution or pooling along W as those of one along H and W."""
    wide = dict(attrs)
    for key in attrs.keys() & {"layout", "data_layout", "kernel_layout", "out_layout"}:
        wide[key] = attrs[key].replace("W", "HW")
    for key in attrs.keys() & {"strides", "dilation", "pool_size", "kernel_size"}:
        wide[key] = (1, *attrs[key])
    pads = attrs["padding"]
    wide["padding"] = (0, pads[0], 0, pads[-1])
    return wide


def _with_height(value: relay.Expr, at: int, span: Any) -> relay.Expr:
    return spanned(relay.expand_dims(value, at), span)


def _without_height(value: relay.Expr, at: int, span: Any) -> relay.Expr:
    return spanned(relay.squeeze(value, [at]), span)


def _kernel_with_height(weights: Integers, at: int) -> Integers:
    values = np.expand_dims(weights.expr.data.numpy(), at)
    expr = relay.Constant(tvm.nd.array(values), weights.expr.span)
    return replace(weights, expr=expr, shape=values.shape)


def _lengthened(shape: tuple[int, ...], at: int | None) -> tuple[int, ...]:
    """``shape`` with a dimension of length 1 more, if it is to have one."""
    return shape if at is None else (*shape[:at], 1, *shape[at:])


def _dense(view: View, call: relay.Call) -> Integers:
    view.alone(call)
    data, (_, right) = _data(view, call.args[0]), call.args
    constant = view.is_constant(right)
    weights = _weights(view, right, 0) if constant else _data(view, right)
    shape = shape_of(call)
    product = relay.qnn.op.dense(
        data.expr, weights.expr, *_quantization(data, weights), units=shape[-1]
    )
    return _sums(product, call, data, weights, len(shape) - 1)


def _batch_matmul(view: View, call: relay.Call) -> Integers:
    view.alone(call)
    require(not call.attrs.transpose_a, "transpose_a", True, False)
    data, other = _data(view, call.args[0]), _data(view, call.args[1])
    right = other.expr
    if not call.attrs.transpose_b:
        right = spanned(relay.transpose(right, (0, 2, 1)), call.span)
    product = relay.qnn.op.batch_matmul(data.expr, right, *_quantization(data, other))
    return _sums(product, call, data, other, 2)


def _bias(view: View, call: relay.Call) -> Integers:
    """A constant added to sums: rounded to the sums' scale, as ONNX's own bias is."""
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
    if along not in ([], [sums.axis]):
        steps = _bias_steps(values, sums.along_axis(sums.scales))
        total = relay.add(sums.expr, relay.const(steps, "int32"))
    else:
        wide = np.broadcast_to(values.reshape(-1), shape[sums.axis])
        steps = _bias_steps(wide, np.array(sums.scales))
        total = relay.nn.bias_add(sums.expr, relay.const(steps, "int32"), axis=sums.axis)
    return replace(sums, expr=spanned(total, call.span))


def _bias_values(view: View, bias: relay.Expr, call: relay.Call) -> Array:
    """The bias as it broadcasts against the sums."""
    values = view.constant(bias).astype(np.float64)
    if is_call(call, "nn.bias_add"):
        rank = len(shape_of(call))
        axis = int(call.attrs.axis) % rank
        values = values.reshape([-1 if d == axis else 1 for d in range(rank)])
    return values


def _bias_steps(values: Array, scales: Array) -> Array:
    steps = np.rint(values / scales)
    largest = np.abs(steps).max()
    require(bool(largest <= INT32.max), "bias in steps of the sums", largest, "an int32")
    return steps.astype(np.int32)


def _scaled(view: View, call: relay.Call) -> Integers:
    """Sums times a positive number: the number joins their scale."""
    view.alone(call)
    factor = _factor(view, call)
    if factor is None:
        raise Refusal("factor of the sums", "no positive number", "one positive number")
    sums = accumulator(view, factor[0])
    return replace(sums, scales=tuple(scale * factor[1] for scale in sums.scales))


def _reshaped(view: View, call: relay.Call) -> Integers:
    """Sums in another shape, with the channels last as before."""
    view.alone(call)
    sums, shape = accumulator(view, call.args[0]), shape_of(call)
    last = sums.axis == len(sums.shape) - 1 and shape[-1:] == sums.shape[-1:]
    last = last and sums.added is None
    require(last, "reshape of sums", f"{sums.shape} to {shape}", "channels that stay last")
    return replace(sums, expr=again(call, sums.expr), shape=shape, axis=len(shape) - 1)


PRODUCTS: dict[str, Accumulate] = {
    **dict.fromkeys(("nn.conv1d", "nn.conv2d"), _convolution(relay.qnn.op.conv2d, "O")),
    "nn.conv2d_transpose": _convolution(relay.qnn.op.conv2d_transpose, "O"),
    "nn.dense": _dense,
    "nn.batch_matmul": _batch_matmul,
}
STEPS: dict[str, Accumulate] = {
    "nn.bias_add": _bias,
    "add": _bias,
    "multiply": _scaled,
    "divide": _scaled,
    "reshape": _reshaped,
}
ACCUMULATORS = PRODUCTS | STEPS


# --- Rules: integers on the grid of the quantization --------------------------------------------


def _sums_rule(view: View, call: relay.Call, grid: Grid) -> relay.Expr:
    sums = accumulator(view, call)
    value = requantize(sums, grid, call.span)
    return value if sums.added is None else _without_height(value, sums.added, call.span)


def _binary(make: Callable[..., relay.Call]) -> Rule:
    """``qnn.add`` and its sisters; behind a product, a constant joins the sums instead."""

    def rule(view: View, call: relay.Call, grid: Grid) -> relay.Expr:
        if call.op.name in STEPS and is_accumulator(view, call):
            return _sums_rule(view, call, grid)
        view.alone(call)
        operands: list[Any] = []
        for arg in call.args:
            value = view.integers(arg)
            require(value.dtype != "int32", "dtype of an operand", "int32", "int8 or uint8")
            operands.append(with_dtype(value, grid.dtype, call.span))
        quantization = [
            part
            for each in operands
            for part in (
                relay.const(each.grid.scale, "float32"),
                relay.const(each.grid.zero_point, "int32"),
            )
        ]
        out = relay.const(grid.scale, "float32"), relay.const(grid.zero_point, "int32")
        exprs = [each.expr for each in operands]
        return spanned(make(*exprs, *quantization, *out), call.span)

    return rule


def _concatenate(view: View, call: relay.Call, grid: Grid) -> relay.Expr:
    view.alone(call)
    require(isinstance(call.args[0], relay.Tuple), "input", operator_name(call.args[0]), "a tuple")
    view.alone(call.args[0])
    parts = [
        with_dtype(view.integers(field), grid.dtype, call.span) for field in call.args[0].fields
    ]
    joined = relay.qnn.op.concatenate(
        relay.Tuple([part.expr for part in parts], call.args[0].span),
        relay.Tuple([relay.const(part.grid.scale, "float32") for part in parts]),
        relay.Tuple([relay.const(part.grid.zero_point, "int32") for part in parts]),
        relay.const(grid.scale, "float32"),
        relay.const(grid.zero_point, "int32"),
        axis=int(call.attrs.axis),
    )
    return spanned(joined, call.span)


def _reduced(view: View, call: relay.Call, grid: Grid) -> relay.Expr:
    """A sum or average over whole axes: the sum, with the average's count in the scale."""
    view.alone(call)
    value = view.integers(call.args[0])
    count = math.prod(value.shape) // math.prod(shape_of(call))
    _require_int32(255 * count)
    wide = spanned(relay.cast(value.expr, "int32"), call.span)
    if is_call(call, "nn.adaptive_avg_pool1d"):
        _require_whole(call)
        total = relay.sum(wide, [str(call.attrs.layout).index("W")], keepdims=True)
    elif is_call(call, "nn.global_avg_pool2d"):
        layout = str(call.attrs.layout)
        total = relay.sum(wide, [layout.index("H"), layout.index("W")], keepdims=True)
    else:
        attrs = attributes(call.attrs)
        total = relay.sum(wide, **{key: attrs[key] for key in ("axis", "keepdims", "exclude")})
    divisor = 1 if is_call(call, "sum") else count
    return _average(value.grid, spanned(total, call.span), divisor, count, grid, call)


def _require_whole(call: relay.Call) -> None:
    """Refuse an adaptive pooling along one dimension that is not over all of it."""
    sizes = [int(size) for size in call.attrs.output_size]
    require(sizes == [1], f"output size of {call.op.name}", sizes, [1])


def _average(
    of: Grid, total: relay.Expr, divisor: int, counted: int, grid: Grid, call: relay.Call
) -> relay.Expr:
    """Requantize sums in which the zero point counts so often.

    The divisor goes to the output's scale, for ONNX Runtime forms the ratio so.
    """
    sums = Integers(total, "int32", shape_of(call), (of.scale,), (of.zero_point * counted,))
    return requantize(sums, replace(grid, scale=grid.scale * divisor), call.span)


def _avg_pool(view: View, call: relay.Call, grid: Grid) -> relay.Expr:
    """An average over windows, in integers that every window's count divides.

    TVM cuts an integer average towards zero. So the values are multiplied first by the least common
    multiple of all counts: then there is nothing to cut.
    """
    view.alone(call)
    value, (attrs, added) = view.integers(call.args[0]), _pool_attributes(call)
    of = value.grid
    shape, out = (_lengthened(each, added) for each in (value.shape, shape_of(call)))
    counts = _window_counts(attrs, shape, out)
    multiple = math.lcm(*counts)
    _require_int32(255 * multiple * max(counts))
    wide = value.expr if added is None else _with_height(value.expr, added, call.span)
    wide = spanned(relay.cast(wide, "int32"), call.span)
    counted = multiple
    if attrs["count_include_pad"] and of.zero_point:
        # Padding counts as the float 0, which has to be the integer 0 then.
        wide = relay.subtract(wide, relay.const(of.zero_point, "int32"))
        wide, counted = spanned(wide, call.span), 0
    if multiple > 1:
        wide = spanned(relay.multiply(wide, relay.const(multiple, "int32")), call.span)
    pooled = spanned(relay.nn.avg_pool2d(wide, **attrs), call.span)
    result = _average(of, pooled, multiple, counted, grid, call)
    return result if added is None else _without_height(result, added, call.span)


def _pool_attributes(call: relay.Call) -> tuple[dict[str, Any], int | None]:
    """Attributes of a pooling in two dimensions, and which one of them it does not have."""
    attrs = attributes(call.attrs)
    if not is_call(call, "nn.avg_pool1d"):
        return attrs, None
    return _in_two_dimensions(attrs), attrs["layout"].index("W")


def _onnx_average(view: View, call: relay.Call, grid: Grid, limits: list[relay.Call]) -> relay.Expr:
    """An average over windows as ONNX Runtime has it: of floats, between dequantize and quantize.

    Limits behind it stay in between where they cut the grid, for then its kernel is another one.
    """
    view.alone(call)
    value, (attrs, added) = view.integers(call.args[0]), _pool_attributes(call)
    if added is not None:
        value = replace(value, expr=_with_height(value.expr, added, call.span))
    pooled = relay.nn.avg_pool2d(dequantize(value, call.span), **attrs)
    pooled = spanned(pooled, call.span)
    for limit in reversed(limits):
        low, high = _bounds(view, limit)
        if _cuts(grid, low, high):
            largest = float(np.finfo(np.float32).max)
            pooled = relay.clip(pooled, max(low, -largest), min(high, largest))
            pooled = spanned(pooled, limit.span)
    result = quantize(pooled, grid, call.span)
    return result if added is None else _without_height(result, added, call.span)


def _require_int32(largest: int) -> None:
    require(largest <= INT32.max, "sum of the average", f"up to {largest}", "an int32")


def _window_counts(attrs: dict[str, Any], shape: tuple[int, ...], out: tuple[int, ...]) -> set[int]:
    """Of how many values the windows of an ``nn.avg_pool2d`` take averages."""
    layout = attrs["layout"]
    pads = attrs["padding"]
    top, left, bottom, right = (
        pads if len(pads) == 4 else (*pads, *pads) if len(pads) == 2 else (pads * 4)
    )
    found = []
    for place, (axis, before, after) in enumerate((("H", top, bottom), ("W", left, right))):
        at = layout.index(axis)
        window, stride, dilation = (attrs[k][place] for k in ("pool_size", "strides", "dilation"))
        low, high = (-before, shape[at] + after) if attrs["count_include_pad"] else (0, shape[at])
        found.append(
            {
                sum(low <= first + tap * dilation < high for tap in range(window))
                for first in range(-before, out[at] * stride - before, stride)
            }
        )
    return {rows * columns for rows, columns in itertools.product(*found)} - {0}


AVERAGES = ("nn.avg_pool1d", "nn.avg_pool2d")
RULES: dict[str, Rule] = {
    **dict.fromkeys((*PRODUCTS, "nn.bias_add"), _sums_rule),
    "divide": _sums_rule,
    "add": _binary(relay.qnn.op.add),
    "subtract": _binary(relay.qnn.op.subtract),
    "multiply": _binary(relay.qnn.op.mul),
    "concatenate": _concatenate,
    **dict.fromkeys(AVERAGES, _avg_pool),
    **dict.fromkeys(("nn.global_avg_pool2d", "nn.adaptive_avg_pool1d"), _reduced),
    **dict.fromkeys(("mean", "sum"), _reduced),
}


# --- Moves: what also runs on integers as it is -------------------------------------------------


def _move(view: View, call: relay.Call, grid: Grid, value: relay.Expr) -> relay.Expr:
    """The same operator on integers, further arguments (shapes, indices) as they became."""
    return again(call, value, *(view.new[arg] for arg in call.args[1:]))


def _pad(view: View, call: relay.Call, grid: Grid, value: relay.Expr) -> relay.Expr:
    padding = view.constant(call.args[1])
    return again(call, value, relay.const(grid.quantize(padding).reshape(()), grid.dtype))


def _resize(view: View, call: relay.Call, grid: Grid, value: relay.Expr) -> relay.Expr:
    method = str(call.attrs.method)
    require(method == "nearest_neighbor", "method", method, "nearest_neighbor")
    require(not str(call.attrs.out_dtype), "out_dtype", call.attrs.out_dtype, "none")
    return _move(view, call, grid, value)


def _max_pool1d(view: View, call: relay.Call, grid: Grid, value: relay.Expr) -> relay.Expr:
    """By way of two dimensions, the height 1."""
    attrs = attributes(call.attrs)
    at = attrs["layout"].index("W")
    wide = _with_height(value, at, call.span)
    if is_call(call, "nn.adaptive_max_pool1d"):
        _require_whole(call)
        pooled = relay.nn.global_max_pool2d(wide, layout=attrs["layout"].replace("W", "HW"))
    else:
        pooled = relay.nn.max_pool2d(wide, **_in_two_dimensions(attrs))
    return _without_height(spanned(pooled, call.span), at, call.span)


MOVES: dict[str, Move] = {
    **dict.fromkeys((*RESHAPES, "transpose", "strided_slice", "copy", "take", "tile"), _move),
    **dict.fromkeys(("nn.depth_to_space", "nn.space_to_depth", "layout_transform"), _move),
    **dict.fromkeys(("nn.max_pool2d", "nn.global_max_pool2d", "broadcast_to"), _move),
    **dict.fromkeys(("reverse", "repeat", "max", "min"), _move),
    **dict.fromkeys(("nn.max_pool1d", "nn.adaptive_max_pool1d"), _max_pool1d),
    "nn.pad": _pad,
    "image.resize2d": _resize,
}


# --- Limits: bounds that round with the values --------------------------------------------------


def _clipped(value: relay.Expr, grid: Grid, low: float, high: float, span: Any) -> relay.Expr:
    """Integers within two floats; nothing where the grid ends there."""
    if not _cuts(grid, low, high):
        return value
    return spanned(relay.clip(value, *_steps_of(grid, low, high)), span)


def _steps_of(grid: Grid, low: float, high: float) -> tuple[int, int]:
    first, last = (int(grid.quantize(np.array(bound))) for bound in (low, high))
    return first, last


def _cuts(grid: Grid, low: float, high: float) -> bool:
    """Whether a grid has values outside of two floats."""
    limits = np.iinfo(grid.dtype)
    return _steps_of(grid, low, high) != (limits.min, limits.max)


def _bounds(view: View, call: relay.Call) -> tuple[float, float]:
    """Between which floats an operator of ``LIMITS`` keeps its value."""
    if is_call(call, "nn.relu"):
        return 0.0, math.inf
    if is_call(call, "clip"):
        return float(call.attrs.a_min), float(call.attrs.a_max)
    bound = view.uniform(call.args[_limit_place(view, call)])
    require(bound is not None, f"bound of {call.op.name}", "none or many", "one constant")
    assert bound is not None
    return (bound, math.inf) if is_call(call, "maximum") else (-math.inf, bound)


def _limit_place(view: View, call: relay.Call) -> int:
    return 0 if view.is_constant(call.args[0]) else 1


LIMITS = ("nn.relu", "clip", "maximum", "minimum")


# --- A quantization and what lies before it -----------------------------------------------------


def quantized(view: View, call: relay.Call) -> relay.Expr:
    """The integers that a ``qnn.quantize`` makes, without floats.

    Moves and limits are taken off from the end, the operator before them gets its rule, and they
    follow again on integers. Behind a float parameter of the function, only they do.
    """
    grid = view.grid(call)
    behind, core = _peel(view, call.args[0])
    if is_call(core, *AVERAGES) and view.rounding.mode == "onnx":
        value = _onnx_average(view, core, grid, [each for each in behind if is_call(each, *LIMITS)])
    elif is_call(core) and core.op.name in RULES:
        value = RULES[core.op.name](view, core, grid)
    elif isinstance(core, relay.Var) and behind:
        value = _again_on(view, call, view.new[core])
    else:
        known = is_call(core, "qnn.dequantize", *MOVES) or isinstance(core, relay.TupleGetItem)
        require(known, "operator", operator_name(core), "one with a rule for integers")
        last = core if not is_call(core, "qnn.dequantize") else behind[-1] if behind else call
        value = requantize(view.integers(core), grid, last.span)
    return _put_behind(view, behind, value, grid)


def _peel(view: View, expr: relay.Expr) -> tuple[list[relay.Call], relay.Expr]:
    """Moves and limits from the end, last first, and what is before them.

    Moves of a quantized value stay with it: they run before its requantization.
    """
    behind: list[relay.Call] = []
    while is_call(expr, *MOVES, *LIMITS) and not _is_quantized(view, expr):
        if is_call(expr, *LIMITS):
            _bounds(view, expr)
        view.alone(expr)
        behind.append(expr)
        place = 1 - _limit_place(view, expr) if is_call(expr, "maximum", "minimum") else 0
        expr = expr.args[place]
    return behind, expr


def _is_quantized(view: View, expr: relay.Expr) -> bool:
    try:
        view.integers(expr)
    except Refusal:
        return False
    return True


def _put_behind(view: View, behind: list[relay.Call], value: relay.Expr, grid: Grid) -> relay.Expr:
    for call in reversed(behind):
        if is_call(call, *LIMITS):
            value = _clipped(value, grid, *_bounds(view, call), call.span)
        else:
            value = view.move(call, value, grid)
    return value


# --- Chains that become tables ------------------------------------------------------------------

ELEMENTWISE = (
    *("abs", "negative", "sign", "ceil", "floor", "round", "trunc", "clip", "maximum", "minimum"),
    *("add", "subtract", "multiply", "divide", "power", "sqrt", "rsqrt"),
    *("exp", "log", "log2", "log10", "erf", "sin", "cos", "atan", "sigmoid", "tanh"),
    *("fast_exp", "fast_erf", "fast_tanh", "nn.relu", "nn.leaky_relu", "nn.prelu"),
)
SOFTMAX = ("nn.softmax", "nn.log_softmax", "nn.fast_softmax")
# Of several quantized values, such as a sum of three branches: these have C for floats.
ARITHMETIC = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum"),
    *("clip", "round", "nn.relu", "nn.leaky_relu"),
)


@dataclass(frozen=True)
class Function:
    """The float operators in front of a ``qnn.quantize`` that may stay, and its new expression."""

    calls: list[relay.Call]
    expr: relay.Expr


def function_of_values(view: View, call: relay.Call) -> Function:
    """A ``qnn.quantize`` of a function of single values, of a softmax, or of float arithmetic on
    several values, which stays float.

    Moves in front of it and behind it go to the integers; then nothing but the function is between
    dequantize and quantize, and no other function reads its dequantized values. Refuses any other
    operator there.
    """
    grid = view.grid(call)
    behind, root = _moves_behind(view, call.args[0])
    inside, leaves = _inside(view, root)
    if not all(is_call(each, *ARITHMETIC) for each in inside):
        require(len(leaves) == 1, "quantized inputs of the function", len(leaves), "one")
    own = {*inside, *behind}
    alone = (is_call(leaf, "qnn.dequantize") and view.within(leaf, own) for leaf in leaves)
    if not behind and all(alone):
        return Function(inside, _again_on(view, call, view.new[root]))
    shared = [each for each in inside if not view.within(each, own)]
    require(not shared, "function with moves", "used as float32 too", "quantized only")
    new = {leaf: dequantize(view.integers(leaf), leaf.span) for leaf in leaves}
    for each in inside:
        new[each] = _on_floats(view, each, new)
    return Function(inside, _put_behind(view, behind, _again_on(view, call, new[root]), grid))


def _again_on(view: View, call: relay.Call, value: relay.Expr) -> relay.Call:
    """A ``qnn.quantize`` of another value; of its own value it is the same object."""
    if value.same_as(call.args[0]):
        return call
    return quantize(value, view.grid(call), call.span)


def _moves_behind(view: View, expr: relay.Expr) -> tuple[list[relay.Call], relay.Expr]:
    behind = []
    while is_call(expr, *MOVES):
        view.alone(expr)
        behind.append(expr)
        expr = expr.args[0]
    return behind, expr


def _inside(view: View, root: relay.Expr) -> tuple[list[relay.Call], list[relay.Expr]]:
    """The operators of a function of values, in order, and the quantized values that it is of."""
    inside: set[relay.Expr] = set()
    leaves: set[relay.Expr] = set()
    stack = [root]
    while stack:
        expr = stack.pop()
        if is_call(expr, *ELEMENTWISE) or (is_call(expr, *SOFTMAX) and expr.same_as(root)):
            inside.add(expr)
            stack += [arg for arg in expr.args if view.uniform(arg) is None and arg not in inside]
        else:
            view.integers(expr)
            leaves.add(expr)
    return sorted(inside, key=view.place), list(leaves)


def _on_floats(view: View, call: relay.Call, new: dict[relay.Expr, relay.Expr]) -> relay.Expr:
    """An operator of a function of values on other floats, constants as they are."""
    slope = view.uniform(call.args[1]) if is_call(call, "nn.prelu") else None
    if slope is not None:  # which the shape of the values does not matter to
        return spanned(relay.nn.leaky_relu(new[call.args[0]], slope), call.span)
    return again(call, *(new.get(arg, view.new[arg]) for arg in call.args))
