"""Channels, the last dimension of a tensor: which of them operators keep apart, and which channels
of a tensor hold the same values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinyai.ir import Array, Graph, Node, Op, Step, Type
from tinyai.ops.contraction import Contraction
from tinyai.traits import NONE


def apart(op: Op, inputs: Sequence[Type]) -> tuple[Array, ...] | None:
    """For each input that is data, which of its channels each channel of the result is made of,
    ``NONE`` for none of it; None where an operator does not keep channels apart."""
    found = op.channel_map(*inputs)
    return found.places if found else None


def joins(places: Sequence[Array]) -> bool:
    """Whether the channels of several inputs stand one after the other in the result."""
    return any(bool(np.any(place == NONE)) for place in places)


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
        more = self.graph.type(name).channels
        self.of[name] = self.count + np.arange(more)
        self.count += more

    def add(self, node: Node) -> None:
        """Number the channels of what a node makes."""
        of = self.graph.type(node.output)
        made = self._made_of(node)
        if made is None or any(len(set(rows)) == of.channels for rows in made):
            self.distinct(node.output)
            return
        kinds, numbers = self._steps(node.epilogue, of.channels, len(of.shape))
        types = tuple(self.graph.types(node.inputs))
        how = self._number(node.op.without_channels(), types, kinds)
        rows = zip(*made, *numbers, strict=True)
        self.of[node.output] = np.array([self._number(how, *row) for row in rows], np.int64)

    def _made_of(self, node: Node) -> list[list[bytes]] | None:
        """What an operator makes each channel of its result from."""
        types = self.graph.types(node.inputs)
        made: list[list[bytes]] = []
        if isinstance(node.op, Contraction):
            weights = self.graph.constants.get(node.inputs[1])
            if weights is None:
                return None
            made.append(_rows(weights.reshape(len(weights), -1)))
            if node.op.mixes_channels:
                return [*made, [self._channels_of(node.inputs[0]).tobytes()] * len(weights)]
        found = node.op.channel_map(*types)
        if found is None:
            return None
        if found.pieces is not None:
            made.append(_rows(found.pieces))
        picked = [
            np.where(place == NONE, NONE, self._channels_of(name)[place])
            for name, place in zip(node.inputs, found.places, strict=False)
        ]
        if joins(found.places):  # a channel is one of one input, wherever it stands
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
    """The bytes of each, all copied at once."""
    whole, size = values.tobytes(), values[:1].nbytes
    return [whole[place * size : (place + 1) * size] for place in range(len(values))]
