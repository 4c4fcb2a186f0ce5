"""Operators that only move values or pick some: they run on integers as on floats.

``MOVES`` has a row for each. They commute with rounding, so they may follow any rule.
"""

from __future__ import annotations

from tinyai.qdq.operands import Grid, Move, View, again, is_call, of, own_attributes, shape_of
from tinyai.qdq.two_dimensions import (
    in_two_dimensions,
    largest_of_volumes,
    lengthened,
    require_whole,
    with_height,
    without_height,
)
from tinyai.source import Call, Expr, require
from tinyai.vocabulary import call as made
from tinyai.vocabulary import constant


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
    """A max pooling along one dimension, as one along two with the height 1."""
    at = call.attrs["layout"].index("W")
    wide = with_height(value, at, call.name)
    result = of(lengthened(shape_of(call), at), value.type.dtype)
    if is_call(call, "adaptive_max_pool1d"):
        require_whole(call)
        layouts = {"layout": call.attrs["layout"].replace("W", "HW"), "out_layout": ""}
        pooled = made("global_max_pool2d", result, wide, name=call.name, **layouts)
    else:
        attrs = in_two_dimensions(own_attributes(call, "max_pool2d"))
        pooled = made("max_pool2d", result, wide, name=call.name, **attrs)
    return without_height(pooled, at, call.name)


MOVES: dict[str, Move] = {
    **dict.fromkeys(("reshape", "transpose", "strided_slice", "copy", "take", "tile"), _move),
    **dict.fromkeys(("depth_to_space", "space_to_depth", "layout_transform"), _move),
    **dict.fromkeys(("max_pool2d", "global_max_pool2d", "broadcast_to"), _move),
    **dict.fromkeys(("reverse", "repeat", "max", "min"), _move),
    **dict.fromkeys(("max_pool1d", "adaptive_max_pool1d"), _max_pool1d),
    "max_pool3d": lambda view, call, grid, value: largest_of_volumes(call, value),
    "pad": _pad,
    "resize2d": _resize,
}

# Those that put each value somewhere, whatever it is, and look at none.
MOVES_ALONE = frozenset(
    (
        *("reshape", "transpose", "layout_transform", "depth_to_space", "space_to_depth"),
        *("concatenate", "stack", "split", "strided_slice", "reverse"),
        *("copy", "repeat", "tile", "broadcast_to"),
    )
)
