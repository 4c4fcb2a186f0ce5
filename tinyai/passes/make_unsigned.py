"""Signed images become unsigned ones where no reader notices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tinyai.ir import Array, DType, Graph, Node, Op, Operand, Step, Tensor, Type, operands
from tinyai.ops import Elementwise, steps
from tinyai.ops.bounds import INT32_MAX, largest_size

OFFSET = 128
# Integers up to which floats have every one, and those next to it.
WHOLE = 1 << 23


def make_unsigned(graph: Graph) -> Graph:
    """An int8 tensor is stored as uint8, each value and zero point 128 larger, where a
    requantization makes it and all its readers can take a zero point off: convolutions, dense
    layers, averages, sums of branches. What moves elements, or takes the largest, carries what is
    larger on: all that it reads and makes is stored so, or nothing.

    Products of unsigned by signed bytes are what SIMD instructions compute; a signed input costs
    them an instruction for every load.
    """
    return _Rewriting(graph).run(_Rewriting(graph).chosen())


class _Rewriting:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants: dict[str, Array] = dict(graph.constants)
        self.tensors = dict(graph.tensors)

    def chosen(self) -> set[str]:
        """The tensors that are stored so."""
        found = {node.output for node in self.graph.nodes if self._fits(node)}
        together = [
            {node.output, *(name for name in node.inputs if self._is_signed(name))}
            for node in self.graph.nodes
            if self._carries(node)
        ]
        while apart := [names for names in together if names & found and not names <= found]:
            found = found.difference(*apart)
        return found

    def _is_signed(self, name: str) -> bool:
        return self.graph.type(name).dtype is DType.INT8

    def _carries(self, node: Node) -> bool:
        """Whether a result is larger where all its data is, of one type with it."""
        if node.epilogue or not node.inputs or not self._is_signed(node.output):
            return False
        shifted = node.op.shifted(OFFSET, self.graph.type(node.inputs[0]))
        return self._is_signed(node.inputs[0]) and shifted == (node.op, OFFSET)

    def _fits(self, node: Node) -> bool:
        name = node.output
        readers = self.graph.readers[name]
        return (
            self._is_signed(name)
            and name not in self.graph.outputs
            and bool(readers)
            and (self._carries(node) or self._tail(node) is not None)
            and all(self._carries(reader) or self._takes(reader, name) for reader in readers)
        )

    def _tail(self, node: Node) -> tuple[Step, ...] | None:
        """The epilogue of ``node`` for values that are 128 larger, with zero point, bounds and cast
        changed at its end, or a table; None where it does not end so."""
        chain = list(node.epilogue)
        last = chain[-1] if chain else None
        if isinstance(last, steps.Lookup) and last.to is DType.INT8:
            larger = tuple(each + OFFSET for each in last.table)
            return *chain[:-1], replace(last, table=larger, to=DType.UINT8)
        at = len(chain)
        while at and isinstance(chain[at - 1], steps.Clip | steps.Cast):
            at -= 1
        before, bounds = chain[:at], chain[at:]
        casts = [step for step in bounds if isinstance(step, steps.Cast)]
        bounded = bool(bounds) and isinstance(bounds[0], steps.Clip)
        if not bounded or [step.to for step in casts] != [DType.INT8]:
            return None
        start = dtype = self.graph.computed(node).dtype
        for step in before:
            dtype = step.result(dtype)
        zero = before[-1] if before else None
        known = self.graph.number_operand(zero) if isinstance(zero, steps.Add) else None
        first = before if known is None else before[:-1]
        if dtype is DType.INT32:
            if largest_size(self.graph, before, start) + OFFSET > INT32_MAX:
                return None  # the larger zero point might wrap where the other one does not
        elif dtype is DType.FLOAT32:
            if not (first and isinstance(first[-1], steps.Round) and _are_whole(bounds, known)):
                return None  # what is 128 larger might be rounded elsewhere
        else:
            return None
        moved = [
            replace(step, low=step.low + OFFSET, high=step.high + OFFSET)
            if isinstance(step, steps.Clip)
            else steps.Cast(DType.UINT8)
            for step in bounds
        ]
        number = np.zeros((), dtype.numpy) if known is None else known
        return (*first, self._plus(steps.Add, number), *moved)

    def _takes(self, reader: Node, name: str) -> bool:
        """Whether a node can take a zero point off the tensor at each place where it reads it."""
        op = reader.op
        if name in reader.inputs:
            steps_do = isinstance(op, Elementwise) and _reads(reader.epilogue)
            if reader.inputs[0] != name or reader.inputs.count(name) > 1:
                return False
            if not steps_do and self._shifted(reader) is None:
                return False
        return all(_reads(o.steps) for o in operands(reader.epilogue) if o.tensor == name)

    def _shifted(self, reader: Node) -> tuple[Op, int] | None:
        """The operator for a tensor that is larger, and what has to be taken off its result; None
        where steps would have to do it, or nobody can."""
        shifted = reader.op.shifted(OFFSET, self.graph.type(reader.inputs[0]))
        wide = self.graph.computed(reader).dtype is DType.INT32
        return shifted if shifted and (wide or shifted[1] == 0) else None

    def _moved(self, chain: Sequence[Step]) -> tuple[Step, ...]:
        """Steps that widen a tensor, or look it up, for one that is 128 larger."""
        widen, *rest = chain
        if isinstance(widen, steps.Lookup):
            return tuple(chain)
        zero = rest[0] if rest else None
        known = self.graph.number_operand(zero) if isinstance(zero, steps.Subtract) else None
        if known is None or not _are_whole((), known):
            known = np.zeros((), widen.result(DType.INT8).numpy)
        else:
            rest = rest[1:]
        return (widen, self._plus(steps.Subtract, known), *rest)

    def _plus(self, kind: type[steps.Add | steps.Subtract], number: Array) -> Step:
        """A step whose number is 128 larger."""
        return kind(operand=Operand(self._constant(number + number.dtype.type(OFFSET))))

    def _constant(self, value: Array) -> str:
        """Name of a constant number; made where there is none."""
        dtype = DType.FLOAT32 if value.dtype == np.float32 else DType.INT32
        name = f"number_{int(value.reshape(-1)[0])}_{'x'.join(map(str, value.shape))}"
        name += "_float32" if dtype.is_float else ""
        if name not in self.constants:
            self.constants[name] = value
            self.tensors[name] = Tensor(name, Type(value.shape, dtype))
        return name

    def run(self, chosen: set[str]) -> Graph:
        nodes = tuple(self._node(node, chosen) for node in self.graph.nodes)
        for name in chosen:
            old = self.tensors[name]
            quant = old.quant and replace(old.quant, zero_point=old.quant.zero_point + OFFSET)
            of = replace(old.type, dtype=DType.UINT8)
            stored = old.stored and old.stored.plus(OFFSET)
            self.tensors[name] = replace(old, type=of, quant=quant, stored=stored)
        return replace(self.graph, nodes=nodes, tensors=self.tensors, constants=self.constants)

    def _node(self, node: Node, chosen: set[str]) -> Node:
        if self._carries(node):
            return node
        if node.output in chosen:
            tail = self._tail(node)
            assert tail is not None
            node = replace(node, epilogue=tail)
        if node.inputs and node.inputs[0] in chosen:
            shifted = self._shifted(node)
            if shifted is None:
                node = replace(node, epilogue=self._moved(node.epilogue))
            else:
                op, more = shifted
                off = (self._off(more),) if more else ()
                node = replace(node, op=op, epilogue=(*off, *node.epilogue))
        return replace(node, epilogue=tuple(self._step(step, chosen) for step in node.epilogue))

    def _off(self, number: int) -> Step:
        """The step that takes a number off an int32, which wraps."""
        return steps.Subtract(operand=Operand(self._constant(np.array(number).astype(np.int32))))

    def _step(self, step: Step, chosen: set[str]) -> Step:
        def moved(operand: Operand) -> Operand:
            chain = self._moved(operand.steps) if operand.tensor in chosen else operand.steps
            return replace(operand, steps=tuple(self._step(inner, chosen) for inner in chain))

        return step.with_operand(moved)


def _reads(chain: Sequence[Step]) -> bool:
    """Whether steps begin with the widening of a tensor, or with a look-up, whose tables begin with
    the result of the lowest value."""
    widened = steps.Cast(DType.INT32), steps.Cast(DType.FLOAT32)
    return bool(chain) and (chain[0] in widened or isinstance(chain[0], steps.Lookup))


def _are_whole(bounds: Sequence[Step], number: Array | None) -> bool:
    """Whether bounds and a number are integers that floats have, with all sums of them."""
    clips = (step for step in bounds if isinstance(step, steps.Clip))
    numbers = [end for step in clips for end in (step.low, step.high)]
    numbers += [] if number is None else number.reshape(-1).tolist()
    return all(float(each).is_integer() and abs(each) <= WHOLE for each in numbers)
