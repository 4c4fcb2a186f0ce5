"""The rules that a graph obeys."""

from __future__ import annotations

from tinyai.errors import GraphError
from tinyai.ir.graph import Graph, Node, format_node, print_graph
from tinyai.ir.steps import Step
from tinyai.ir.types import DType, Stored, Tensor, Type


def verify(graph: Graph) -> Graph:
    """Return ``graph`` when it obeys the rules, else raise ``GraphError`` at the failing node.

    Rules: a tensor is defined before it is read, and once; its type is what the operator's and the
    steps' rules say; an operand broadcasts to the output; constants match their types;
    quantization parameters fit the type and the axis; a record of stored channels fits the type;
    outputs are defined by nodes, each once, and whole.
    """
    defined = {*graph.inputs, *graph.constants}
    for name in (*graph.inputs, *graph.constants):
        _check_tensor(graph, name)
    for node in graph.nodes:
        _check_node(graph, node, defined)
        defined.add(node.output)
    by_nodes = {node.output for node in graph.nodes}
    for name in graph.outputs:
        if name not in by_nodes:
            raise GraphError(f"output %{name} of graph {graph.name}", found="no node defines it")
        if graph.tensors[name].stored:
            raise GraphError(f"output %{name} of graph {graph.name}", found="channels are missing")
    if len(set(graph.outputs)) != len(graph.outputs):
        raise GraphError(f"outputs of graph {graph.name}", found="a tensor is returned twice")
    return graph


def _check_tensor(graph: Graph, name: str) -> None:
    tensor = graph.tensors[name]
    value = graph.constants.get(name)
    if value is not None and (value.shape, value.dtype) != (
        tensor.type.shape,
        tensor.type.dtype.numpy,
    ):
        raise GraphError(
            f"constant {tensor}", found=f"{value.dtype}{list(value.shape)}", allowed=tensor.type
        )
    if tensor.stored is not None:
        _check_stored(tensor, tensor.stored)
    quant = tensor.quant
    if quant is None:
        return
    channels = 1 if quant.axis is None else None
    if quant.axis is not None and 0 <= quant.axis < len(tensor.type.shape):
        channels = tensor.type.shape[quant.axis]
    if tensor.type.dtype.is_float or channels != len(quant.scale):
        raise GraphError(
            f"quantization of {tensor}",
            found=f"{len(quant.scale)} scale(s), axis {quant.axis}, {tensor.type}",
            allowed="an integer type, and one scale or one a channel of an axis that exists",
        )


def _check_stored(tensor: Tensor, stored: Stored) -> None:
    others = [channel for channel, _ in (*stored.constant, *stored.equal)]
    every = sorted([*stored.channels, *others])
    shape = tensor.type.shape
    if (
        not shape
        or shape[-1] != len(stored.channels)
        or list(stored.channels) != sorted(stored.channels)
        or every != sorted(set(every) & set(range(stored.whole)))
        or not {other for _, other in stored.equal} <= set(stored.channels)
    ):
        raise GraphError(
            f"stored channels of {tensor}",
            found=f"{len(stored.channels)} channels, {len(others)} that follow from them",
            allowed="one a place of the last dimension, each once, in order; others less than "
            "whole, equal ones equal to a stored one",
        )


def _check_node(graph: Graph, node: Node, defined: set[str]) -> None:
    def fail(what: str, found: object, allowed: object) -> GraphError:
        text = f"{what}\n  at {format_node(graph, node)}\nin {print_graph(graph)}"
        return GraphError(text, found=found, allowed=allowed)

    for name in node.reads():
        if name not in defined:
            raise fail(f"%{name} is read", "not defined yet", "inputs, constants, earlier outputs")
    if node.output in defined:
        raise fail(f"%{node.output} is written", "defined before", "a new name")
    try:
        result = graph.computed(node)
        dtype = _epilogue_type(graph, node.epilogue, result)
    except ValueError as error:
        raise fail(
            "an operator's rule is broken", error, "see the operator in tinyai/ops"
        ) from None
    if node.epilogue and not node.op.takes_epilogue:
        raise fail("an epilogue", node.op.name, "an operator that takes one")
    output = graph.tensors.get(node.output)
    if output is None or output.type != Type(result.shape, dtype):
        found = output.type if output else "none"
        raise fail("the type of an output", found, Type(result.shape, dtype))
    try:
        _check_tensor(graph, node.output)
    except GraphError as error:
        raise fail(error.what, error.found, error.allowed) from None


def _epilogue_type(graph: Graph, steps: tuple[Step, ...], start: Type) -> DType:
    dtype = start.dtype
    for step in steps:
        if not step.fits(start.shape):
            raise ValueError(f"{step.text(str)} does not fit {start.shape}")
        if step.operand is not None:
            operand = graph.type(step.operand.tensor)
            if not broadcasts(operand.shape, start.shape):
                raise ValueError(f"operand {operand} does not broadcast to {start.shape}")
            inner = _epilogue_type(graph, step.operand.steps, Type(start.shape, operand.dtype))
            if inner != step.operand_type(dtype):
                raise ValueError(f"operand of {step.name} is {inner}, the value is {dtype}")
        dtype = step.result(dtype)
    return dtype


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether ``shape`` broadcasts to ``to`` (right-aligned, as numpy and Relay do)."""
    if len(shape) > len(to):
        return False
    return all(have in (1, want) for have, want in zip(reversed(shape), reversed(to), strict=False))
