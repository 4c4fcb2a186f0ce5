"""Operators that bound values: their bounds round with the values, so they run on integers."""

from __future__ import annotations

import math

import numpy as np

from tinyai.qdq.operands import Grid, View, is_call, shape_of
from tinyai.source import Call, Expr, require
from tinyai.vocabulary import call as made

# The larger and the smaller of two values, which bound one where the other is a number.
EXTREMES = ("maximum", "minimum")
LIMITS = ("relu", "clip", *EXTREMES)


def clipped(value: Expr, grid: Grid, low: float, high: float, name: str) -> Expr:
    """Integers clipped between two floats; unchanged where the grid ends there."""
    if not cuts(grid, low, high):
        return value
    first, last = map(float, _steps_of(grid, low, high))
    return made("clip", value.type, value, name=name, low=first, high=last)


def _steps_of(grid: Grid, low: float, high: float) -> tuple[int, int]:
    first, last = (int(grid.quantize(np.array(bound))) for bound in (low, high))
    return first, last


def cuts(grid: Grid, low: float, high: float) -> bool:
    """Whether a grid has values outside of two floats."""
    limits = np.iinfo(grid.dtype)
    return _steps_of(grid, low, high) != (limits.min, limits.max)


def is_bounded(view: View, call: Call) -> bool:
    """Whether an operator of ``LIMITS`` keeps one value between two floats."""
    if is_call(call, *EXTREMES):
        return any(view.uniform(arg) is not None for arg in call.args)
    return is_call(call, *LIMITS)


def bounds(view: View, call: Call) -> tuple[float, float]:
    """The floats between which an operator of ``LIMITS`` keeps its value."""
    if is_call(call, "relu"):
        return 0.0, math.inf
    if is_call(call, "clip"):
        return float(call.attrs["low"]), float(call.attrs["high"])
    place = limit_place(view, call)
    value, of = call.args[1 - place], shape_of(call)
    require(
        shape_of(value) == of, f"shape of {call.spelled}", of, f"the value's, {shape_of(value)}"
    )
    bound = view.uniform(call.args[place])
    require(bound is not None, f"bound of {call.spelled}", "none or many", "one constant")
    assert bound is not None
    return (bound, math.inf) if is_call(call, "maximum") else (-math.inf, bound)


def limit_place(view: View, call: Call) -> int:
    return 0 if view.is_constant(call.args[0]) else 1
