"""Copies that change nothing go away."""

from __future__ import annotations

from tinyai.ir import Graph, Node, rewritten
from tinyai.ops import Elementwise


def drop_copies(graph: Graph) -> Graph:
    """Readers of an elementwise node without steps read its input, where the shape is the same.

    A copy that makes an output stays: outputs are memory of the caller's.
    """
    return rewritten(graph, lambda node: node.inputs[0] if _is_copy(graph, node) else node)


def _is_copy(graph: Graph, node: Node) -> bool:
    return (
        isinstance(node.op, Elementwise)
        and not node.epilogue
        and graph.type(node.inputs[0]).shape == node.op.shape
        and node.output not in graph.outputs
    )
