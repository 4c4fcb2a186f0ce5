"""Observers: what a tensor's values were over many samples, and the range that follows from it.

An observer's state is a value made of integers, minima and maxima alone, and ``merge`` of two is
associative and commutative, bit for bit: samples may be observed in any order, in one process or in
several. Its size does not grow with the samples (but for 16 bytes each of a moving average).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.params import Array, configured_grid

Counts = npt.NDArray[np.int64]
Function = Callable[[Array], Array]

BINS = 4096  # on each side of 0
# The exponent of the narrowest bins: all values that are smaller fall into the two around 0.
NARROWEST = -160
# How finely a range is searched for, and how often each end in turn.
_CANDIDATES, _ROUNDS = 64, 2


def itself(values: Array) -> Array:
    return values


@dataclass(frozen=True)
class ValueRange:
    """An interval of values."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Array) -> ValueRange:
        return cls(float(values.min()), float(values.max()))

    def merge(self, other: ValueRange) -> ValueRange:
        return ValueRange(min(self.low, other.low), max(self.high, other.high))

    def growth_of(self, other: ValueRange) -> ValueRange:
        """How many times the ends of another these are, at least once."""
        pairs = (self.low, other.low), (self.high, other.high)
        low, high = (max(1.0, end / by) if end * by > 0 else 1.0 for end, by in pairs)
        return ValueRange(low, high)


