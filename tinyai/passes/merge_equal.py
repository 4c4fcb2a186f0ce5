"""Common subexpressions: equal nodes of equal inputs are computed once."""

from __future__ import annotations

from dataclasses import replace

from tinyai.ir import Array, Graph, Node, rename_reads


def merge_equal(graph: Graph) -> Graph:
    """Nodes with the same operator, inputs and epilogue become one, and so do equal constants.

    ``tvm.relay.quantize`` casts a value once for each of its users; behind a residual fork only
    the merged cast lets the convolution in front store int8. The kept node names the
    sources of all. Graph outputs keep their own nodes.
    """
    alias: dict[str, str] = {}
    seen_constants: dict[tuple[object, ...], str] = {}
    for name, value in graph.constants.items():
        alias[name] = seen_constants.setdefault(_constant_key(value), name)

    kept: dict[str, Node] = {}
    seen: dict[Node, str] = {}
    for node in graph.nodes:
        node = rename_reads(node, lambda name: alias.get(name, name))
        if node.output in graph.outputs:
            kept[node.output] = node
            continue
        first = seen.setdefault(replace(node, output="", sources=()), node.output)
        alias[node.output] = first
        if first == node.output:
            kept[first] = node
        else:
            names = dict.fromkeys((*kept[first].sources, *node.sources))
            kept[first] = replace(kept[first], sources=tuple(names))
    return replace(graph, nodes=tuple(kept.values()))


def _constant_key(value: Array) -> tuple[object, ...]:
    return value.dtype.str, value.shape, value.tobytes()
