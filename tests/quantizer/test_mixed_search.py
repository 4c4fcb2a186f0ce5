"""Which layers get 16 bits for a goal, of made-up networks whose noise is known."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import pytest

from tinyai.quantizer.mixed import Mixed, Search
from tinyai.quantizer.report import OutputRow

NAMES = ("a", "b", "c", "d")
Noise = Callable[[Collection[str]], float]


@dataclass(frozen=True)
class FakePoint:
    name: str
    operator: str = "conv2d"

    @property
    def expr(self) -> str:
        return self.name


@dataclass(frozen=True)
class FakePoints:
    """Layers of which those of ``wide`` have 16 bits; ``never`` would stay in float for that."""

    wide: frozenset[str] = frozenset()
    never: str = ""

    @property
    def points(self) -> list[FakePoint]:
        return [FakePoint(name) for name in NAMES]

    @property
    def dtypes(self) -> list[str]:
        return ["int16" if name in self.wide else "int8" for name in NAMES]

    @property
    def left(self) -> list[str]:
        return [name for name in self.wide if name == self.never]


def searched(noise: Noise, goal: float, never: str = "") -> tuple[bool, Any]:
    """Whether a search reaches a goal, and the search; as ``quantized`` goes about it."""
    made: Any = Search(
        FakePoints(),  # type: ignore[arg-type]
        [(FakePoint(name), float(n)) for n, name in enumerate(NAMES)],  # type: ignore[misc]
        lambda floats, wide: FakePoints(wide, never),  # type: ignore[arg-type, return-value]
        lambda points: [OutputRow("float32", noise(points.wide), 1.0, 0.0)],  # type: ignore[attr-defined]
        floats=False,
    )
    goal_of = Mixed(sqnr=goal)
    while not goal_of.reached(made.rows) and made.go_on():
        pass
    while not goal_of.reached(made.rows) and made.widen(goal_of.reached):
        pass
    return goal_of.reached(made.rows), made


def names(search: Any) -> list[str]:
    return [step.name for step in search.steps]


def test_layers_that_gain_alone_are_enough_where_they_reach_the_goal() -> None:
    reached, search = searched(lambda wide: 30.0 if "b" in wide else 20.0, 30)
    assert reached
    assert names(search) == ["b"]


@pytest.mark.parametrize(("goal", "wanted"), [(25, ["a", "b"]), (40, ["a", "b", "c", "d"])])
def test_layers_that_gain_together_alone_get_16_bits_the_worst_first(
    goal: float, wanted: list[str]
) -> None:
    def noise(wide: Collection[str]) -> float:
        return {0: 20.0, 1: 20.0, 2: 26.0, 3: 26.0, 4: 40.0}[len(wide)]

    reached, search = searched(noise, goal)
    assert reached
    assert names(search) == wanted
    assert f"with {len(wanted)} more at 16 bits" in search.steps[-1].reason
    assert {*search.points.wide} == {*wanted}


def test_a_layer_that_would_stay_float_is_left_at_8_bits() -> None:
    reached, search = searched(lambda wide: 20.0 + 10 * (len(wide) == 3), 30, never="b")
    assert reached
    assert names(search) == ["a", "c", "d"]


def test_a_goal_that_nothing_reaches_gets_all_that_there_is() -> None:
    reached, search = searched(lambda wide: 20.0 + len(wide) // 2, 90)
    assert not reached
    assert names(search) == list(NAMES)
