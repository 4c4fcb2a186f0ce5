"""Divisors that are positive floats, and may be 0 as integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tinyai.qdq.operands import Grid, is_call
from tinyai.quantizer.observers import Seen
from tinyai.quantizer.points import Points
from tinyai.quantizer.report import SmallDivisor
from tinyai.quantizer.roles import Role


def small_divisors(
    points: Points, seen: Mapping[int, Seen], grids: Mapping[int, Grid]
) -> Iterator[SmallDivisor]:
    """The quotients of two tensors whose divisor was never negative, and less than half a step:
    as an integer it is 0, and the quotient no number."""
    for point in points.points:
        quotient = points.opening(point.expr)[0]
        if not is_call(quotient, "divide") or points.roles.get(quotient) is not Role.RULE:
            continue
        number = points.grid_of(quotient.args[1])
        if number is None or number not in seen:
            continue
        least, scale = seen[number].whole.low, grids[number].scale
        if 0 <= least < scale / 2:
            yield SmallDivisor(point.name, least, scale)
