"""Functions of one 8-bit tensor become tables before anything is fused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tinyai.ir import NARROW, Array, Graph, Node, every_step
from tinyai.ops import Elementwise
from tinyai.ops.steps import Function, Lookup
from tinyai.reference import run_steps


def tabulate_functions(graph: Graph) -> Graph:
    """An 8-bit result of elementwise nodes that depend on one 8-bit tensor alone becomes a look-up
    in that tensor, where the nodes hold a ``Function``, reach the tensor by several ways or begin
    with a constant (1 / x).

    A function has no C, so it has to go wherever it stands. Once nodes are fused it may be in an
    operand, or after a float that two readers share; here it is still between two tensors. And
    x · sigmoid(x), of which both factors are stored as 8 bits, is one table for the convolution
    that makes x.
    """
    order = {node.output: number for number, node in enumerate(graph.nodes)}
    return replace(graph, nodes=tuple(_as_table(graph, order, node) for node in graph.nodes))


def _as_table(graph: Graph, order: dict[str, int], node: Node) -> Node:
    """``node`` as a look-up, or as it is."""
    if not isinstance(node.op, Elementwise) or graph.type(node.output).dtype not in NARROW:
        return node
    span = _span(graph, order, node)
    starts = _starts(graph, span)
    if len(starts) > 1:
        span, starts = _joined(graph, order, span, starts)
    else:
        steps = every_step(step for each in span for step in each.epilogue)
        has_function = any(isinstance(step, Function) for step in steps)
        if not has_function and all(each.inputs[0] not in graph.constants for each in span):
            return node
    if len(starts) != 1:
        return node
    (start,) = starts
    read = {name for each in span for name in each.reads()}
    numbers = {name: graph.constants[name] for name in read if name in graph.constants}
    dtype = graph.type(start).dtype
    if dtype not in NARROW or not _are_of_single_values(span, numbers):
        return node
    values: dict[str, Array] = {name: array.reshape(-1)[:1] for name, array in numbers.items()}
    values[start] = np.arange(dtype.range[0], dtype.range[1] + 1).astype(dtype.numpy)
    for each in span:
        value = np.broadcast_to(values[each.inputs[0]], 256)
        values[each.output] = run_steps(each.epilogue, value, values)
    table = Lookup(tuple(map(int, values[node.output])), graph.type(node.output).dtype)
    sources = tuple(dict.fromkeys(name for each in span for name in each.sources))
    return replace(node, inputs=(start,), epilogue=(table,), sources=sources)


def _span(graph: Graph, order: dict[str, int], last: Node) -> list[Node]:
    """``last`` and the elementwise nodes after it, back to tensors of 8 bits; makers first."""
    found = {last.output}
    stack = [last]
    while stack:
        for name in stack.pop().reads():
            if name in order and name not in found and graph.type(name).dtype not in NARROW:
                maker = graph.nodes[order[name]]
                if isinstance(maker.op, Elementwise):
                    found.add(name)
                    stack.append(maker)
    return [graph.nodes[order[name]] for name in sorted(found, key=order.__getitem__)]


def _starts(graph: Graph, span: list[Node]) -> set[str]:
    """What the nodes read that is neither theirs nor constant."""
    made = {node.output for node in span}
    read = {name for node in span for name in node.reads()}
    return {name for name in read - made if name not in graph.constants}


def _joined(
    graph: Graph, order: dict[str, int], span: list[Node], starts: set[str]
) -> tuple[list[Node], set[str]]:
    """The span back to where its ways come together, if they do."""
    nodes = {node.output: node for node in span}
    while len(starts) > 1:
        last = max(starts, key=lambda name: order.get(name, -1))
        if last not in order or not isinstance(graph.nodes[order[last]].op, Elementwise):
            break
        nodes |= {node.output: node for node in _span(graph, order, graph.nodes[order[last]])}
        starts = _starts(graph, list(nodes.values()))
    return sorted(nodes.values(), key=lambda node: order[node.output]), starts


def _are_of_single_values(span: list[Node], numbers: dict[str, Array]) -> bool:
    """Whether the place of a value does not matter: every constant is one number, or many times the
    same, and no factor belongs to a channel."""
    steps = every_step(step for node in span for step in node.epilogue)
    by_place = (step.along is not None for step in steps)
    alike = (bool((array == array.flat[0]).all()) for array in numbers.values())
    return all(alike) and not any(by_place)
