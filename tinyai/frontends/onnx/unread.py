"""Nodes that tinyai does not read, for ONNX Runtime to run: as they are, under other names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tinyai.frontends.onnx.facts import NO_RULE, Facts, graphs_in
from tinyai.source import Unread


@dataclass(frozen=True)
class UnreadNode(Unread):
    """The origin of a call that stands for a node that is not read: the node, of a file of this
    ``opset``. The call's operands are the values of ``names_read``."""

    node: Any
    opset: int


def names_read(node: Any) -> list[str]:
    """What a node reads: its operands that have a name, and what graphs inside of it read of the
    values around them; each once."""
    return list(dict.fromkeys([*filter(None, node.input), *names_around(node)]))


def names_around(node: Any) -> Iterator[str]:
    """What graphs inside of a node read of the values around them."""
    for graph in graphs_in(node):
        made = names_made(graph)
        read = [name for inner in graph.node for name in names_read(inner)]
        read += [value.name for value in graph.output]
        yield from (name for name in read if name not in made)


def names_made(graph: Any) -> set[str]:
    """The names of a graph's own values: inputs, constants, and what its nodes make."""
    made = {each.name for each in (*graph.initializer, *graph.input)}
    return made | {name for node in graph.node for name in node.output if name}


def renamed(node: Any, names: Mapping[str, str], inner: str = "") -> Any:
    """The node with other ``names``, where they are others; those of values of graphs inside of it
    begin with ``inner`` then."""
    made = type(node)()
    made.CopyFrom(node)
    for field in (made.input, made.output):
        field[:] = [names.get(name, name) for name in field]
    for graph in graphs_in(made):
        known = {**names, **{name: inner + name for name in names_made(graph)}}
        for value in (*graph.initializer, *graph.input, *graph.output):
            value.name = known.get(value.name, value.name)
        nodes = [renamed(each, known, inner) for each in graph.node]
        del graph.node[:], graph.value_info[:]
        graph.node.extend(nodes)
    return made


def in_opset(node: Any, opset: int, wanted: int, values: list[Any]) -> Any:
    """A graph of the node of a file of ``opset`` as the ``wanted`` one has it; ``values`` declare
    what it reads. Raises one of onnx's errors where there is none."""
    import onnx
    from onnx.version_converter import convert_version

    helper = onnx.helper
    results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", values, results)
    inside = [*graphs_in(graph.node[0])]
    around = Facts(opset).hide_misfits(helper.make_graph([], "values", values, []))
    for each in inside:
        _convert(each, around, wanted)
    if inside or node.domain not in ("", "ai.onnx"):
        return graph
    since = {onnx.defs.get_schema(node.op_type, each).since_version for each in (opset, wanted)}
    if len(since) == 1:
        return graph
    Facts(opset).hide_misfits(graph)
    if graph.node[0].domain == NO_RULE:
        raise ValueError("operands that do not fit")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return convert_version(model, wanted).graph


def _convert(graph: Any, around: Facts, wanted: int) -> None:
    """Convert the nodes of a graph, one by one: new names get their number. ``around`` is what is
    known of the values that it reads."""
    import onnx

    nodes = []
    ends = onnx.GraphProto(input=graph.input, initializer=graph.initializer)
    here = around.hide_misfits(ends)
    for number, node in enumerate(graph.node):
        values = [here.declaration(name) for name in names_read(node)]
        made = in_opset(node, here.opset, wanted, values)
        here = here.after(node)
        new = names_made(made) - {*names_read(node), *node.output}
        names = {name: f"{name}.{number}" for name in new}
        for tensor in made.initializer:
            tensor.name = names[tensor.name]
            graph.initializer.append(tensor)
        nodes += [renamed(each, names) for each in made.node]
    del graph.node[:]
    graph.node.extend(nodes)
