"""A look-up after a convolution or a dense layer is a node of its own."""

from __future__ import annotations

from dataclasses import replace

from tinyai.ir import Graph, Node, Tensor, Type, unused_name
from tinyai.ops import Elementwise
from tinyai.ops.contraction import Contraction
from tinyai.ops.steps import Lookup
from tinyai.passes.sink_widening import dtypes


def split_tables(graph: Graph) -> Graph:
    """The epilogue of a convolution or dense layer ends in front of its first look-up.

    Their kernels requantize in registers; a look-up among the steps would cost them that, and is
    faster over many bytes at once. The elementwise node that gets it may work in place.
    """
    tensors = dict(graph.tensors)
    nodes: list[Node] = []
    for node in graph.nodes:
        begin = _first_table(node)
        if begin is not None:
            shape, steps = graph.type(node.output).shape, node.epilogue
            before = unused_name("t", tensors)
            tensors[before] = Tensor(before, Type(shape, dtypes(graph, node)[begin]))
            nodes.append(replace(node, output=before, epilogue=steps[:begin]))
            behind = steps[begin:]
            node = replace(node, op=Elementwise(shape), inputs=(before,), epilogue=behind)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _first_table(node: Node) -> int | None:
    """The number of the first look-up of a node that is to have none."""
    if not isinstance(node.op, Contraction):
        return None
    places = (n for n, step in enumerate(node.epilogue) if isinstance(step, Lookup))
    return next(places, None)
