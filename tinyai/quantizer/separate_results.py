"""Results that are put together of parts in ranges far apart, such as boxes in pixels and their
scores: on one grid the small values would all be 0. The parts keep grids of their own, and their
floats are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tinyai.qdq.moves import MOVES_ALONE
from tinyai.qdq.operands import Grid, is_call
from tinyai.quantizer.points import Point, Points
from tinyai.source import Call, Expr, Field, Refusal, Tuple

# A part that would lose more than a quarter of its bits on the common grid has one of its own.
_APART = {"int8": 4, "uint8": 4, "int16": 16}


def separated(
    points: Points,
    points_of: Callable[[Mapping[Expr, Refusal]], Points],
    grids_of: Callable[[Points], Mapping[int, Grid]],
) -> Points:
    """``points`` without the concatenations at the model's end whose parts are far apart.

    ``points_of`` makes points with operators left in float, ``grids_of`` tells their grids.
    """
    ends = [*_concatenations_of_results(points)] if points.config.separate_results else []
    if not ends:
        return points
    alone = points_of({each: Refusal("scales of its parts", "", "") for each in ends})
    observed = {point.expr for point in points.points if point.observed}
    if any(point.observed and point.expr not in observed for point in alone.points):
        return points  # what these are was not seen
    own = {point.expr: grid.scale for point, grid in _grids(alone, grids_of)}
    scales = {call: [own[part] for part in _parts(call, alone) if part in own] for call in ends}
    floats: dict[Expr, Refusal] = {}
    while True:
        # What a concatenation reads is on its grid until it is float: it goes first, alone.
        apart: dict[int, tuple[Expr, Refusal]] = {}
        common = {point.expr: (point.grid, grid) for point, grid in _grids(points, grids_of)}
        for call in ends:
            if call in common and scales[call]:
                number, grid = common[call]
                reason = _reason(scales[call], grid)
                if reason and number not in apart:
                    apart[number] = call, reason
        if not apart:
            return points
        floats |= dict(apart.values())
        points = points_of(floats)


def _grids(
    points: Points, grids_of: Callable[[Points], Mapping[int, Grid]]
) -> Iterator[tuple[Point, Grid]]:
    grids = {**grids_of(points), **points.fixed}
    yield from ((point, grids[point.grid]) for point in points.points)


def _reason(scales: Sequence[float], common: Grid) -> Refusal | None:
    """Why parts of these scales are not put together on the common grid; None where they may be."""
    most = _APART[common.dtype]
    if min(scales) * most >= common.scale:
        return None
    found = f"{min(scales):.4g} to {max(scales):.4g}"
    allowed = f"within a factor of {most}, or separate_results=False: it stays float"
    return Refusal("scales of its parts", found, allowed)


def _concatenations_of_results(points: Points) -> Iterator[Call]:
    """Quantized concatenations that lead to results by moves alone, the last one first."""
    leads: set[Expr | None] = {None}
    for expr in reversed(points.order):
        moves = isinstance(expr, Tuple | Field) or is_call(expr, *MOVES_ALONE)
        if moves and leads.issuperset(points.users[expr]):
            leads.add(expr)
            if is_call(expr, "concatenate") and expr in points.roles:
                yield expr


def _parts(call: Expr, points: Points) -> Iterator[Expr]:
    """The quantized values that a concatenation of floats puts together, perhaps by others."""
    at = {point.expr for point in points.points}
    stack = [*points.operands(call)]
    while stack:
        part = stack.pop()
        if part in at:
            yield part
        elif isinstance(part, Call | Field):
            stack += points.operands(part.call if isinstance(part, Field) else part)
