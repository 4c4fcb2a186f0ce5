"""Common subexpressions: equal nodes of equal inputs are computed once."""

from __future__ import annotations

from dataclasses import replace

from tinyai.ir import Graph, Node, rewritten


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """Nodes with the same operator, inputs and epilogue become one, and so do equal constants.

    ``tvm.relay.quantize`` casts a value once for each of its users; after a residual fork only
    the merged cast lets the convolution in front store int8. The kept node names the
    sources of all. Graph outputs keep their own nodes.
    """
    constants: dict[tuple[object, ...], str] = {}
    alias = {}
    for name, value in graph.constants.items():
        key = value.dtype.str, value.shape, value.tobytes()
        alias[name] = constants.setdefault(key, name)
    nodes: dict[Node, str] = {}
    sources: dict[str, dict[str, None]] = {}

    def merged(node: Node) -> Node | str:
        if node.output in graph.outputs:
            return node
        first = nodes.setdefault(replace(node, output="", sources=()), node.output)
        sources.setdefault(first, {}).update(dict.fromkeys(node.sources))
        return node if first == node.output else first

    def named(node: Node) -> Node:
        return replace(node, sources=tuple(sources.get(node.output, node.sources)))

    graph = rewritten(graph, merged, alias)
    return replace(graph, nodes=tuple(map(named, graph.nodes)))
