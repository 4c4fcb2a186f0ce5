"""Where two arrays differ, bit by bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyai.checking.result import Number
from tinyai.ir import Array


@dataclass(frozen=True)
class Difference:
    """``count`` elements differ, the first at ``index``."""

    count: int
    index: tuple[int, ...]
    found: Number
    expected: Number


def difference(found: Array, expected: Array) -> Difference | None:
    """None where two arrays of one type are equal; floats are where all bits are."""
    bits = np.dtype(f"u{found.dtype.itemsize}")
    pair = (np.ascontiguousarray(each).reshape(found.shape) for each in (found, expected))
    mine, other = (each.view(bits) if each.shape else each.reshape(1).view(bits) for each in pair)
    differ = mine != other
    if not differ.any():
        return None
    first = int(np.flatnonzero(differ)[0])
    index = tuple(int(place) for place in np.unravel_index(first, found.shape))
    return Difference(
        int(differ.sum()),
        index,
        found.reshape(-1)[first].item(),
        expected.reshape(-1)[first].item(),
    )
