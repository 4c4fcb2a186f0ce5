"""Which layers have 16 bits or stay float so that a goal is reached: the worst first, as few as it
takes. First those that gain by themselves; where these do not reach it, others one after the other:
where noise is spread evenly, none gains much alone.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tinyai.errors import OptionError
from tinyai.quantizer.config import is_number
from tinyai.quantizer.points import Point, Points
from tinyai.quantizer.report import OutputRow, PrecisionChoice, decibels
from tinyai.quantizer.roles import Role
from tinyai.source import Call, Expr, Field, Refusal, Tuple

# A layer's readers stay float too where that gains so many dB more: the damage is in its values.
_WORTH = 1.0
# A layer has 16 bits where that gains this share of the dB that floats do.
_SHARE = 0.5


@dataclass(frozen=True)
class Mixed:
    """The goal of a mixed precision: ``sqnr`` in dB, ``agreement`` the share of samples with the
    same largest value, each of the worst result; both if both are given. Without ``floats`` layers
    get 16 bits alone: a library without a host has no floats."""

    sqnr: float | None = None
    agreement: float | None = None
    floats: bool = True

    def __post_init__(self) -> None:
        for name, allowed, high in (("sqnr", "dB: 0 to 200", 200), ("agreement", "0 to 1", 1)):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and 0 <= value <= high):
                raise OptionError(f"Mixed.{name}", found=repr(value), allowed=allowed)
        if self.sqnr is None and self.agreement is None:
            raise OptionError("Mixed", found="no goal", allowed="sqnr=, agreement= or both")

    def __str__(self) -> str:
        sqnr = [] if self.sqnr is None else [f"SQNR of {self.sqnr:g} dB"]
        agreement = [] if self.agreement is None else [f"agreement of {self.agreement:.1%}"]
        return " and ".join(sqnr + agreement)

    def reached(self, rows: Sequence[OutputRow]) -> bool:
        """Whether every output meets the goal."""
        return all(
            (self.sqnr is None or decibels_of(row) >= self.sqnr)
            and (self.agreement is None or row.agreement >= self.agreement)
            for row in rows
        )


def decibels_of(row: OutputRow) -> float:
    """The SQNR of a result; infinite where there is no noise."""
    return math.inf if row.sqnr is None else row.sqnr


def worst(rows: Sequence[OutputRow]) -> float:
    return min(map(decibels_of, rows), default=math.inf)


@dataclass(frozen=True)
class _State:
    """Operators that stay in float, and values whose layers have 16 bits (``wide``)."""

    floats: Mapping[Expr, Refusal]
    wide: frozenset[Expr]


@dataclass(frozen=True)
class _Trial:
    """A state, the results' ``rows`` with it, and ``what`` of a layer was changed to ``dtype``."""

    state: _State
    rows: Sequence[OutputRow]
    dtype: str
    what: str


