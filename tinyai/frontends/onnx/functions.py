"""Functions of a file's own, put in place of their calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tinyai.frontends.faults import Fault
from tinyai.frontends.onnx.checks import DOMAINS
from tinyai.frontends.onnx.facts import graphs_in

# Operators of a model with its functions in place: more are no model's.
MOST_OPERATORS = 200_000


def inlined(model: Any) -> Any:
    """The model without calls of functions; itself where it has none, or where one has the name of
    an operator of ONNX's, which the checks refuse, as they do one of another opset.

    Raises ``Fault`` for functions that call themselves, or are called without an end.
    """
    functions = {(each.domain, each.name): each for each in model.functions}
    if not functions or any(domain in DOMAINS for domain, _ in functions):
        return model
    _require_few(model.graph, functions)
    try:
        from onnx.inliner import inline_local_functions
    except ImportError:  # onnx before 1.15
        return model
    return inline_local_functions(model)


def _require_few(graph: Any, functions: Mapping[tuple[str, str], Any]) -> None:
    """Counts the operators and calls in a graph, and in what it calls; each function once."""
    counts: dict[tuple[str, str], int] = {}
    open_: set[tuple[str, str]] = set()

    def count(body: Any) -> int:
        total = 0
        for node in nodes_of(body):
            key = node.domain, node.op_type
            if key in functions:
                _require_arguments(node, functions[key])
            if key in functions and key not in counts:
                if key in open_:
                    raise Fault(f"function {node.op_type!r} that calls itself", "one that ends")
                open_.add(key)
                counts[key] = count(functions[key])
            total += 1 + counts.get(key, 0)
            if total > MOST_OPERATORS:
                raise Fault(
                    f"functions of more than {MOST_OPERATORS} operators", "fewer, all in place"
                )
        return total

    count(graph)


def _require_arguments(node: Any, function: Any) -> None:
    for what, given, named in (
        ("inputs", node.input, function.input),
        ("outputs", node.output, function.output),
    ):
        if len(given) > len(named):
            found = f"call {node.name!r} of function {node.op_type!r} with {len(given)} {what}"
            raise Fault(found, f"{len(named)}, as the function has")


def graphs_of(body: Any) -> Iterator[Any]:
    """A graph or function, and the graphs inside of it."""
    yield body
    for node in body.node:
        for inner in graphs_in(node):
            yield from graphs_of(inner)


def nodes_of(body: Any) -> Iterator[Any]:
    """The nodes of a graph or function, and of the graphs inside of it."""
    return (node for graph in graphs_of(body) for node in graph.node)
