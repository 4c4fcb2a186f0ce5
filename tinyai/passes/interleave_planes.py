"""Images whose channels come in planes are quantized while they are transposed."""

from __future__ import annotations

from dataclasses import replace

from tinyai.ir import NARROW, Graph, Node
from tinyai.ops import Elementwise, Interleave, Transpose
from tinyai.passes.make_tables import depends_on_value_alone

# Planes that are interleaved at once. More of them are transposed in squares, which hold no steps.
MOST = 8


def interleave_planes(graph: Graph) -> Graph:
    """An elementwise node that makes 8 bits of floats, and the transposition that alone reads it
    and makes channels of a few planes, become one node.

    An image of colours is so read once and written once, with the border that its reader wants.
    """
    nodes = {node.output: node for node in graph.nodes}
    for node in graph.nodes:
        maker = graph.makers.get(node.inputs[0])
        axis = _axis(graph, maker, node) if maker else None
        if maker is not None and axis is not None:
            del nodes[maker.output]
            sources = tuple(dict.fromkeys(maker.sources + node.sources))
            op, steps = Interleave(axis), maker.epilogue
            nodes[node.output] = Node(op, maker.inputs, node.output, steps, sources)
    return replace(graph, nodes=tuple(nodes.values()))


def _axis(graph: Graph, maker: Node, node: Node) -> int | None:
    """The dimension of the planes, where both nodes are what becomes one."""
    if not isinstance(maker.op, Elementwise) or not isinstance(node.op, Transpose):
        return None
    *others, axis = node.op.axes
    source, narrow = graph.type(maker.inputs[0]), graph.type(maker.output)
    fits = (
        others == sorted(others)
        and axis < len(others)
        and 1 < narrow.shape[axis] <= MOST
        and source.dtype.is_float
        and source.shape == narrow.shape
        and narrow.dtype in NARROW
        and graph.uses[maker.output] == 1
        and all(depends_on_value_alone(graph, step) for step in maker.epilogue)
    )
    return axis if fits else None
