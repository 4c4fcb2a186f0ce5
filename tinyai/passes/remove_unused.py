"""Drop what no output depends on."""

from __future__ import annotations

from dataclasses import replace

from tinyai.ir import Graph, Node


def remove_unused(graph: Graph) -> Graph:
    """The graph without nodes, constants and tensors that no output reads. Inputs stay: they are
    the region's signature."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.output in needed:
            needed.update(node.reads())
            kept.append(node)
    kept.reverse()
    alive = needed | set(graph.inputs)
    return replace(
        graph,
        nodes=tuple(kept),
        tensors={name: tensor for name, tensor in graph.tensors.items() if name in alive},
        constants={name: value for name, value in graph.constants.items() if name in alive},
    )
