"""The values in which operators and steps answer what passes ask: see ``ir.Op`` and ``ir.Step``."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
NONE = -1  # no channel


class Dims(enum.Enum):
    """How the dimensions of a result follow from those of the data, for an operator that works in
    any order of them."""

    FIXED = "not: it works in its own order alone"
    ALIGNED = "each is that of the data and of all other inputs, if of another size"
    REDUCED = "each is that of the data; dropped ones are missing"
    REGROUPED = "one of several neighbours, or several of one"
    PERMUTED = "the same in another order"
    CONTRACTED = "the data's last one is summed up, by weights that can be in any order"


@dataclass(frozen=True)
class Border:
    """Rows and columns around an image in NHWC, all of one value, so that a window may reach over
    its edge."""

    top: int
    left: int
    bottom: int
    right: int
    value: int

    @property
    def sides(self) -> tuple[int, int, int, int]:
        return self.top, self.left, self.bottom, self.right


@dataclass(frozen=True, eq=False)
class ChannelMap:
    """Where an operator keeps channels apart: for each input that is data, ``places`` says which of
    its channels each channel of the result is made of, ``NONE`` for none of it. ``pieces`` tells
    channels of the result apart that are made of different pieces of one channel."""

    places: tuple[Array, ...]
    pieces: Array | None = None


@dataclass(frozen=True, eq=False)
class Range:
    """The least and the largest value of each channel, both possible or not: int64, or float32,
    where infinite bounds also stand for NaN."""

    low: Array
    high: Array

    @property
    def constant(self) -> Array:
        """Which channels have the same value for every input."""
        return np.asarray(self.low == self.high)

    def plus(self, number: int) -> Range:
        return Range(self.low + number, self.high + number)

    def hull(self, value: Array | float) -> Range:
        """Bounds that hold ``value`` as well."""
        # Of the same dtype: a border's value is a Python float, also around integers.
        value = np.asarray(value, self.low.dtype)
        return Range(np.minimum(self.low, value), np.maximum(self.high, value))

    def spread(self, count: int) -> Range:
        """The bounds of all channels together, ``count`` times."""
        return Range(np.repeat(self.low.min(), count), np.repeat(self.high.max(), count))


def join(data: Sequence[Range], channels: ChannelMap | None, count: int) -> Range:
    """The range of ``count`` channels that are made of elements of the data alone."""
    low = np.full(count, np.min([each.low.min() for each in data]))
    high = np.full(count, np.max([each.high.max() for each in data]))
    if channels is None:
        return Range(low, high)
    pairs = list(zip(channels.places, data, strict=True))
    lows = [np.where(place == NONE, high, each.low[place]) for place, each in pairs]
    highs = [np.where(place == NONE, low, each.high[place]) for place, each in pairs]
    return Range(np.min(lows, axis=0), np.max(highs, axis=0))
