"""Images in the order that kernels want."""

from __future__ import annotations

from tinyai.ir import Graph, Node
from tinyai.ops.window import ImageOp
from tinyai.passes.orders import Ports, Turn, full_rank, plain, rewrite, tidy

# Passes know no kernels. The rows of the kernel table that read and write images are best in this
# order, all of them: channels last, so that a register holds channels of one pixel.
BEST = "NHWC"


def permute(graph: Graph) -> Graph:
    """Every operator with a layout works in ``BEST``, between transpositions of what it reads and
    writes. What its steps say of an axis, and constants, are turned.

    Two such operators, one after the other, have no transposition between them. The others are
    left to ``merge_permutes``.
    """
    if not any(map(_is_to_turn, graph.nodes)):
        return graph
    graph = full_rank(graph, _is_to_turn)
    views = {
        name: plain(tensor.type.shape)
        for name, tensor in graph.tensors.items()
        if name not in graph.constants
    }
    ports = {}
    for node in filter(_is_to_turn, graph.nodes):
        # The same turn for all: weights have none, and are left alone.
        turn = Turn.of(tuple(map(_layout(node).index, BEST)))
        ports[node.output] = Ports(turn, turn)
    return tidy(rewrite(graph, views, {}, ports))


def _is_to_turn(node: Node) -> bool:
    return _layout(node) != BEST


def _layout(node: Node) -> str:
    """The order of an image's dimensions; the best one for what is none."""
    return node.op.layout if isinstance(node.op, ImageOp) else BEST
