"""``sum`` over dimensions, and the mean that is lowered to it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tinyai.builders import Lowering, OperatorRow
from tinyai.ir import Array, DType, Example, Op, Operand, Step, Type
from tinyai.ops import steps
from tinyai.source import Call, require, sources
from tinyai.traits import ChannelMap, Dims, Range

INTEGERS = (DType.INT8, DType.UINT8, DType.INT32, DType.INT64)


@dataclass(frozen=True)
class Sum(Op):
    """Sum over the dimensions ``axes``, which stay with length 1 where ``keepdims``.

    in: int8, uint8, int32 or int64; out: int64 of int64 and else int32, which wraps.
    """

    name: ClassVar[str] = "sum"
    takes_epilogue: ClassVar[bool] = True
    takes_narrow: ClassVar[bool] = True
    dims: ClassVar[Dims] = Dims.REDUCED
    axes: tuple[int, ...]
    keepdims: bool = False

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if data.dtype not in INTEGERS:
            raise ValueError(f"sum of {data.dtype}: {', '.join(INTEGERS)} only")
        if list(self.axes) != sorted(set(self.axes) & set(range(len(data.shape)))):
            raise ValueError(f"axes {self.axes} of {data}: existing ones, in order")
        kept = [
            1 if dim in self.axes else size
            for dim, size in enumerate(data.shape)
            if self.keepdims or dim not in self.axes
        ]
        return Type(tuple(kept), self._result(data.dtype))

    @staticmethod
    def _result(dtype: DType) -> DType:
        return dtype if dtype is DType.INT64 else DType.INT32

    def reference(self, *inputs: Array) -> Array:
        total = inputs[0].sum(axis=self.axes, keepdims=self.keepdims, dtype=np.int64)
        return np.asarray(total.astype(self._result(DType(inputs[0].dtype.name)).numpy))

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op:
        return replace(self, axes=tuple(sorted(dims.index(axis) for axis in self.axes)))

    def dropped_dims(self) -> tuple[int, ...]:
        return () if self.keepdims else self.axes

    def channel_map(self, *inputs: Type) -> ChannelMap | None:
        (data,) = inputs
        stays = data.shape and len(data.shape) - 1 not in self.axes
        return ChannelMap((np.arange(data.channels),)) if stays else None

    def _terms(self, data: Type) -> int:
        """How many elements each sum has."""
        return math.prod(data.shape[axis] for axis in self.axes)

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range | None:
        if types[0].dtype is DType.INT64:
            return None  # a bound might wrap as the sum does
        apart, count = self.channel_map(*types) is not None, self._terms(types[0])
        each = data[0] if apart else data[0].spread(self.infer(*types).channels)
        return Range(each.low * count, each.high * count)

    def shifted(self, offset: int, data: Type) -> tuple[Op, int]:
        return self, offset * self._terms(data)

    @staticmethod
    def examples() -> Iterator[Example]:
        yield Sum((1, 2)), (Type((2, 5, 6, 3), DType.INT8),)
        yield Sum((2, 3), keepdims=True), (Type((1, 3, 4, 5), DType.UINT8),)
        yield Sum((0,)), (Type((7,), DType.INT32),)
        yield Sum((1,)), (Type((3, 4, 5), DType.INT32),)
        yield Sum((1,)), (Type((3, 4, 5), DType.INT64),)
        yield Sum((2,), keepdims=True), (Type((2, 3, 9), DType.INT64),)


def axes_of(call: Call, rank: int) -> tuple[int, ...]:
    """The dimensions that a reduction is over, in order."""
    axes = call.attrs.get("axis")
    named = range(rank) if axes is None else axes if isinstance(axes, tuple) else (axes,)
    found = {int(axis) % rank for axis in named}
    return tuple(sorted(set(range(rank)) - found if call.attrs.get("exclude") else found))


def add_sum(call: Call, lowering: Lowering, epilogue: tuple[Step, ...] = ()) -> tuple[str, int]:
    """The node that sums the call's argument over its axes, and how many elements each sum has."""
    data = lowering.type(call["data"])
    allowed = (DType.INT32, DType.INT64)
    require(data.dtype in allowed, f"dtype of {call.spelled}", data.dtype, " or ".join(allowed))
    axes = axes_of(call, len(data.shape))
    require(bool(axes), "axes", "none", "at least one")
    op = Sum(axes, bool(call.attrs.get("keepdims")))
    inputs = [lowering.tensor(call["data"])]
    total = lowering.builder.add(op, inputs, epilogue, sources(call))
    return total, math.prod(data.shape[axis] for axis in axes)


def lower_sum(call: Call, lowering: Lowering) -> str:
    return add_sum(call, lowering)[0]


def lower_mean(call: Call, lowering: Lowering) -> str:
    """mean of int32: the sum divided by the count, cut towards zero."""
    data = lowering.type(call["data"])
    require(data.dtype is DType.INT32, f"dtype of {call.spelled}", data.dtype, "int32")
    count = math.prod(data.shape[axis] for axis in axes_of(call, len(data.shape)))
    divisor = Operand(lowering.builder.constant(np.array(count, np.int32)))
    return add_sum(call, lowering, (steps.Divide(operand=divisor),) if count > 1 else ())[0]


OPERATORS = {
    "sum": OperatorRow(lower_sum, "data", "axis keepdims exclude"),
    "mean": OperatorRow(lower_mean, "data", "axis keepdims exclude"),
}
