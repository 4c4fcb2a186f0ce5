"""Sparse constants of a .tflite file as the numbers that they stand for.

A tensor is traversed a dimension after the other, then the dimensions of blocks that some are
divided into. A level is dense, with a size; or it is as in a CSR matrix: of each place before it
two segments say which of the indices follow. The format is the one of TACO (Kjolstad et al., 2017),
as TensorFlow Lite's schema describes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tflite

from tinyai.frontends.faults import Fault
from tinyai.ir import Array

_ALLOWED = "as the sparsity parameters of the schema say"
# Elements of a tensor that a few bytes may stand for.
MOST = 2**25


def densified(sparsity: Any, values: Array, shape: Sequence[int], what: str) -> Array:
    """Numbers of ``shape``, 0 where no value is. Raises ``Fault`` for parameters that contradict
    it."""
    order, blocks = _numbers(sparsity, "TraversalOrder"), _numbers(sparsity, "BlockMap")
    levels, rank = len(order), len(shape)
    if math.prod(shape) > MOST:
        raise Fault(f"{what}: {math.prod(shape)} sparse elements", f"{MOST} and fewer")
    fits = levels == rank + len(blocks) == sparsity.DimMetadataLength()
    if not fits or sorted(order) != [*range(levels)] or not {*blocks} <= {*range(rank)}:
        raise Fault(f"{what}: sparse along {order}, of blocks {blocks}", _ALLOWED)
    places, counts = np.zeros(1, np.int64), [0] * levels
    found: dict[int, Array] = {}
    for level, dimension in enumerate(order):
        places, index, repeats, count = _level(sparsity.DimMetadata(level), places, shape, what)
        found = {each: np.repeat(known, repeats) for each, known in found.items()}
        found[dimension], counts[dimension] = index, count
    for number, dimension in enumerate(blocks, rank):
        found[dimension] = found[dimension] * counts[number] + found[number]
    inside = all(((found[d] >= 0) & (found[d] < size)).all() for d, size in enumerate(shape))
    if len(places) != values.size or not inside:
        raise Fault(f"{what}: {values.size} sparse values of {len(places)} places", _ALLOWED)
    dense = np.zeros(shape, values.dtype)
    dense[tuple(found[d] for d in range(rank))] = values.reshape(-1)
    return dense


def _level(
    level: Any, places: Array, shape: Sequence[int], what: str
) -> tuple[Array, Array, Any, int]:
    """The places of a level behind those before it, its index at each, how many are behind each
    one before, and its size where it is dense."""
    most = math.prod(shape)
    if level.Format() == tflite.DimensionType.DENSE:
        size = int(level.DenseSize())
        if not 0 <= size * len(places) <= most:
            raise Fault(f"{what}: a dense level of {size}", _ALLOWED)
        index = np.tile(np.arange(size), len(places))
        return np.repeat(places * size, size) + index, index, size, size
    segments, indices = (_table(level, name) for name in ("ArraySegments", "ArrayIndices"))
    if len(segments) <= int(places.max(initial=0)) + 1:
        raise Fault(f"{what}: {len(segments)} segments", _ALLOWED)
    first, counts = segments[places], segments[places + 1] - segments[places]
    total = int(counts.sum())
    bad = (counts < 0).any() or total > most or (segments < 0).any()
    if bad or (segments > len(indices)).any():
        raise Fault(f"{what}: segments beyond {len(indices)} indices", _ALLOWED)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.repeat(first, counts) + np.arange(total) - before
    return chosen, indices[chosen], counts, 0


def _numbers(table: Any, name: str) -> list[int]:
    return [int(getattr(table, name)(n)) for n in range(getattr(table, f"{name}Length")())]


# The vectors of numbers of a sparse level, by their number in the schema.
_VECTORS = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}


def _table(level: Any, name: str) -> Array:
    """The numbers of a level's segments or indices."""
    given = getattr(level, name)()
    kind = _VECTORS.get(getattr(level, f"{name}Type")())
    if given is None or kind is None:
        return np.zeros(0, np.int64)
    vector = getattr(tflite, kind)()
    vector.Init(given.Bytes, given.Pos)
    return np.array(_numbers(vector, "Values"), np.int64)
