"""Elementwise nodes become steps of the node that makes their input, or of the one that reads them.

After this pass a requantization chain runs on the accumulator before it is stored, and the second
branch of a residual add is converted while it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tinyai.ir import Graph, Node, Operand, Step, operand_tensors
from tinyai.ops import Elementwise


def fuse_epilogues(graph: Graph) -> Graph:
    """Merge every elementwise node into the node before it, where it is the only reader.

    A chain that meets a convolution only as the second operand of an add changes places with the
    first, so that the convolution takes it; what is left are operands that a kernel reads.
    """
    uses = graph.uses
    made: dict[str, Node] = {}
    for node in graph.nodes:
        if isinstance(node.op, Elementwise):
            node = _fuse(graph, _swap(graph, node, made, uses), made, uses)
        made[node.output] = node
    return replace(graph, nodes=tuple(_absorb_operands(made, uses).values()))


def _fuse(graph: Graph, node: Node, made: dict[str, Node], uses: Mapping[str, int]) -> Node:
    """The node fused with the node before it, which leaves ``made``; or the node as it is."""
    (source,) = node.inputs
    before = made.get(source)
    if before is None or not _can_fuse(graph, before, node, uses):
        return node
    del made[source]
    return Node(
        before.op,
        before.inputs,
        node.output,
        before.epilogue + node.epilogue,
        tuple(dict.fromkeys(before.sources + node.sources)),
    )


def _can_fuse(graph: Graph, before: Node, node: Node, uses: Mapping[str, int]) -> bool:
    return (
        before.op.takes_epilogue
        and uses[before.output] == 1
        and graph.type(before.output).shape == graph.type(node.output).shape
    )


def _swap(graph: Graph, node: Node, made: dict[str, Node], uses: Mapping[str, int]) -> Node:
    """Value and operand of the first step change places where only the operand's maker can take
    the node as its epilogue and is more than elementwise."""
    first = node.epilogue[0] if node.epilogue else None
    if first is None or first.operand is None or first.commuted is None:
        return node
    if first.operand.steps:  # they would have to run on the running value
        return node
    value, operand = made.get(node.inputs[0]), made.get(first.operand.tensor)
    if operand is None or not _is_kernel(operand) or not _can_fuse(graph, operand, node, uses):
        return node
    if value is not None and _is_kernel(value) and _can_fuse(graph, value, node, uses):
        return node
    swapped = replace(first.commuted, operand=Operand(node.inputs[0]))
    return replace(node, inputs=(operand.output,), epilogue=(swapped, *node.epilogue[1:]))


def _is_kernel(node: Node) -> bool:
    return not isinstance(node.op, Elementwise)


def _absorb_operands(made: dict[str, Node], uses: Mapping[str, int]) -> dict[str, Node]:
    """Elementwise nodes that are read once, as an operand, become steps of that operand."""
    operands = {name for node in made.values() for name in operand_tensors(node.epilogue)}
    absorbed = {
        name: node
        for name, node in made.items()
        if isinstance(node.op, Elementwise) and uses[name] == 1 and name in operands
    }

    def absorb(step: Step) -> Step:
        if step.operand is None:
            return step
        inner = tuple(absorb(each) for each in step.operand.steps)
        maker = absorbed.get(step.operand.tensor)
        if maker is None:
            return replace(step, operand=Operand(step.operand.tensor, inner))
        before = tuple(absorb(each) for each in maker.epilogue)
        return absorb(replace(step, operand=Operand(maker.inputs[0], before + inner)))

    def sources(node: Node) -> Iterator[str]:
        yield from node.sources
        for name in operand_tensors(node.epilogue):
            if name in absorbed:
                yield from sources(absorbed[name])

    return {
        name: replace(
            node,
            epilogue=tuple(absorb(step) for step in node.epilogue),
            sources=tuple(dict.fromkeys(sources(node))),
        )
        for name, node in made.items()
        if name not in absorbed
    }
