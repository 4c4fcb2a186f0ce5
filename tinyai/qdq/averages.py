"""Averages and sums over axes or windows, as integers on the grid of the quantization.

``AVERAGE_RULES`` are their rows of ``tinyai.qdq.rules.RULES``.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np

from tinyai.qdq.limits import bounds, cuts
from tinyai.qdq.operands import (
    INT32,
    Grid,
    Integers,
    Rule,
    View,
    again,
    dequantize,
    is_call,
    of,
    own_attributes,
    quantize,
    requantize,
    retyped,
    shape_of,
)
from tinyai.qdq.two_dimensions import (
    in_two_dimensions,
    lengthened,
    require_whole,
    with_height,
    without_height,
)
from tinyai.source import Call, Expr, require
from tinyai.vocabulary import call as made
from tinyai.vocabulary import constant


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
        attrs = own_attributes(call, "sum")
    else:
        if is_call(call, "adaptive_avg_pool1d"):
            require_whole(call)
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
    """The largest distance of a value from the zero point."""
    limits = np.iinfo(value.dtype)
    return int(limits.max) - int(limits.min)


def _widened(value: Expr, call: Call) -> Call:
    return made("cast", retyped(value, "int32"), value, name=call.name, dtype="int32")


def _average(of: Grid, total: Expr, divisor: int, counted: int, grid: Grid, call: Call) -> Expr:
    """Requantized sums in which the zero point counts ``counted`` times, divided by ``divisor``.

    The divisor goes to the output's scale, as in ONNX Runtime.
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
    shape, out = (lengthened(each, added) for each in (value.shape, shape_of(call)))
    counts = _window_counts(attrs, shape, out)
    multiple = math.lcm(*counts)
    _require_int32(_span(value) * multiple * max(counts))
    wide = value.expr if added is None else with_height(value.expr, added, call.name)
    wide, counted = _widened(wide, call), multiple
    if attrs["count_include_pad"] and grid_of.zero_point:
        # Padding counts as the float 0, which has to be the integer 0 then.
        zero = constant(grid_of.zero_point, "int32")
        wide, counted = made("subtract", wide.type, wide, zero, name=call.name), 0
    if multiple > 1:
        wide = made("multiply", wide.type, wide, constant(multiple, "int32"), name=call.name)
    pooled = made("avg_pool2d", of(out, "int32"), wide, name=call.name, **attrs)
    result = _average(grid_of, pooled, multiple, counted, grid, call)
    return result if added is None else without_height(result, added, call.name)


def _pool_attributes(call: Call) -> tuple[dict[str, Any], int | None]:
    """Attributes of a pooling in two dimensions, and which one of them it does not have."""
    attrs = own_attributes(call, call.op)
    if not is_call(call, "avg_pool1d"):
        return attrs, None
    return in_two_dimensions(attrs), attrs["layout"].index("W")


def average_of_floats(view: View, call: Call, grid: Grid, limits: list[Call]) -> Expr:
    """An average over windows that is computed in float32, between dequantize and quantize.

    ``limits`` after it stay in between where they cut the grid: ONNX Runtime, which averages so,
    has another kernel then.
    """
    view.alone(call)
    value, (attrs, added) = view.integers(call["data"]), _pool_attributes(call)
    if added is not None:
        value = replace(value, expr=with_height(value.expr, added, call.name))
    result_type = of(lengthened(shape_of(call), added), "float32")
    floats = dequantize(value, call.name)
    pooled = made("avg_pool2d", result_type, floats, name=call.name, **attrs)
    for limit in reversed(limits):
        low, high = bounds(view, limit)
        if cuts(grid, low, high):
            largest = float(np.finfo(np.float32).max)
            within = {"low": max(low, -largest), "high": min(high, largest)}
            pooled = made("clip", result_type, pooled, name=limit.name, **within)
    result = quantize(pooled, grid, call.name)
    return result if added is None else without_height(result, added, call.name)


def _interpolation(view: View, call: Call, grid: Grid) -> Expr:
    """Of float32, between a dequantize and a quantize of its own."""
    view.alone(call)
    floats = dequantize(view.integers(call["data"]), call.name)
    return quantize(again(call, floats, dtype="float32"), grid, call.name)


def _require_int32(largest: int) -> None:
    require(largest <= INT32.max, "sum of the average", f"up to {largest}", "an int32")


def _window_counts(attrs: dict[str, Any], shape: tuple[int, ...], out: tuple[int, ...]) -> set[int]:
    """The numbers of elements that the windows of an average pooling have."""
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
AVERAGE_RULES: dict[str, Rule] = {
    **dict.fromkeys(AVERAGES, _avg_pool),
    **dict.fromkeys(("global_avg_pool2d", "adaptive_avg_pool1d"), _reduced),
    **dict.fromkeys(("mean", "sum"), _reduced),
    "interpolate2d": _interpolation,
}
