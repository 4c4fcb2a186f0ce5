"""Steps work in 32 bits where 64 make no difference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tinyai.ir import DType, Graph, Node, Operand, Step
from tinyai.ops import steps


def narrow_steps(graph: Graph) -> Graph:
    """The widening of an int32 to int64 moves after the steps that give both the same result, and
    away where another type follows.

    ``relay.quantize`` widens in front of each fixed-point multiplication, which multiplies in 64
    bits and wraps to 32 whatever the type of its value is.
    """
    return replace(graph, nodes=tuple(_narrowed(graph, node) for node in graph.nodes))


def _narrowed(graph: Graph, node: Node) -> Node:
    start = node.op.infer(*graph.types(node.inputs)).dtype
    return replace(node, epilogue=_chain(graph, node.epilogue, start))


def _chain(graph: Graph, chain: Iterable[Step], dtype: DType) -> tuple[Step, ...]:
    result: list[Step] = []
    waits = False  # a widening from int32 that no step needed yet
    for step in chain:
        if waits and not step.commutes_with_widening():
            result.append(steps.Cast(DType.INT64))
            waits = False
        if step == steps.Cast(DType.INT64) and dtype is DType.INT32:
            waits = True
        else:
            result.append(step.with_operand(lambda operand: _narrow_operand(graph, operand)))
        dtype = step.result(dtype)
        waits = waits and dtype is DType.INT64
    return (*result, steps.Cast(DType.INT64)) if waits else tuple(result)


def _narrow_operand(graph: Graph, operand: Operand) -> Operand:
    dtype = graph.type(operand.tensor).dtype
    return replace(operand, steps=_chain(graph, operand.steps, dtype))
