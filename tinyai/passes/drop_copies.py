"""Copies that change nothing go away."""

from __future__ import annotations

from dataclasses import replace

from tinyai.ir import Graph, Node, rename_reads
from tinyai.ops import Elementwise


def drop_copies(graph: Graph) -> Graph:
    """Readers of an elementwise node without steps read its input, where the shape is the same.

    A copy that makes an output stays: outputs are memory of the caller's.
    """
    alias: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node = rename_reads(node, lambda name: alias.get(name, name))
        if _is_copy(graph, node) and node.output not in graph.outputs:
            alias[node.output] = node.inputs[0]
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _is_copy(graph: Graph, node: Node) -> bool:
    return (
        isinstance(node.op, Elementwise)
        and not node.epilogue
        and graph.type(node.inputs[0]).shape == node.op.shape
    )
