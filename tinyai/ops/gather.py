"""Values that are picked along an axis by their numbers: ``gather`` by numbers that are computed at
run time, such as those of the rows of an embedding; slices or a resize by constant ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.builders import Lowering, OperatorRow
from tinyai.ir import Array, DType, Example, Graph, Move, Step, Type
from tinyai.ops import steps
from tinyai.ops.elementwise import Elementwise
from tinyai.ops.layout import Concatenate, Reshape, Slice
from tinyai.ops.resize import Resize
from tinyai.source import Call, Constant, constant_of, fixed_type, require, sources
from tinyai.traits import Range

INDICES = (DType.INT32, DType.INT64)
_CASTS: tuple[Step, ...] = tuple(map(steps.Cast, INDICES))
MODES = ("clip", "wrap", "fast", "raise")


@dataclass(frozen=True)
class Gather(Move):
    """The slices of the data along ``axis`` whose numbers are the indices, in their shape.
    Of an index outside ``mode`` clip and fast take the nearest that exists, wrap and raise the one
    that is reached by counting round and round: -1 is the last. To fast and raise an index is
    promised that exists: from 0 on, or from either end.
    in: data of any type, indices int32 or int64; out: the data's type, with the indices' dimensions
    in place of ``axis``.
    """

    name: ClassVar[str] = "gather"
    axis: int
    mode: str = "fast"

    @property
    def wraps(self) -> bool:
        return self.mode in ("wrap", "raise")

    def infer(self, *inputs: Type) -> Type:
        data, indices = inputs
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode}: {', '.join(MODES)}")
        if indices.dtype not in INDICES:
            raise ValueError(f"indices {indices}: {', '.join(INDICES)}")
        if not 0 <= self.axis < len(data.shape) or not data.shape[self.axis]:
            raise ValueError(f"axis {self.axis} of {data}")
        before, behind = data.shape[: self.axis], data.shape[self.axis + 1 :]
        return Type((*before, *indices.shape, *behind), data.dtype)

    def reference(self, *inputs: Array) -> Array:
        data, indices = inputs
        size = data.shape[self.axis]
        return data.take(indices % size if self.wraps else np.clip(indices, 0, size - 1), self.axis)

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range:
        return data[0].spread(self.infer(*types).channels)

    @staticmethod
    def examples() -> Iterator[Example]:
        yield Gather(0), (Type((9, 4), DType.INT8), Type((2, 3), DType.INT64))
        yield Gather(1, "wrap"), (Type((2, 5, 3), DType.FLOAT32), Type((4,), DType.INT32))
        yield Gather(2, "raise"), (Type((2, 1, 3), DType.INT16), Type((), DType.INT64))


MOST_SLICES = 8  # that a take becomes: each is a loop of its own


def index_limits(graph: Graph, name: str) -> tuple[int, int] | None:
    """The least and the largest number that a tensor may have for each to be one of an element,
    where gathers that promise it read them, as they are, moved or cast; None of any other."""
    same, lows, highs = [name], list[int](), list[int]()
    for tensor in same:
        for node in graph.readers[tensor]:
            is_same = all(step in _CASTS for step in node.epilogue)
            if isinstance(node.op, Gather) and tensor == node.inputs[1]:
                size = graph.type(node.inputs[0]).shape[node.op.axis]
                if node.op.mode in ("fast", "raise"):
                    lows.append(-size if node.op.wraps else 0)
                    highs.append(size - 1)
            elif is_same and isinstance(node.op, Move | Elementwise) and tensor in node.inputs:
                same.append(node.output)
    return (max(lows), min(highs)) if highs else None


def lower_take(call: Call, lowering: Lowering) -> str:
    """take: by constant indices rows or columns of an image, or a slice for each of a few runs of
    indices at one distance, one after the other. By others a gather."""
    value, shape = lowering.tensor(call["data"]), lowering.type(call["data"]).shape
    require(int(call.attrs["batch_dims"]) == 0, "batch_dims", call.attrs["batch_dims"], 0)
    if call.attrs["axis"] is None:
        shape, axis = (lowering.type(call["data"]).elements,), 0
        value = lowering.builder.add(Reshape(shape), [value], sources=sources(call))
    else:
        axis = int(call.attrs["axis"]) % len(shape)
    if not isinstance(call["indices"], Constant):
        gather, dtype = Gather(axis, str(call.attrs["mode"])), lowering.type(call["indices"]).dtype
        require(dtype in INDICES, "dtype of indices", dtype, " or ".join(INDICES))
        inputs = [value, lowering.tensor(call["indices"])]
        return lowering.builder.add(gather, inputs, sources=sources(call))
    indices = constant_of(call, "indices", "indices")
    found = _in_range(indices.reshape(-1).astype(np.int64), shape[axis], str(call.attrs["mode"]))
    runs = list(_runs(found.tolist()))
    if len(runs) > 1 and len(shape) == 4 and axis >= 2 and indices.ndim == 1:
        taken = [tuple(range(size)) for size in shape]
        taken[axis] = tuple(found.tolist())
        image = Resize(taken[2], taken[3], "NCHW")
        return lowering.builder.add(image, [value], sources=sources(call))
    if len(runs) > 1 and len(shape) == 4 and (axis, shape[2]) == (1, 1) and indices.ndim == 1:
        rows = Resize(tuple(found.tolist()), (0,), "NHWC")
        return lowering.builder.add(rows, [value], sources=sources(call))
    result = Reshape(fixed_type(call.type, "result").shape)
    if len(runs) > MOST_SLICES:  # rows of images with one column
        before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        steps = (
            Reshape((before, shape[axis], 1, after)),
            Resize(tuple(found.tolist()), (0,), "NHWC"),
            result,
        )
        for step in steps:
            value = lowering.builder.add(step, [value], sources=sources(call))
        return value
    parts = []
    for first, distance, count in runs:
        begin = tuple(first if d == axis else 0 for d in range(len(shape)))
        strides = tuple(distance if d == axis else 1 for d in range(len(shape)))
        op = Slice(begin, strides, (*shape[:axis], count, *shape[axis + 1 :]))
        parts.append(lowering.builder.add(op, [value], sources=sources(call)))
    if len(parts) > 1:
        parts = [lowering.builder.add(Concatenate(axis), parts, sources=sources(call))]
    return lowering.builder.add(result, parts, sources=sources(call))


def _in_range(indices: Array, size: int, mode: str) -> Array:
    """Indices as TVM takes them: the nearest that exists, or counted round and round."""
    if mode == "wrap":
        return np.asarray(indices % size)
    if mode == "clip":
        return np.clip(indices, 0, size - 1)
    fits = bool(indices.min() >= 0 and indices.max() < size)
    require(fits, "indices", f"{indices.min()} .. {indices.max()}", f"0 .. {size - 1}")
    return indices


def _runs(indices: list[int]) -> Iterator[tuple[int, int, int]]:
    """First index, distance and length of each run of indices at one distance. Neighbours that are
    equal are in different runs, for a slice has no distance of 0."""
    start = 0
    while start < len(indices):
        end, distance = start + 1, 1
        if end < len(indices) and indices[end] != indices[start]:
            distance = indices[end] - indices[start]
            while end < len(indices) and indices[end] - indices[end - 1] == distance:
                end += 1
        yield indices[start], distance, end - start
        start = end


OPERATORS = {"take": OperatorRow(lower_take, "data indices", "axis batch_dims mode")}
