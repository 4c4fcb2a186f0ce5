"""The values in which operators and steps answer what passes ask: see ``ir.Op`` and ``ir.Step``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


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
        return Range(np.minimum(self.low, value), np.maximum(self.high, value))

    def spread(self, count: int) -> Range:
        """The bounds of all channels together, ``count`` times."""
        return Range(np.repeat(self.low.min(), count), np.repeat(self.high.max(), count))
