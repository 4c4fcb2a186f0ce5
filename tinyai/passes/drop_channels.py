"""Channels that need not be computed go away: those whose values are the same for every input,
those that nobody reads, and those that equal another one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeGuard

import numpy as np

from tinyai.dropped import Dropped
from tinyai.ir import (
    Array,
    DType,
    Graph,
    Node,
    Op,
    Operand,
    Step,
    Stored,
    Tensor,
    Type,
    every_step,
    operand_tensors,
    unused_name,
)
from tinyai.ops import Elementwise
from tinyai.ops.contraction import Contraction
from tinyai.ops.steps import Add
from tinyai.passes.channels import apart, equal_channels, joins
from tinyai.passes.ranges import ranges
from tinyai.passes.remove_unused import remove_unused
from tinyai.traits import NONE, Range

Widths = tuple[int, int]
WIDTHS = 8, 16  # kernels sum up 16 channels at once; reading them is fastest in eights
ROUNDS = 8  # what went may make more channels constant or equal


def drop_channels(graph: Graph, widths: Widths = WIDTHS) -> Graph:
    """The graph without the channels that its outputs do not need.

    A convolution or dense layer without a border reads a constant channel as a part of its bias;
    with a border only where the constant is the data's zero point, for that is what stands beyond
    the edge. Of equal channels one is read, by the sum of the weights. What keeps channels apart
    (depthwise layers, poolings, sums of branches, concatenations) drops a channel in its inputs and
    its result together, or not at all. Inputs and outputs of the graph stay whole.

    Convolutions and dense layers keep a multiple of the first of ``widths``, and all where no block
    of as many as the second is saved: kernels compute a block at once.
    """
    graph = remove_unused(graph)
    for _ in range(ROUNDS):
        after = _once(graph, widths)
        if after is None:
            break
        graph = after
    return graph


def _once(graph: Graph, widths: Widths) -> Graph | None:
    """One round; None where all channels are needed."""
    facts = _Facts.of(graph)
    kept = _needed(graph, facts, widths)
    if all(each.all() for each in kept.values()):
        return None
    after = remove_unused(_Rewriting(graph, facts, kept).run())
    gone = _counts(graph, facts, kept)
    macs = graph.macs() - after.macs()
    weights = graph.weight_bytes() - after.weight_bytes()
    gone = replace(gone, macs=macs, weight_bytes=weights)
    return replace(after, dropped=graph.dropped + gone)


@dataclass(frozen=True, eq=False)
class _Mixed:
    """What a convolution or dense layer reads: ``weights`` with those of equal channels added up at
    the first of them, [channels of the result, taps, channels of the data]; ``free`` are the
    channels of the data that go into the bias, ``less`` (one a channel) is what each is worth."""

    weights: Array
    free: Array
    less: Array

    @cached_property
    def reads(self) -> Array:
        """Whether each channel of the result reads each channel of the data."""
        read: Array = (self.weights != 0).any(axis=1) & ~self.free
        return read


@dataclass(frozen=True, eq=False)
class _Facts:
    """What is known about a graph: ranges and numbers of equal channels by tensor, and how the
    nodes that mix channels read, by output."""

    ranges: Mapping[str, Range]
    equal: Mapping[str, Array]
    mixed: Mapping[str, _Mixed]

    @classmethod
    def of(cls, graph: Graph) -> _Facts:
        found, equal = ranges(graph), equal_channels(graph)
        mixed = {
            node.output: _mixed(graph, node, node.op, found[node.inputs[0]], equal)
            for node in graph.nodes
            if _mixes(node.op) and node.inputs[1] in graph.constants
        }
        return cls(found, equal, mixed)

    def reasons(self, name: str, of: Type, kept: Array) -> tuple[Array, Array, Array]:
        """For each channel of a tensor of which ``kept`` stay: whether it is constant (floats are
        not, for there are two zeros), its least value, and which channel that stays it equals,
        ``NONE`` where there is none or it is constant."""
        constant = self.ranges[name].constant & (not of.dtype.is_float)
        numbers = self.equal[name]
        stay = {int(numbers[c]): int(c) for c in reversed(np.flatnonzero(kept))}
        equal = np.array([stay.get(int(number), NONE) for number in numbers])
        return constant, self.ranges[name].low, np.where(constant, NONE, equal)


def _mixes(op: Op) -> TypeGuard[Contraction]:
    return isinstance(op, Contraction) and op.mixes_channels


def _mixed(
    graph: Graph, node: Node, op: Contraction, data: Range, equal: Mapping[str, Array]
) -> _Mixed:
    weights = graph.constants[node.inputs[1]]
    rows = weights.reshape(len(weights), -1, weights.shape[-1])
    less = data.low - op.zero_point
    free = data.constant & (np.full(len(less), not op.meets_edge) | (less == 0))
    numbers = equal.get(node.inputs[0])
    if numbers is not None:
        rows = _added_up(rows, np.where(free, -1 - np.arange(len(free)), numbers))
    return _Mixed(rows, free, less)


def _added_up(rows: Array, numbers: Array) -> Array:
    """Weights of channels of one number, added up at the first where the sums fit the type."""
    limits = np.iinfo(rows.dtype.name)
    _, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[place] != np.arange(len(numbers)))
    rows = rows.copy() if len(again) else rows
    for channel in again:
        to = first[place[channel]]
        total = rows[:, :, to].astype(np.int64) + rows[:, :, channel]
        if total.min() >= limits.min and total.max() <= limits.max:
            rows[:, :, to], rows[:, :, channel] = total, 0
    return rows


# --- Which channels are needed -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Link:
    """A tensor whose channels a node reads one by one.

    ``place`` has, for each channel of the node's result, the channel of the tensor that it is made
    of, or ``NONE``. Where ``both`` is set, the two channels are stored together or not at all;
    else one channel of the tensor is read for many.
    """

    tensor: str
    place: Array
    both: bool


def _needed(graph: Graph, facts: _Facts, widths: Widths) -> dict[str, Array]:
    """Which channels of each tensor are to be stored: the fewest. Of constants, all.

    All channels are marked where the graph begins and ends, and at nodes that keep theirs. Marks
    spread from there along the nodes until none is new. Then layers are rounded up to widths that
    kernels want, and what that marks spreads again.
    """
    whole = {*graph.inputs, *graph.outputs, *graph.constants}
    links: dict[str, tuple[_Link, ...]] = {}
    for node in graph.nodes:
        if _keeps_all(graph, node):
            whole.update((*node.reads(), node.output))
        else:
            links[node.output] = tuple(_links(graph, node))
    kept = {name: np.full(graph.type(name).channels, name in whole) for name in graph.tensors}
    while True:
        before = _marks(kept)
        for node in (*reversed(graph.nodes), *graph.nodes):
            _spread(node, facts, kept, links.get(node.output, ()))
        if _marks(kept) > before:
            continue
        rounded = [_rounded_up(kept[node.output], widths) for node in _summing(graph)]
        if not any(rounded):
            return kept


def _marks(kept: Mapping[str, Array]) -> int:
    return sum(int(channels.sum()) for channels in kept.values())


def _rounded_up(kept: Array, widths: Widths) -> bool:
    """Mark channels of a layer until they are a multiple of the first width, or all of them where
    that needs no more blocks of the second width. False where nothing was marked."""
    (width, block), count, have = widths, len(kept), int(kept.sum())
    wanted = min(count, math.ceil(have / width) * width)
    if math.ceil(have / block) == math.ceil(count / block):
        wanted = count
    if have in (0, wanted):
        return False
    kept[np.flatnonzero(~kept)[: wanted - have]] = True
    return True


def _keeps_all(graph: Graph, node: Node) -> bool:
    """Whether a node keeps all channels of what it reads and makes."""
    op, data = node.op, node.inputs[0]
    if any(step.keeps_channels for step in every_step(node.epilogue)):
        return True
    if isinstance(op, Contraction) and node.inputs[1] not in graph.constants:
        return True  # the weights have to be cut
    if _mixes(op):
        return data in graph.constants
    places, count = apart(op, graph.types(node.inputs)), graph.type(data).channels
    if places is None or op.with_channels(np.ones(count, bool), count) is None:
        return True  # it cannot do without some
    return data in graph.constants and not isinstance(op, Elementwise) and len(places) == 1


def _links(graph: Graph, node: Node) -> Iterable[_Link]:
    """The tensors whose channels a node reads one by one: inputs, unless it adds them up, and
    operands of its steps."""
    count = graph.type(node.output).channels
    places = () if _mixes(node.op) else apart(node.op, graph.types(node.inputs)) or ()
    for name, place in zip(node.inputs, places, strict=False):
        if name not in graph.constants:
            broadcast = isinstance(node.op, Elementwise) and graph.type(name).channels < count
            yield _Link(name, place, both=not broadcast)
    for name in operand_tensors(node.epilogue):
        if name not in graph.constants:
            channels = graph.type(name).channels
            yield _Link(name, np.arange(count) % channels, both=channels == count)


def _spread(node: Node, facts: _Facts, kept: Mapping[str, Array], links: Iterable[_Link]) -> None:
    """Mark the channels that a node reads to make the marked ones of its result; and of its result
    those that go with a marked channel of an input."""
    result = kept[node.output]
    for link in links:
        read, made_of_it = kept[link.tensor], link.place != NONE
        read[link.place[made_of_it & result]] = True
        if link.both:
            result[made_of_it] |= read[link.place[made_of_it]]
    mixed = facts.mixed.get(node.output)
    if mixed is not None and result.any():
        data = kept[node.inputs[0]]
        data |= mixed.reads[result].any(axis=0)
        if not data.any():
            data[0] = True  # a layer reads something


# --- Without the others --------------------------------------------------------------------------


class _Rewriting:
    def __init__(self, graph: Graph, facts: _Facts, kept: Mapping[str, Array]) -> None:
        self.graph, self.facts, self.kept = graph, facts, kept
        self.constants: dict[str, Array] = dict(graph.constants)
        self.tensors = dict(graph.tensors)
        self.made: dict[tuple[object, ...], str] = {}

    def run(self) -> Graph:
        nodes = [self._node(node) for node in self.graph.nodes if self.kept[node.output].any()]
        for node in nodes:
            self._record(node.output)
        return replace(
            self.graph, nodes=tuple(nodes), tensors=self.tensors, constants=self.constants
        )

    def _constant(self, like: str, value: Array) -> str:
        """Name of a new constant in the place of ``like``, or of that where nothing changed."""
        value = np.ascontiguousarray(value)
        if value.shape == self.constants[like].shape and np.array_equal(
            value, self.constants[like]
        ):
            return like
        key = value.dtype.str, value.shape, value.tobytes()
        if key in self.made:
            return self.made[key]
        name = self.made[key] = unused_name("c", self.tensors)
        value.setflags(write=False)
        self.constants[name] = value
        self.tensors[name] = Tensor(name, Type(value.shape, DType(value.dtype.name)))
        return name

    def _node(self, node: Node) -> Node:
        out, rank = self.kept[node.output], len(self.graph.type(node.output).shape)
        cut = tuple(self._step(step, out, rank) for step in node.epilogue)
        if _mixes(node.op):
            return self._mixed(replace(node, epilogue=cut), node.op.accumulator, out)
        places = apart(node.op, self.graph.types(node.inputs))
        if places is None:
            return replace(node, epilogue=cut)
        read = [self.kept[name] for name in node.inputs]
        inputs = list(node.inputs)
        for number, (name, place) in enumerate(zip(node.inputs, places, strict=False)):
            if name in self.graph.constants:
                mine = place[out & (place != NONE)]
                read[number] = np.isin(np.arange(len(read[number])), mine)
                inputs[number] = self._constant(name, self.constants[name][..., read[number]])
        if isinstance(node.op, Contraction):
            inputs[1] = self._constant(inputs[1], self.constants[inputs[1]][out])
        if joins(places):
            inputs = [name for name, each in zip(inputs, read, strict=True) if each.any()]
        # None of those that keep all.
        op = node.op.with_channels(read[0], int(out.sum())) or node.op
        return replace(node, op=op, inputs=tuple(inputs), epilogue=cut)

    def _mixed(self, node: Node, sums: DType, out: Array) -> Node:
        """A convolution or dense layer with the channels that are left, and a bias for the rest."""
        data, name = self.kept[node.inputs[0]], node.inputs[1]
        mixed, weights = self.facts.mixed[node.output], self.constants[node.inputs[1]]
        gone = mixed.free & ~data
        rest = mixed.weights[out]
        bias = rest[:, :, gone].sum(axis=1, dtype=np.int64) @ mixed.less[gone]
        shape = (len(rest), *weights.shape[1:-1], int(data.sum()))
        left = rest[:, :, data].reshape(shape)
        inputs = (node.inputs[0], self._constant(name, left))
        return self._plus(replace(node, inputs=inputs), bias, sums)

    def _plus(self, node: Node, bias: Array, sums: DType) -> Node:
        """The node with ``bias``, one number a channel, in front of its steps; sums wrap."""
        if not bias.any():
            return node
        first = node.epilogue[0] if node.epilogue else None
        if isinstance(first, Add) and first.operand and not first.operand.steps:
            name = first.operand.tensor
            value = self.constants.get(name)
            if value is not None and value.size == channels_of(value) in (1, len(bias)):
                bias, node = bias + value.reshape(-1), replace(node, epilogue=node.epilogue[1:])
        like = unused_name("c", self.tensors)
        self.constants[like] = np.zeros(0, sums.numpy)
        total = self._constant(like, bias.astype(sums.numpy))
        return replace(node, epilogue=(Add(operand=Operand(total)), *node.epilogue))

    def _step(self, step: Step, out: Array, rank: int) -> Step:
        """A step with the numbers of the channels that are left."""
        if step.along == rank - 1:
            step = step.with_elements(np.flatnonzero(out).tolist(), rank - 1)

        def of_kept(operand: Operand) -> Operand:
            name = operand.tensor
            value = self.graph.constants.get(name)
            if value is not None and channels_of(value) == len(out):
                name = self._constant(name, value[..., out] if value.ndim else value)
            return Operand(name, tuple(self._step(each, out, rank) for each in operand.steps))

        return step.with_operand(of_kept)

    def _record(self, name: str) -> None:
        """The tensor's new type, and which of its source's channels it stores."""
        kept, old = self.kept[name], self.graph.tensors[name]
        if kept.all():
            return
        of = replace(old.type, shape=(*old.type.shape[:-1], int(kept.sum())))
        quant = old.quant
        if quant and quant.axis == len(of.shape) - 1:
            scale = tuple(s for s, mine in zip(quant.scale, kept, strict=True) if mine)
            quant = replace(quant, scale=scale)
        stored = _stored(old, kept, *self.facts.reasons(name, old.type, kept))
        self.tensors[name] = replace(old, type=of, quant=quant, stored=stored)


def channels_of(value: Array) -> int:
    return value.shape[-1] if value.ndim else 1


def _stored(old: Tensor, kept: Array, constant: Array, values: Array, equal: Array) -> Stored:
    """The record of a tensor that keeps the channels ``kept``. Of the others, ``constant`` have
    these ``values``; ``equal`` is the channel that each equals, or ``NONE``."""
    before = old.stored or Stored(len(kept), tuple(range(len(kept))))
    name = before.channels
    gone = [int(c) for c in np.flatnonzero(~kept)]
    numbers = {name[c]: int(values[c]) for c in gone if constant[c]}
    same = {name[c]: name[int(equal[c])] for c in gone if not constant[c] and equal[c] != NONE}
    # What equalled a channel that goes now is what that channel is.
    for channel, other in before.equal:
        if other in numbers:
            numbers[channel] = numbers[other]
        elif other in same:
            same[channel] = same[other]
        elif kept[name.index(other)]:
            same[channel] = other
    return Stored(
        before.whole,
        tuple(name[c] for c in np.flatnonzero(kept)),
        tuple(sorted([*before.constant, *numbers.items()])),
        tuple(sorted(same.items())),
    )


def _counts(graph: Graph, facts: _Facts, kept: Mapping[str, Array]) -> Dropped:
    """How many channels of convolutions and dense layers go, by reason."""
    total = Dropped()
    for node in _summing(graph):
        mine = kept[node.output]
        constant, _, equal = facts.reasons(node.output, graph.type(node.output), mine)
        gone = int((~mine).sum())
        dead, same = int((constant & ~mine).sum()), int(((equal != NONE) & ~mine).sum())
        total += Dropped(dead, same, gone - dead - same)
    return total


def _summing(graph: Graph) -> list[Node]:
    """The nodes that sum up products."""
    return [node for node in graph.nodes if isinstance(node.op, Contraction)]
