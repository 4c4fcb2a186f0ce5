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
        steps = node.epilogue if isinstance(node.op, Contraction) else ()
        begin = next((n for n, step in enumerate(steps) if isinstance(step, Lookup)), None)
        if begin is not None:
            shape = graph.type(node.output).shape
            before = unused_name("t", tensors)
            tensors[before] = Tensor(before, Type(shape, dtypes(graph, node)[begin]))
            nodes.append(replace(node, output=before, epilogue=steps[:begin]))
            node = replace(node, op=Elementwise(shape), inputs=(before,), epilogue=steps[begin:])
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)
