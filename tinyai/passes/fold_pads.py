"""A border that a convolution would add itself is added by it."""

from __future__ import annotations

from dataclasses import replace

from tinyai.ir import Graph, Node
from tinyai.ops import Pad


def fold_pads(graph: Graph) -> Graph:
    """A pad of height and width by the zero point, read by a convolution alone, becomes padding of
    its window: TFLite's strided convolutions come so."""
    nodes: list[Node] = []
    for node in graph.nodes:
        pad = graph.makers.get(node.inputs[0])
        if pad is not None and isinstance(pad.op, Pad) and graph.uses[pad.output] == 1:
            op = node.op.padded(pad.op.widths, pad.op.value)
            if op is not None:
                nodes.remove(pad)
                inputs = (pad.inputs[0], *node.inputs[1:])
                sources = tuple(dict.fromkeys((*pad.sources, *node.sources)))
                node = replace(node, op=op, inputs=inputs, sources=sources)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))
