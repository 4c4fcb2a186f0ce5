"""A border that a convolution would add itself is added by it."""

from __future__ import annotations

from dataclasses import replace

from tinyai.ir import Graph, Node
from tinyai.ops import Conv2d, Pad
from tinyai.ops.window import axes


def fold_pads(graph: Graph) -> Graph:
    """A pad of height and width by the zero point, read by a convolution alone, becomes padding of
    its window: TFLite's strided convolutions come so."""
    nodes: list[Node] = []
    for node in graph.nodes:
        pad = graph.makers.get(node.inputs[0])
        if pad is not None and graph.uses[pad.output] == 1 and _fits(node, pad):
            nodes.remove(pad)
            node = _folded(node, pad)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _fits(node: Node, pad: Node) -> bool:
    op, border = node.op, pad.op
    if not (isinstance(border, Pad) and isinstance(op, Conv2d) and op.window.upsample == (1, 1)):
        return False
    n, _, _, c = axes(op.layout)
    return border.value == op.zero_point and border.widths[n] == border.widths[c] == (0, 0)


def _folded(node: Node, pad: Node) -> Node:
    op, border = node.op, pad.op
    assert isinstance(op, Conv2d)
    assert isinstance(border, Pad)
    _, h, w, _ = axes(op.layout)
    (top, bottom), (left, right) = border.widths[h], border.widths[w]
    own = op.window.padding
    padding = (own[0] + top, own[1] + left, own[2] + bottom, own[3] + right)
    window = replace(op.window, padding=padding)
    sources = tuple(dict.fromkeys((*pad.sources, *node.sources)))
    return replace(
        node, op=replace(op, window=window), inputs=(pad.inputs[0], node.inputs[1]), sources=sources
    )
