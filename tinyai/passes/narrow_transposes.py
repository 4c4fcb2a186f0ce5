"""What is transposed is transposed while it is narrow."""

from __future__ import annotations

from dataclasses import replace

from tinyai.ir import Graph, Node, Step, Tensor, Type, unused_name
from tinyai.ops import Elementwise, Transpose
from tinyai.passes.make_tables import depends_on_value_alone
from tinyai.passes.sink_widening import dtypes, narrowest


def narrow_transposes(graph: Graph) -> Graph:
    """The tail of an epilogue that widens moves after the transposition that alone reads it.

    Networks of images leave their region so, where the host has them channels first: int8 is turned
    and then made float, a quarter of the bytes. ``merge_permutes`` moves transpositions to where a
    tensor is narrow; here it is narrow inside of a node.
    """
    tails: dict[str, tuple[Step, ...]] = {}
    for node in graph.nodes:
        maker = graph.makers.get(node.inputs[0]) if isinstance(node.op, Transpose) else None
        if maker is not None and graph.uses[maker.output] == 1:
            tail = maker.epilogue[narrowest(dtypes(graph, maker)) :]
            if tail and all(depends_on_value_alone(graph, step) for step in tail):
                tails[maker.output] = tail
    tensors = dict(graph.tensors)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.output in tails:
            node = replace(node, epilogue=node.epilogue[: -len(tails[node.output])])
            narrow = Type(graph.type(node.output).shape, dtypes(graph, node)[-1])
            tensors[node.output] = Tensor(node.output, narrow)
        elif isinstance(node.op, Transpose) and node.inputs[0] in tails:
            shape, tail = graph.type(node.output).shape, tails[node.inputs[0]]
            turned = unused_name("t", tensors)
            tensors[turned] = Tensor(turned, Type(shape, tensors[node.inputs[0]].type.dtype))
            nodes.append(replace(node, output=turned))
            node = Node(Elementwise(shape), (turned,), node.output, tail, node.sources)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)
