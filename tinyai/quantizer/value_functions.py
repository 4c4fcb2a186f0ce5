"""What functions make of values, learned from samples: a range that is worth its steps where a
function reads a value depends on it. Below -3 a hard-swish gives 0, whatever the value was."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tinyai.quantizer.params import Array
from tinyai.quantizer.points import Points
from tinyai.source import Expr

# Pairs that are kept of a function; so many of each sample, of so many elements.
_PAIRS = 1024
_ELEMENTS = 1 << 17
# The share of a range over which the slope beyond it is measured.
_END = 0.02


@dataclass(frozen=True, eq=False)
class ValueFunction:
    """A function of one value by pairs: ``values`` in ascending order, each once, and their
    ``results``. Between them it is taken for straight, beyond them for as steep as at the end."""

    values: Array
    results: Array

    @classmethod
    def of(cls, values: Array, results: Array) -> ValueFunction:
        """Of a tensor and what a function made of each element: evenly spread ones, and both
        ends."""
        values, results = values.reshape(-1), results.reshape(-1)
        every = -(-values.size // _ELEMENTS)
        some = np.append(np.arange(0, values.size, every), (values.argmin(), values.argmax()))
        values, results = (each[some].astype(np.float64) for each in (values, results))
        order = np.argsort(values, kind="stable")
        chosen = order[np.linspace(0, len(order) - 1, min(len(order), _PAIRS)).astype(np.int64)]
        return cls(*_once(values[chosen], results[chosen]))

    def merge(self, other: ValueFunction) -> ValueFunction:
        values = np.concatenate([self.values, other.values])
        return ValueFunction(*_once(values, np.concatenate([self.results, other.results])))

    def __call__(self, values: Array) -> Array:
        inside = np.interp(values, self.values, self.results)
        low, high = self.values[0], self.values[-1]
        below, above = self._slopes
        beyond = np.minimum(values - low, 0) * below + np.maximum(values - high, 0) * above
        return np.asarray(inside + beyond)

    @functools.cached_property
    def _slopes(self) -> tuple[float, float]:
        """At the lower and at the upper end."""
        low, high = self.values[0], self.values[-1]
        near = _END * (high - low) or 1.0
        ends = np.interp([low, low + near, high - near, high], self.values, self.results)
        return (ends[1] - ends[0]) / near, (ends[3] - ends[2]) / near


def _once(values: Array, results: Array) -> tuple[Array, Array]:
    distinct, first = np.unique(values, return_index=True)
    return distinct, results[first]


def read_by_functions(points: Points) -> dict[int, int]:
    """The points that one function of a single value alone reads, by number, and the points that
    are its results. Each is alone on its grid, which is not fixed."""
    numbers = {point.expr: number for number, point in enumerate(points.points)}
    grids = [point.grid for point in points.points]
    found = {}
    for expr, own in _results(points):
        number = numbers.get(own)
        if number is None or grids.count(grids[number]) > 1 or grids[number] in points.fixed:
            continue
        if all(
            user is not None and points.roots.get(user) == frozenset({own})
            for user in points.users[own]
        ):
            found[number] = numbers[expr]
    return found


def _results(points: Points) -> Iterator[tuple[Expr, Expr]]:
    """The points that are results of functions of single values, with these; of several functions
    of one value none."""
    results: dict[Expr, list[Expr]] = {}
    for point in points.points:
        own = points.roots.get(point.expr, frozenset())
        if len(own) == 1:
            results.setdefault(next(iter(own)), []).append(point.expr)
    return ((of[0], value) for value, of in results.items() if len(of) == 1)


def learned(
    points: Points, samples: Iterable[Mapping[int, Array]]
) -> dict[tuple[int, int], ValueFunction]:
    """The functions of ``read_by_functions``, by the places of their values and results in the
    model; a sample has the values of points, by number."""
    pairs, places = read_by_functions(points), points.places()
    found: dict[tuple[int, int], ValueFunction] = {}
    for sample in samples if pairs else ():
        for value, result in pairs.items():
            if sample[value].shape != sample[result].shape:  # of a constant that is larger
                continue
            seen = ValueFunction.of(sample[value], sample[result])
            at = places[value], places[result]
            found[at] = found[at].merge(seen) if at in found else seen
    return found
