"""Which layers stay float so that a goal is reached: the worst first, as few as it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tinyai.errors import OptionError
from tinyai.quantizer.points import Point, Points, Role
from tinyai.quantizer.report import Choice, OutputRow, decibels
from tinyai.source import Call, Expr, Field, Refusal, Tuple

# A layer's readers stay float too where that gains so many dB more: the damage is in its values.
_WORTH = 1.0


@dataclass(frozen=True)
class Mixed:
    """The goal of a mixed precision: ``sqnr`` in dB, ``agreement`` the share of samples with the
    same largest value, each of the worst result; both if both are given."""

    sqnr: float | None = None
    agreement: float | None = None

    def __post_init__(self) -> None:
        for name, allowed, high in (("sqnr", "dB: 0 to 200", 200), ("agreement", "0 to 1", 1)):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and 0 <= value <= high):
                raise OptionError(f"Mixed.{name}", found=repr(value), allowed=allowed)
        if self.sqnr is None and self.agreement is None:
            raise OptionError("Mixed", found="no goal", allowed="sqnr=, agreement= or both")

    def __str__(self) -> str:
        sqnr = [] if self.sqnr is None else [f"SQNR of {self.sqnr:g} dB"]
        agreement = [] if self.agreement is None else [f"agreement of {self.agreement:.1%}"]
        return " and ".join(sqnr + agreement)

    def reached(self, rows: Sequence[OutputRow]) -> bool:
        return all(
            (self.sqnr is None or decibels_of(row) >= self.sqnr)
            and (self.agreement is None or row.agreement >= self.agreement)
            for row in rows
        )


def decibels_of(row: OutputRow) -> float:
    """Infinite where there is no noise."""
    return math.inf if row.sqnr is None else row.sqnr


def worst(rows: Sequence[OutputRow]) -> float:
    return min(map(decibels_of, rows), default=math.inf)


class Search:
    """``floats`` are operators that stay float so far, ``steps`` say which were left when and why.

    ``points_of`` makes points with operators left in float, ``simulated`` tells the results' noise
    with them.
    """

    def __init__(
        self,
        points: Points,
        ranking: Sequence[tuple[Point, float]],
        points_of: Callable[[dict[Expr, Refusal]], Points],
        simulated: Callable[[Points], Sequence[OutputRow]],
    ) -> None:
        self._points, self._left = points, iter(ranking)
        self._points_of, self._simulated = points_of, simulated
        self.floats: dict[Expr, Refusal] = {}
        self.steps: list[Choice] = []
        self.rows = simulated(points)

    def go_on(self) -> bool:
        """Leave one layer more in float, the worst that is left; False where none helps."""
        for point, alone in self._left:
            before = worst(self.rows)
            best: tuple[float, dict[Expr, Refusal], Sequence[OutputRow], str] | None = None
            for layers, what in self._options(point):
                floats = self._with(layers, alone)
                points = self._points_of(floats)
                if len(floats) == len(self.floats) or not self._are_known(points):
                    continue
                rows = self._simulated(points)
                least = before if best is None else best[0] + _WORTH
                if worst(rows) > least:
                    best = worst(rows), floats, rows, what
            if best is not None:
                after, self.floats, self.rows, what = best
                self.steps.append(
                    Choice(
                        point.name,
                        point.operator,
                        f"{decibels(alone)} alone; with {what} in float, the results have "
                        f"{decibels(after)} after {decibels(before)}",
                    )
                )
                return True
        return False

    def _are_known(self, points: Points) -> bool:
        """Whether there are some, all of which were seen."""
        known = {point.expr for point in self._points.points}
        return bool(points.points) and all(point.expr in known for point in points.points)

    def _options(self, point: Point) -> Iterator[tuple[list[Expr], str]]:
        """Operators to leave for a point: its own, or those that read it as well."""
        own = self._calls(point.expr)
        readers = [call for each in self._readers(point.expr) for call in self._calls(each)]
        if own:
            yield own, "it"
        if readers:
            yield own + readers, "it and its readers" if own else "its readers"

    def _with(self, calls: Sequence[Expr], alone: float) -> dict[Expr, Refusal]:
        reason = Refusal("mixed precision", f"{decibels(alone)} alone", "others: it stays float")
        return self.floats | {call: reason for call in calls if call not in self.floats}

    def _calls(self, expr: Expr) -> list[Expr]:
        """The operators of a layer."""
        opening = self._points.opening(expr)
        opened = [each.call if isinstance(each, Field) else each for each in opening]
        return [each for each in opened if isinstance(each, Call)]

    def _readers(self, expr: Expr) -> Iterator[Expr]:
        """The points of the layers that read a value, behind what only moves it."""
        ends = {
            each: point.expr
            for point in self._points.points
            for each in self._points.opening(point.expr)
        }
        stack, seen = [expr], set[Expr]()
        while stack:
            for user in self._points.users[stack.pop()]:
                if user is None or user in seen:
                    continue
                seen.add(user)
                if user in ends:
                    yield ends[user]
                moves = self._points.roles.get(user) is Role.MOVE
                if moves or isinstance(user, Tuple) or user not in ends:
                    stack.append(user)
