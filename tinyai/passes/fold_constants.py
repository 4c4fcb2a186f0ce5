"""Compute at code-generation time what does not depend on an input."""

from __future__ import annotations

from dataclasses import replace

from tinyai.ir import Graph, Node
from tinyai.reference import run_node


def fold_constants(graph: Graph) -> Graph:
    """Nodes that read constants only become constants, by the numpy reference of their operator.

    A node that makes an output stays: an output has to be written at run time.
    """
    constants = dict(graph.constants)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.output not in graph.outputs and all(name in constants for name in node.reads()):
            value = run_node(node, constants)
            value.setflags(write=False)
            constants[node.output] = value
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), constants=constants)