class Search:
    """``points`` are those of the choices so far, which ``steps`` tell in order, with the reasons.

    ``points_of`` makes points with operators left in float and layers of 16 bits, ``simulated``
    tells the results' noise with them. ``floats`` may be among the choices, or not.
    """

    def __init__(
        self,
        points: Points,
        ranking: Sequence[tuple[Point, float]],
        points_of: Callable[[Mapping[Expr, Refusal], frozenset[Expr]], Points],
        simulated: Callable[[Points], Sequence[OutputRow]],
        floats: bool,
    ) -> None:
        self._floats, self._ranking = floats, ranking
        self._points, self.points = points, points
        # Once more at the end, for layers that 16 bits were not enough for.
        self._left = ((*each, again) for again in (False, True) for each in ranking)
        self._points_of, self._simulated = points_of, simulated
        self._state = _State({}, frozenset())
        self.steps: list[PrecisionChoice] = []
        self.rows = simulated(points)

    def go_on(self) -> bool:
        """Give the worst layer that is left 16 bits, or leave it in float where that gains much
        more; False where none helps."""
        for point, alone, again in self._left:
            before = worst(self.rows)
            wide = None if again else self._at_16_bits(point)
            best = self._in_float(point, alone) if self._floats else None
            gains = [worst(each.rows) - before if each else 0.0 for each in (wide, best)]
            if wide is not None and gains[0] > 0 and not gains[0] < _SHARE * gains[1]:
                best = wide
            if best is not None:
                self._take(best, point, alone)
                return True
        return False

    def widen(self, reached: Callable[[Sequence[OutputRow]], bool]) -> bool:
        """Give 16 bits to more layers, the worst first, until the results have ``reached`` a goal,
        whether one of them gains alone or not; False where there are no more."""
        more = list(self._widening())
        if not more:
            return False
        rows: dict[int, Sequence[OutputRow]] = {}

        def is_enough(number: int) -> bool:
            rows[number] = self._simulated(more[number][2])
            return reached(rows[number])

        last = bisect.bisect_left(range(len(more) - 1), True, key=is_enough)
        if last not in rows:
            is_enough(last)
        before, after = decibels(worst(self.rows)), decibels(worst(rows[last]))
        together = f"with {last + 1} more at 16 bits, the results have {after} after {before}"
        self.rows, self.points = rows[last], more[last][2]
        wide = self._state.wide | {point.expr for point, _, _ in more[: last + 1]}
        self._state = _State(self._state.floats, wide)
        self.steps += [
            PrecisionChoice(
                point.name, point.operator, "int16", f"{decibels(alone)} alone; {together}"
            )
            for point, alone, _ in more[: last + 1]
        ]
        return True

    def _widening(self) -> Iterator[tuple[Point, float, Points]]:
        """The layers that can have 16 bits beside those before them, the worst first, and the
        points with all of these."""
        wide, now = self._state.wide, self.points
        for point, alone in self._ranking:
            points = self._points_of(self._state.floats, wide | {point.expr})
            fits = len(points.left) <= len(now.left) and self._are_known(points)
            if fits and points.dtypes != now.dtypes:
                wide, now = wide | {point.expr}, points
                yield point, alone, points

    def _take(self, trial: _Trial, point: Point, alone: float) -> None:
        before, after = decibels(worst(self.rows)), decibels(worst(trial.rows))
        self._state, self.rows = trial.state, trial.rows
        self.points = self._points_of(trial.state.floats, trial.state.wide)
        reason = (
            f"{decibels(alone)} alone; with {trial.what}, the results have {after} after {before}"
        )
        # What was given 16 bits and now stays float is float.
        self.steps = [each for each in self.steps if each.name != point.name]
        self.steps.append(PrecisionChoice(point.name, point.operator, trial.dtype, reason))

    def _in_float(self, point: Point, alone: float) -> _Trial | None:
        """The best trial with the layer in float, and with its readers too where that gains much
        more."""
        best: _Trial | None = None
        for layers, what in self._options(point):
            floats = self._with(layers, alone)
            if len(floats) == len(self._state.floats):
                continue
            trial = self._tried(_State(floats, self._state.wide), "float32", f"{what} in float")
            least = worst(self.rows) if best is None else worst(best.rows) + _WORTH
            if trial is not None and worst(trial.rows) > least:
                best = trial
        return best

    def _at_16_bits(self, point: Point) -> _Trial | None:
        """The trial with 16 bits for the layer's operands and results; None where an operator would
        stay in float for that."""
        state = _State(self._state.floats, self._state.wide | {point.expr})
        points = self._points_of(state.floats, state.wide)
        same = points.dtypes == self.points.dtypes
        if same or len(points.left) > len(self.points.left):
            return None
        return self._tried(state, "int16", "it at 16 bits")

    def _tried(self, state: _State, dtype: str, what: str) -> _Trial | None:
        points = self._points_of(state.floats, state.wide)
        if not self._are_known(points):
            return None
        return _Trial(state, self._simulated(points), dtype, what)

    def _are_known(self, points: Points) -> bool:
        """Whether there are points, and the calibration has seen all of them."""
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
        floats = dict(self._state.floats)
        return floats | {call: reason for call in calls if call not in floats}

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
