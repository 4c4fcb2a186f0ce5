"""Elementwise nodes behind a reshape of sums come in front of it, where these can take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tinyai.ir import Array, Graph, Node, Operand, Step, Tensor, Type, unused_name
from tinyai.ops import Elementwise, Reshape
from tinyai.passes.orders import without_ones


def sink_reshapes(graph: Graph) -> Graph:
    """Move the reshape of a kernel's result behind the elementwise nodes that read nothing else:
    a product of two dimensions has three in the source model, and takes its epilogue then.

    Their operands have the dimensions before the reshape: constants anew, tensors by reshapes of
    their own, which cost nothing.
    """
    moving = _Moving(graph, dict(graph.tensors), dict(graph.constants))
    for node in graph.nodes:
        moving.add(node)
    return replace(
        graph,
        nodes=tuple(moving.nodes.values()),
        tensors=moving.tensors,
        constants=moving.constants,
    )


class _Fixed(Exception):
    """An elementwise node has no meaning before the reshape."""


@dataclass
class _Moving:
    """The graph so far. ``taking`` are results of kernels, with what is elementwise behind them,
    which one node alone reads; ``reshaped`` such results by their reshape."""

    graph: Graph
    tensors: dict[str, Tensor]
    constants: dict[str, Array]
    nodes: dict[str, Node] = field(default_factory=dict)
    taking: set[str] = field(default_factory=set)
    reshaped: dict[str, str] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        source = node.inputs[0] if node.inputs else ""
        if isinstance(node.op, Elementwise) and source in self.reshaped:
            try:
                self._swap(node, self.reshaped[source])
                return
            except _Fixed:
                pass
        self.nodes[node.output] = node
        if self.graph.uses[node.output] != 1:
            return
        if isinstance(node.op, Reshape) and source in self.taking:
            self.reshaped[node.output] = source
        elif isinstance(node.op, Elementwise):
            if source in self.taking and self._shape(source) == self._shape(node.output):
                self.taking.add(node.output)
        elif node.op.takes_epilogue:
            self.taking.add(node.output)

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].type.shape

    def _swap(self, node: Node, source: str) -> None:
        """The node on ``source``, and the reshape behind it. Raises ``_Fixed``."""
        (middle,) = node.inputs
        before, after = self._shape(source), self._shape(node.output)
        if self._shape(middle) != after:
            raise _Fixed
        steps = self._steps(node.epilogue, before, after)
        old = self.tensors[node.output]
        name = self._define(Type(before, old.type.dtype))
        if old.quant is not None and old.quant.axis is None:
            self.tensors[name] = replace(self.tensors[name], quant=old.quant)
        reshape = self.nodes.pop(middle)
        self.nodes[name] = Node(Elementwise(before), (source,), name, steps, node.sources)
        self.nodes[node.output] = replace(
            reshape, op=Reshape(after), inputs=(name,), output=node.output
        )
        if self.graph.uses[node.output] == 1:
            self.reshaped[node.output] = name

    def _steps(
        self, steps: Sequence[Step], before: tuple[int, ...], after: tuple[int, ...]
    ) -> tuple[Step, ...]:
        return tuple(self._step(each, before, after) for each in steps)

    def _step(self, step: Step, before: tuple[int, ...], after: tuple[int, ...]) -> Step:
        if step.along is not None:
            axis = step.along - len(after) + len(before)
            if len(after) - step.along > _common(before, after):
                raise _Fixed
            step = step.with_elements(range(after[step.along]), axis)
        if step.operand is None:
            return step
        inner = self._steps(step.operand.steps, before, after)
        return replace(
            step, operand=Operand(self._operand(step.operand.tensor, before, after), inner)
        )

    def _operand(self, name: str, before: tuple[int, ...], after: tuple[int, ...]) -> str:
        """The operand's name in the dimensions before the reshape."""
        of = self.tensors[name].type
        own = without_ones(of.shape)
        if len(own) > _common(before, after):
            if of.shape != after:
                raise _Fixed
            own = before
        if own == of.shape:
            return name
        made = self._define(replace(of, shape=own), "c" if name in self.constants else "t")
        if name in self.constants:
            value = self.constants[name].reshape(own)
            value.setflags(write=False)
            self.constants[made] = value
        else:
            self.nodes[made] = Node(Reshape(own), (name,), made)
        return made

    def _define(self, of: Type, prefix: str = "t") -> str:
        name = unused_name(prefix, self.tensors)
        self.tensors[name] = Tensor(name, of)
        return name


def _common(before: tuple[int, ...], after: tuple[int, ...]) -> int:
    """How many dimensions both end with."""
    pairs = zip(reversed(before), reversed(after), strict=False)
    return next(
        (n for n, (one, other) in enumerate(pairs) if one != other), min(len(before), len(after))
    )