@dataclass(frozen=True)
class Histogram:
    """How many values are in each bin of ``2**exponent``, from ``-BINS`` bins below 0 on.

    The exponent is the least with which all values fit. Bins of the next one are pairs of these, so
    that it does not matter when a larger value came.
    """

    exponent: int
    counts: Counts = field(compare=False)

    @classmethod
    def of(cls, values: Array) -> Histogram:
        wide = values.astype(np.float64).reshape(-1)
        largest, exponent = max(float(wide.max()), -float(wide.min())), NARROWEST
        if largest:
            _, above = math.frexp(largest)  # largest < 2**above
            exponent = max(NARROWEST, above - (BINS.bit_length() - 1))
        bins = np.floor(np.ldexp(wide, -exponent)).astype(np.int64)
        return cls(exponent, np.bincount(bins + BINS, minlength=2 * BINS).astype(np.int64))

    def merge(self, other: Histogram) -> Histogram:
        exponent = max(self.exponent, other.exponent)
        return Histogram(exponent, self._at(exponent) + other._at(exponent))

    def _at(self, exponent: int) -> Counts:
        counts = self.counts
        for _ in range(min(exponent - self.exponent, BINS.bit_length())):
            pairs = counts.reshape(-1, 2).sum(axis=1)
            counts = np.pad(pairs, BINS // 2)
        return counts

    def points(self) -> tuple[Array, Array]:
        """The middles of the bins that have values, and how many each has."""
        filled = np.flatnonzero(self.counts)
        return np.ldexp(filled - BINS + 0.5, self.exponent), self.counts[filled].astype(np.float64)


@dataclass(frozen=True)
class Seen:
    """The state of an observer. ``extremes`` are of each sample, by its number, for a moving
    average; ``histogram`` is None where nobody asks for one."""

    whole: ValueRange
    histogram: Histogram | None = None
    extremes: Mapping[int, ValueRange] = field(default_factory=dict)

    def merge(self, other: Seen) -> Seen:
        """The state of both parts. What one of them did not keep is left out, so that a part of the
        samples is never taken for all."""
        mine, others = self.histogram, other.histogram
        extremes = dict(self.extremes) if other.extremes else {}
        for index, each in other.extremes.items() if self.extremes else ():
            extremes[index] = extremes[index].merge(each) if index in extremes else each
        return Seen(
            self.whole.merge(other.whole),
            mine.merge(others) if mine and others else None,
            dict(sorted(extremes.items())),
        )

    def state(self) -> dict[str, Any]:
        """The state as plain numbers, for JSON; ``of_state`` is the inverse."""
        histogram = self.histogram
        filled = np.flatnonzero(histogram.counts) if histogram else np.zeros(0, np.int64)
        return {
            "range": [self.whole.low, self.whole.high],
            "exponent": histogram.exponent if histogram else None,
            "bins": filled.tolist(),
            "counts": histogram.counts[filled].tolist() if histogram else [],
            "extremes": [[index, each.low, each.high] for index, each in self.extremes.items()],
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Seen:
        histogram = None
        if state["exponent"] is not None:
            counts: Counts = np.zeros(2 * BINS, np.int64)
            counts[np.array(state["bins"], np.int64)] = state["counts"]
            histogram = Histogram(int(state["exponent"]), counts)
        extremes = {int(index): ValueRange(low, high) for index, low, high in state["extremes"]}
        return cls(ValueRange(*state["range"]), histogram, extremes)


@dataclass(frozen=True)
class Observer:
    """The observer of a configuration: the state that it keeps of a tensor, and the range that it
    chooses."""

    config: QuantConfig

    def see(self, sample: int, values: Array) -> Seen:
        """The state after one sample, whose values are finite; ``sample`` is its number."""
        whole, kind = ValueRange.of(values), self.config.observer
        histogram = None if kind in ("minmax", "average") else Histogram.of(values)
        return Seen(whole, histogram, {sample: whole} if kind == "average" else {})

    def range(self, seen: Seen, function: Function = itself) -> ValueRange:
        """By the least squared error it is that of what a ``function`` makes of the values, which
        alone reads them."""
        kind = self.config.observer
        if kind == "minmax" or (seen.whole.low == seen.whole.high == 0):
            return seen.whole
        if kind == "average":
            return _moving_average(seen.extremes, self.config.momentum)
        assert seen.histogram is not None
        if kind == "percentile":
            return _percentile(seen, self.config.percentile)
        if kind == "mse":
            return _best(seen, self.config, functools.partial(_squared_error, function=function))
        return _best(seen, self.config, _divergence)


def _moving_average(extremes: Mapping[int, ValueRange], momentum: float) -> ValueRange:
    """The moving average of each sample's extremes, in order of the samples' numbers."""
    first, *rest = (each for _, each in sorted(extremes.items()))
    low, high = first.low, first.high
    for each in rest:
        low = momentum * low + (1 - momentum) * each.low
        high = momentum * high + (1 - momentum) * each.high
    return ValueRange(low, high)


def _percentile(seen: Seen, percent: float) -> ValueRange:
    """The range that holds that share of the values; as many are cut off at each end."""
    assert seen.histogram is not None
    middles, counts = seen.histogram.points()
    half, share = math.ldexp(0.5, seen.histogram.exponent), (1 - percent / 100) / 2
    below = np.cumsum(counts)
    total = below[-1]
    first = int(np.searchsorted(below, total * share, side="right"))
    last = int(np.searchsorted(below, total * (1 - share), side="left"))
    low = float(middles[min(first, len(middles) - 1)]) - half
    high = float(middles[min(last, len(middles) - 1)]) + half
    return ValueRange(max(low, seen.whole.low), min(high, seen.whole.high))


def _best(seen: Seen, config: QuantConfig, error: Any) -> ValueRange:
    """The range with the least error, one end after the other; of equal ones the widest."""
    assert seen.histogram is not None
    middles, counts = seen.histogram.points()
    low, high = min(seen.whole.low, 0.0), max(seen.whole.high, 0.0)
    fractions = np.arange(_CANDIDATES, 0, -1) / _CANDIDATES

    def cost(one: float, other: float) -> float:
        return float(error(middles, counts, configured_grid(one, other, config)))

    best_low, best_high = low, high
    if config.symmetric:
        best = min(fractions.tolist(), key=lambda f: cost(low * f, high * f))
        return ValueRange(low * best, high * best)
    for _ in range(_ROUNDS):
        if high > 0:
            best_high = high * min(fractions.tolist(), key=lambda f: cost(best_low, high * f))
        if low < 0:
            best_low = low * min(fractions.tolist(), key=lambda f: cost(low * f, best_high))
    return ValueRange(best_low, best_high)


def _steps(middles: Array, made: Any) -> Array:
    limits = np.iinfo(made.dtype)
    steps = np.rint(middles / made.scale) + made.zero_point
    return np.asarray(np.clip(steps, limits.min, limits.max))


def _squared_error(middles: Array, counts: Array, made: Any, function: Function) -> float:
    values = (_steps(middles, made) - made.zero_point) * made.scale
    return float((counts * (function(middles) - function(values)) ** 2).sum())


def _divergence(middles: Array, counts: Array, made: Any) -> float:
    """Kullback and Leibler's, of the values from what is left of them on the grid: each step's
    share is spread evenly over the bins that it stands for. What is cut off stays in the first and
    the last bin of the one, but not of the other.

    The bins around 0 do not count, for 0 is on each grid and often the most frequent value. Bins
    differ by chance too, where values are few: what is to be expected of that is taken off.
    """
    limits = np.iinfo(made.dtype)
    low = (limits.min - 0.5 - made.zero_point) * made.scale
    high = (limits.max + 0.5 - made.zero_point) * made.scale
    away = np.abs(middles) > np.abs(middles).min()
    middles, counts = middles[away], counts[away]
    inside = np.flatnonzero((middles >= low) & (middles <= high))
    if len(inside) == 0:
        return math.inf
    kept = counts[inside]
    cut = kept.copy()
    cut[0] += counts[: inside[0]].sum()
    cut[-1] += counts[inside[-1] + 1 :].sum()
    steps = _steps(middles[inside], made).astype(np.int64) - limits.min
    mass = np.bincount(steps, weights=kept, minlength=limits.max - limits.min + 1)
    bins = np.bincount(steps, minlength=len(mass))
    spread = (mass / np.maximum(bins, 1))[steps]
    p, q = cut / cut.sum(), spread / spread.sum()
    by_chance = (len(inside) - np.count_nonzero(bins)) / (2 * counts.sum())
    return float((p * np.log(p / q)).sum() - by_chance)
