"""Convolutions and poolings along one dimension as those along two, the height 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinyai.qdq.operands import reshaped, shape_of
from tinyai.source import Call, Expr, require


def in_two_dimensions(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a convolution or pooling along W as those of one along H and W."""
    wide = dict(attrs)
    for key in attrs.keys() & {"layout", "weight_layout", "out_layout"}:
        wide[key] = attrs[key].replace("W", "HW")
    for key in attrs.keys() & {"strides", "dilation", "kernel"}:
        wide[key] = (1, *attrs[key])
    before, after = attrs["padding"]
    wide["padding"] = (0, before, 0, after)
    return wide


def with_height(value: Expr, at: int, name: str) -> Call:
    return reshaped(value, lengthened(shape_of(value), at), name)


def without_height(value: Expr, at: int, name: str) -> Call:
    shape = shape_of(value)
    return reshaped(value, (*shape[:at], *shape[at + 1 :]), name)


def lengthened(shape: tuple[int, ...], at: int | None) -> tuple[int, ...]:
    """``shape`` with a dimension of length 1 more, if it is to have one."""
    return shape if at is None else (*shape[:at], 1, *shape[at:])


def require_whole(call: Call) -> None:
    """Refuse an adaptive pooling along one dimension that is not over all of it."""
    sizes = [int(size) for size in call.attrs["output_size"]]
    require(sizes == [1], f"output size of {call.spelled}", sizes, [1])
