"""Sums of products by constant weights: what convolutions and dense layers have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tinyai.ir import Array, DType, Op, Type
from tinyai.traits import Border, Range


class Contraction(Op):
    """Sums of products of ``data - zero_point``, the first input, by weights, the second: [channels
    of the result, …, channels of the data in a group]; int64 where ``wide``. ``proven`` says that
    no sum of int16 by these weights is beyond int32, though one of as many products could be."""

    zero_point: int
    wide: bool
    proven: bool

    @property
    def mixes_channels(self) -> bool:
        """Whether each channel of the result is a sum over all channels of the data."""
        return True

    @property
    def meets_edge(self) -> bool:
        """Whether sums have zeros from beyond the edge of the data, or from between its elements:
        there the data counts as its zero point."""
        return False

    @property
    def border(self) -> Border | None:
        """What windows read around an image, which counts nothing in sums; None where they do not
        read an image as it is stored."""
        return None

    @property
    def accumulator(self) -> DType:
        return DType.INT64 if self.wide else DType.INT32

    def with_zero_point(self, zero_point: int) -> Op:
        return replace(self, zero_point=zero_point)  # type: ignore[type-var]

    def shifted(self, offset: int, data: Type) -> tuple[Op, int]:
        return self.with_zero_point(self.zero_point + offset), 0

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range | None:
        """Of the weights' positive and negative parts."""
        weights, values = constants[1], data[0].plus(-self.zero_point)
        if weights is None:
            return None
        values = values.hull(0) if self.meets_edge else values
        rows = weights.reshape(weights.shape[0], -1, weights.shape[-1])
        # float64 holds every sum of products exactly.
        above = np.maximum(rows, 0).sum(axis=1, dtype=np.float64)
        below = rows.sum(axis=1, dtype=np.float64) - above
        groups = len(values.low) // weights.shape[-1]
        above, below = (part.reshape(groups, -1, weights.shape[-1]) for part in (above, below))
        ends = np.stack((values.low, values.high), axis=-1).astype(np.float64)
        ends = ends.reshape(groups, -1, 2)
        sums = above @ ends + below @ ends[..., ::-1]
        least, most = sums.reshape(-1, 2).astype(np.int64).T
        return Range(least, most)
