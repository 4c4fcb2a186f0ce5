"""Functions of one tensor of 8 or 16 bits become tables before anything is fused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tinyai.ir import NARROW, Array, DType, Graph, Node, every_step
from tinyai.ops import Elementwise
from tinyai.ops.steps import Function, Lookup
from tinyai.ops.steps.tables import VALUES
from tinyai.reference import run_steps


def tabulate_functions(graph: Graph) -> Graph:
    """An 8-bit result of elementwise nodes that depend on one 8-bit tensor alone becomes a look-up
    in that tensor, where the nodes hold a ``Function``, reach the tensor by several ways or begin
    with a constant (1 / x). Of 16 bits, on either side, only what holds a ``Function`` does: such a
    table has 65,536 results.

    Most functions have no C, so they have to go wherever they stand. Once nodes are fused one may
    be in an operand, or after a float that two readers share; here it is still between two tensors.
    And x · sigmoid(x), of which both factors are stored as 8 bits, is one table for the convolution
    that makes x.
    """
    order = {node.output: number for number, node in enumerate(graph.nodes)}
    return replace(graph, nodes=tuple(_as_table(graph, order, node) for node in graph.nodes))


def _as_table(graph: Graph, order: dict[str, int], node: Node) -> Node:
    """``node`` as a look-up, or as it is. A look-up in 8 bits is preferred."""
    if isinstance(node.op, Elementwise) and graph.type(node.output).dtype in VALUES:
        for ends in NARROW, tuple(VALUES):
            span = _span_of_one(graph, order, node, ends)
            if span is not None:
                return _looked_up(graph, node, span)
    return node


def _span_of_one(
    graph: Graph, order: dict[str, int], node: Node, ends: Sequence[DType]
) -> _Span | None:
    """What becomes a look-up, from one tensor to the result of ``node``; None where that is not
    possible, or not worth it. Tensors with a dtype of ``ends`` end a span."""
    span = _span(graph, order, node, ends)
    starts = _starts(graph, span)
    joined = len(starts) > 1
    if joined:
        span, starts = _joined(graph, order, span, starts, ends)
    if len(starts) != 1:
        return None
    (start,) = starts
    dtypes = {graph.type(start).dtype, graph.type(node.output).dtype}
    steps = every_step(step for each in span for step in each.epilogue)
    if not any(isinstance(step, Function) for step in steps):
        begins = any(each.inputs[0] in graph.constants for each in span)
        if not dtypes <= {*NARROW} or not (joined or begins):
            return None
    read = {name for each in span for name in each.reads()}
    numbers = {name: graph.constants[name] for name in read if name in graph.constants}
    if not dtypes <= {*VALUES} or not _are_of_single_values(span, numbers):
        return None
    return _Span(start, tuple(span), numbers)


@dataclass(frozen=True)
class _Span:
    """Elementwise nodes, makers first, that depend on the tensor ``start`` and on constant
    ``numbers`` alone."""

    start: str
    nodes: tuple[Node, ...]
    numbers: dict[str, Array]


def _looked_up(graph: Graph, node: Node, span: _Span) -> Node:
    """``node``, which is the last of a span, as a look-up."""
    of = graph.type(span.start).dtype
    values: dict[str, Array] = {name: each.reshape(-1)[:1] for name, each in span.numbers.items()}
    values[span.start] = np.arange(of.range[0], of.range[1] + 1).astype(of.numpy)
    for each in span.nodes:
        value = np.broadcast_to(values[each.inputs[0]], VALUES[of])
        values[each.output] = run_steps(each.epilogue, value, values)
    table = Lookup(tuple(values[node.output].tolist()), graph.type(node.output).dtype)
    sources = tuple(dict.fromkeys(name for each in span.nodes for name in each.sources))
    return replace(node, inputs=(span.start,), epilogue=(table,), sources=sources)


def _span(graph: Graph, order: dict[str, int], last: Node, ends: Sequence[DType]) -> list[Node]:
    """``last`` and the elementwise nodes after it, back to tensors of ``ends``; makers first."""
    found = {last.output}
    stack = [last]
    while stack:
        for name in stack.pop().reads():
            if name in order and name not in found and graph.type(name).dtype not in ends:
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
    graph: Graph,
    order: dict[str, int],
    span: list[Node],
    starts: set[str],
    ends: Sequence[DType],
) -> tuple[list[Node], set[str]]:
    """The span back to where its ways come together, if they do."""
    nodes = {node.output: node for node in span}
    while len(starts) > 1:
        last = max(starts, key=lambda name: order.get(name, -1))
        if last not in order or not isinstance(graph.nodes[order[last]].op, Elementwise):
            break
        nodes |= {node.output: node for node in _span(graph, order, graph.nodes[order[last]], ends)}
        starts = _starts(graph, list(nodes.values()))
    return sorted(nodes.values(), key=lambda node: order[node.output]), starts


def _are_of_single_values(span: list[Node], numbers: dict[str, Array]) -> bool:
    """Whether the place of a value does not matter: every constant is one number, or many times the
    same, and no factor belongs to a channel."""
    steps = every_step(step for node in span for step in node.epilogue)
    by_place = (step.along is not None for step in steps)
    alike = (bool((array == array.flat[0]).all()) for array in numbers.values())
    return all(alike) and not any(by_place)
