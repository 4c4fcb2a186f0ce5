"""The integer arithmetic of one element, step by step: the operators' references, asked for each.

Nothing is computed anew here: a layer's reference runs as it always does, and what it gives after
each step is read at one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

import numpy as np

from tinyai.checking.result import ArithmeticLine, Number
from tinyai.ir import Array, Graph, Node, Operand, Step
from tinyai.ops import Elementwise
from tinyai.ops.contraction import Contraction
from tinyai.reference import run_steps

Index = tuple[int, ...]


def arithmetic(
    graph: Graph, node: Node, values: Mapping[str, Array], index: Index
) -> tuple[ArithmeticLine, ...]:
    """How one element of a node's result comes about; ``values`` holds what the node reads."""
    return tuple(_lines(graph, node, values, index))


def _lines(
    graph: Graph, node: Node, values: Mapping[str, Array], index: Index
) -> Iterator[ArithmeticLine]:
    value = node.op.reference(*(values[name] for name in node.inputs))
    if isinstance(node.op, Contraction):
        yield from _products(node, values, index)
    elif isinstance(node.op, Elementwise):
        yield ArithmeticLine(f"{_named(graph, node.inputs[0])}, {value.dtype}", _at(value, index))
    else:
        yield ArithmeticLine(str(node.op), _at(value, index))
    for step in node.epilogue:
        operand = None
        if step.operand is not None:
            yield from _operand(graph, step.operand, values, value.shape, index)
            operand = _after(step.operand, values, value.shape)
        value = step.reference(value, operand)
        said = None if operand is None else _at(np.broadcast_to(operand, value.shape), index)
        yield ArithmeticLine(_said(step, index, said), _at(value, index))


def _products(node: Node, values: Mapping[str, Array], index: Index) -> Iterator[ArithmeticLine]:
    """A sum of products in its parts, by the operator's own reference: it is linear."""
    assert isinstance(node.op, Contraction)
    data, weight = (values[name] for name in node.inputs)
    zero = node.op.zero_point
    plain = node.op.with_zero_point(0)
    count = _at(plain.reference(np.ones_like(data), np.ones_like(weight)), index)
    yield ArithmeticLine(
        f"{node.op.name}: sum of {count} products of data and weight",
        _at(plain.reference(data, weight), index),
    )
    if zero:
        weights = _at(plain.reference(np.ones_like(data), weight), index)
        total = _at(node.op.reference(data, weight), index)
        yield ArithmeticLine(f"less zero point {zero} times sum of weights {weights}", total)


def _operand(
    graph: Graph, operand: Operand, values: Mapping[str, Array], shape: Index, index: Index
) -> Iterator[ArithmeticLine]:
    """What an operand goes through before a step reads it; nothing of a constant without steps."""
    value = np.broadcast_to(values[operand.tensor], shape)
    if operand.tensor in graph.constants and not operand.steps:
        return
    yield ArithmeticLine(f"{_named(graph, operand.tensor)}, {value.dtype}", _at(value, index), 1)
    for step in operand.steps:
        inner = None
        if step.operand is not None:
            yield from _operand(graph, step.operand, values, shape, index)
            inner = _after(step.operand, values, shape)
        value = step.reference(value, inner)
        said = None if inner is None else _at(inner, index)
        yield ArithmeticLine(_said(step, index, said), _at(value, index), 1)


def _after(operand: Operand, values: Mapping[str, Array], shape: Index) -> Array:
    return run_steps(operand.steps, np.broadcast_to(values[operand.tensor], shape), values)


def _said(step: Step, index: Index, operand: Number | None) -> str:
    """A step with its numbers for this element."""
    if step.along is not None:
        step = step.with_elements([index[step.along]], step.along)
    words = [step.name.replace("_", " ")]
    words += [] if operand is None else [str(operand)]
    for each in fields(step):
        value = getattr(step, each.name)
        if each.name in ("operand", "axis"):
            continue
        if isinstance(value, tuple):
            value = value[0] if len(value) == 1 else f"of {len(value)} values"
        words.append(f"{each.name} {value}")
    return " ".join(words)


def _named(graph: Graph, tensor: str) -> str:
    """A tensor by the source model's name, as far as it has one."""
    if tensor in graph.inputs:
        return f"input {graph.inputs.index(tensor)}"
    maker = graph.makers.get(tensor)
    if maker is None:
        return "constant"
    number = list(graph.makers).index(tensor)
    return f"result of layer {number}" + (f" ({maker.sources[0]})" if maker.sources else "")


def _at(value: Array, index: Index) -> Number:
    number: Number = value[index].item()
    return number
