"""``cumsum``: sums of all that comes before, as the positions of words are counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.builders import Lowering, OperatorRow
from tinyai.ir import Array, DType, Example, Op, Type
from tinyai.source import Call, require, sources

INTEGERS = (DType.INT32, DType.INT64)


@dataclass(frozen=True)
class CumSum(Op):
    """Of each place along ``axis`` the sum from the first place up to this one, or up to the one
    before it (``exclusive``). ``reverse`` begins at the last place.

    in: int32 or int64; out: the same, which wraps.
    """

    name: ClassVar[str] = "cumsum"
    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if data.dtype not in INTEGERS:
            raise ValueError(f"cumsum of {data.dtype}: {', '.join(INTEGERS)} only")
        if not 0 <= self.axis < len(data.shape):
            raise ValueError(f"axis {self.axis} of {data}")
        return data

    def reference(self, *inputs: Array) -> Array:
        data = np.flip(inputs[0], self.axis) if self.reverse else inputs[0]
        sums = np.cumsum(data, self.axis, dtype=data.dtype)
        sums = sums - data if self.exclusive else sums
        return np.flip(sums, self.axis) if self.reverse else sums

    @staticmethod
    def examples() -> Iterator[Example]:
        yield CumSum(1), (Type((2, 7), DType.INT64),)
        yield CumSum(0, exclusive=True), (Type((5, 3), DType.INT32),)
        yield CumSum(1, reverse=True), (Type((2, 4, 3), DType.INT32),)
        yield CumSum(2, exclusive=True, reverse=True), (Type((1, 2, 6), DType.INT64),)


def lower_cumsum(call: Call, lowering: Lowering) -> str:
    data = lowering.type(call["data"])
    require(data.dtype in INTEGERS, f"dtype of {call.spelled}", data.dtype, ", ".join(INTEGERS))
    axis = int(call.attrs["axis"]) % len(data.shape)
    op = CumSum(axis, bool(call.attrs["exclusive"]), bool(call.attrs["reverse"]))
    return lowering.builder.add(op, [lowering.tensor(call["data"])], sources=sources(call))


OPERATORS = {"cumulative_sum": OperatorRow(lower_cumsum, "data", "axis exclusive reverse")}
