"""Channels, the last dimension of a tensor: which of them operators keep apart, and which channels
of a tensor hold the same values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinyai.ir import Array, Graph, Node, Op, Step, Type
from tinyai.ops import (
    AdaptivePool2d,
    AvgPool2d,
    Concatenate,
    Conv2d,
    Dense,
    Elementwise,
    FloatAvgPool2d,
    MaxPool2d,
    Pad,
    Reshape,
    Resize,
    Slice,
    Sum,
    Transpose,
)
from tinyai.ops.window import NHWC

NONE = -1


def channels(of: Type) -> int:
    return of.shape[-1] if of.shape else 1


def mixes(op: Op) -> bool:
    """Whether each channel of the result is a sum of products of all channels of the data."""
    return isinstance(op, Dense) or (
        isinstance(op, Conv2d) and op.groups == 1 and op.layout == NHWC
    )


def apart(op: Op, inputs: Sequence[Type]) -> tuple[Array, ...] | None:
    """For each input that is data, which of its channels each channel of the result is made of,
    ``NONE`` for none of it; None where an operator does not keep channels apart."""
    data = inputs[0]
    if not data.shape:
        return None
    count, last = channels(data), len(data.shape) - 1
    same = np.arange(count)
    match op:
        case Conv2d() if op.layout == NHWC and op.groups == count > 1:
            return (np.arange(inputs[1].shape[0]) // (inputs[1].shape[0] // count),)
        case MaxPool2d() | AvgPool2d() | FloatAvgPool2d() | AdaptivePool2d() if op.layout == NHWC:
            return (same,)
        case Resize() if op.layout == NHWC:
            return (same,)
        case Elementwise() if op.shape:
            return (same if op.shape[-1] == count else np.zeros(op.shape[-1], np.int64),)
        case Sum() if last not in op.axes:
            return (same,)
        case Transpose() if op.axes[-1] == last:
            return (same,)
        case Pad() if op.widths[-1] == (0, 0):
            return (same,)
        case Slice():
            return (op.begin[-1] + op.strides[-1] * np.arange(op.shape[-1]),)
        case Reshape() if op.shape and op.shape[-1] % max(count, 1) == 0:
            return (np.arange(op.shape[-1]) % max(count, 1),)
        case Concatenate() if joins(op, inputs):
            return _one_behind_the_other([channels(of) for of in inputs])
        case Concatenate():
            return (same,) * len(inputs)
    return None


def joins(op: Op, inputs: Sequence[Type]) -> bool:
    """Whether an operator puts the channels of its inputs one behind the other."""
    return isinstance(op, Concatenate) and op.axis == len(inputs[0].shape) - 1


def _one_behind_the_other(counts: Sequence[int]) -> tuple[Array, ...]:
    places = []
    for number, count in enumerate(counts):
        place = np.full(sum(counts), NONE)
        begin = sum(counts[:number])
        place[begin : begin + count] = np.arange(count)
        places.append(place)
    return tuple(places)


def equal_channels(graph: Graph) -> dict[str, Array]:
    """For each tensor that is no constant, a number a channel; channels of one tensor that have the
    same number hold the same values, whatever the input."""
    numbers = _Numbers(graph)
    for name in graph.inputs:
        numbers.distinct(name)
    for node in graph.nodes:
        numbers.add(node)
    return numbers.of


class _Numbers:
    """Value numbering, a channel at a time: what is computed in the same way from channels of the
    same numbers has the same number."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.of: dict[str, Array] = {}
        self.known: dict[tuple[Any, ...], int] = {}
        self.count = 0  # numbers that are given away

    def _number(self, *key: Any) -> int:
        found = self.known.setdefault(key, self.count)
        self.count += found == self.count
        return found

    def distinct(self, name: str) -> None:
        """Give each channel a number that no other has."""
        more = channels(self.graph.type(name))
        self.of[name] = self.count + np.arange(more)
        self.count += more

    def add(self, node: Node) -> None:
        """Number the channels of what a node makes."""
        of = self.graph.type(node.output)
        made = self._made_of(node)
        if made is None or any(len(set(rows)) == channels(of) for rows in made):
            self.distinct(node.output)
            return
        kinds, numbers = self._steps(node.epilogue, channels(of), len(of.shape))
        types = tuple(self.graph.types(node.inputs))
        how = self._number(_without_channels(node.op), types, kinds)
        rows = zip(*made, *numbers, strict=True)
        self.of[node.output] = np.array([self._number(how, *row) for row in rows], np.int64)

    def _made_of(self, node: Node) -> list[list[bytes]] | None:
        """What an operator makes each channel of its result from."""
        types = self.graph.types(node.inputs)
        made: list[list[bytes]] = []
        if isinstance(node.op, Conv2d | Dense):
            weights = self.graph.constants.get(node.inputs[1])
            if weights is None:
                return None
            made.append(_rows(weights.reshape(len(weights), -1)))
            if mixes(node.op):
                return [*made, [self._channels_of(node.inputs[0]).tobytes()] * len(weights)]
        places = apart(node.op, types)
        if places is None:
            return None
        if isinstance(node.op, Reshape):
            made.append(
                _rows(
                    np.arange(channels(Type(node.op.shape, types[0].dtype))) // channels(types[0])
                )
            )
        picked = [
            np.where(place == NONE, NONE, self._channels_of(name)[place])
            for name, place in zip(node.inputs, places, strict=False)
        ]
        if joins(node.op, types):  # a channel is one of one input, wherever it stands
            picked = [np.max(picked, axis=0)]
        return [*made, *map(_rows, picked)]

    def _channels_of(self, name: str) -> Array:
        """The numbers of a tensor's channels; those of a constant follow from its values."""
        value = self.graph.constants.get(name)
        if value is None:
            return self.of[name]
        kind = value.shape[:-1], value.dtype.str
        rows = _rows(np.moveaxis(np.atleast_1d(value), -1, 0))
        return np.array([self._number(kind, row) for row in rows], np.int64)

    def _steps(
        self, chain: Sequence[Step], count: int, rank: int
    ) -> tuple[tuple[Any, ...], list[list[bytes]]]:
        """What steps are, and the numbers that they have for each channel."""
        kinds: list[Any] = []
        numbers: list[list[bytes]] = []
        for step in chain:
            kind, inner = replace(step, operand=None), None
            if kind.along == rank - 1 and not kind.keeps_channels:
                kind, each = kind.apart()
                numbers.append(_rows(each))
            if step.operand is not None:
                name = step.operand.tensor
                numbers.append(_rows(np.broadcast_to(self._channels_of(name), (count,))))
                inner, more = self._steps(step.operand.steps, count, rank)
                inner = self.graph.type(name).shape[:-1], inner
                numbers += more
            kinds.append((kind, inner))
        return tuple(kinds), numbers


def _rows(values: Array) -> list[bytes]:
    return [row.tobytes() for row in values]


def _without_channels(op: Op) -> Op:
    """The operator without the channels that it takes: those have numbers."""
    if isinstance(op, Slice):
        return replace(op, begin=(*op.begin[:-1], 0), strides=(*op.strides[:-1], 1))
    return op
