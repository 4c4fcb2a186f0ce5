"""Which tensors are made inside of the concatenation that reads them.

A concatenation copies its inputs into its result. Where the maker of an input can write it to its
place there at once, nothing is left to copy, and the input needs no memory of its own. Along the
outermost axis the place is a stretch of bytes, which every kernel can fill; along an inner one, as
channels in NHWC, rows of it alternate with those of other inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tinyai.codegen.isa.section import Isa
from tinyai.codegen.kernels import Kernel
from tinyai.codegen.kernels.layout import places
from tinyai.ir import Graph, Node, Part, operand_tensors
from tinyai.ops import Concatenate, Reshape
from tinyai.plan import MemoryPlan, least_arena, plan_memory

Question = Callable[[Graph, Node], bool]


def plan_with_parts(
    graph: Graph, kernels: Mapping[Isa, Mapping[str, Kernel]], scratch_bytes: Mapping[str, int]
) -> tuple[Graph, MemoryPlan]:
    """The graph with the places of its tensors' parts, and its plan.

    The memory of a concatenation lives from its first input on. Where that would make the arena
    larger, the inputs stay apart.
    """

    def writes(graph: Graph, node: Node) -> bool:
        return all(rows[node.output].strided_out(graph, node) for rows in kernels.values())

    def reads(graph: Graph, node: Node) -> bool:
        return all(rows[node.output].strided_in(graph, node) for rows in kernels.values())

    joined = with_parts(graph, scratch_bytes, writes, reads)
    plan = plan_memory(joined, scratch_bytes)
    if plan.arena_bytes > least_arena(graph, scratch_bytes):
        apart = plan_memory(graph, scratch_bytes)
        if plan.arena_bytes > apart.arena_bytes:
            return graph, apart
    return joined, plan


def with_parts(
    graph: Graph, scratch_bytes: Mapping[str, int], writes: Question, reads: Question
) -> Graph:
    """The graph with the inputs of each concatenation in their places that can be made there, where
    that does not raise the lower bound of the arena. ``writes`` and ``reads`` say whether a node
    writes its result, or reads its first input (a concatenation every one), at the strides of the
    tensor."""
    bound = least_arena(graph, scratch_bytes)
    for node in reversed(graph.nodes):  # the outer ones first: inner ones become parts of them
        if not isinstance(node.op, Concatenate):
            continue
        # All at once, for one alone may cost more than it saves; else from the last one on, which
        # keep the memory for the shortest time.
        numbers = range(len(node.inputs))
        for chosen in (numbers, *((number,) for number in reversed(numbers))):
            trial = _Placing(graph, writes, reads).inputs_of(node, chosen)
            least = least_arena(trial, scratch_bytes)
            if least <= bound:
                graph, bound = trial, least
                if chosen == numbers:
                    break
    return graph


@dataclass(frozen=True)
class _Placing:
    """What decides on places in one state of a graph."""

    graph: Graph
    writes: Question
    reads: Question

    def inputs_of(self, node: Node, chosen: Iterable[int]) -> Graph:
        """The graph with the chosen inputs of a concatenation in their places."""
        graph, parts = self.graph, places(self.graph, node)
        for number in chosen:
            placing = replace(self, graph=graph)
            graph = placing.with_part(node.inputs[number], parts[number]) or graph
        return graph

    def with_part(self, name: str, part: Part) -> Graph | None:
        """The graph with the tensor in this place; None where it cannot be."""
        graph, tensor = self.graph, self.graph.tensors[name]
        maker = graph.makers.get(name)
        if maker is None or name in graph.outputs or tensor.border or tensor.part:
            return None
        placed = replace(graph, tensors={**graph.tensors, name: replace(tensor, part=part)})
        if not placed.tensors[name].dense:
            return placed if self._serves(placed, maker) else None
        if not isinstance(maker.op, Reshape):
            return placed
        (source,) = maker.inputs
        of = replace(part, strides=graph.type(source).strides)
        return replace(self, graph=placed).with_part(source, of)

    def _serves(self, placed: Graph, maker: Node) -> bool:
        """Whether the maker of a tensor and all its readers meet it at its strides."""
        name = maker.output
        return self.writes(placed, maker) and all(
            name not in operand_tensors(node.epilogue) and self.reads(placed, node)
            for node in placed.readers[name]
        )
