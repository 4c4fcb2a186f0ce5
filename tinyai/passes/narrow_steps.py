"""Steps work in 32 bits where 64 make no difference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tinyai.ir import DType, Graph, Operand, Step
from tinyai.ops import steps


def narrow_steps(graph: Graph) -> Graph:
    """The widening of an int32 to int64 moves after the steps that give both the same result, and
    away where another type follows.

    ``relay.quantize`` widens in front of each fixed-point multiplication, which multiplies in 64
    bits and wraps to 32 whatever the type of its value is.
    """

    def narrower(chain: Iterable[Step], dtype: DType) -> tuple[Step, ...]:
        result: list[Step] = []
        waits = False  # a widening from int32 that no step needed yet
        for step in chain:
            if waits and not step.commutes_with_widening():
                result.append(steps.Cast(DType.INT64))
                waits = False
            if step == steps.Cast(DType.INT64) and dtype is DType.INT32:
                waits = True
            else:
                result.append(step.with_operand(with_narrower_steps))
            dtype = step.result(dtype)
            waits = waits and dtype is DType.INT64
        return (*result, steps.Cast(DType.INT64)) if waits else tuple(result)

    def with_narrower_steps(operand: Operand) -> Operand:
        return replace(operand, steps=narrower(operand.steps, graph.type(operand.tensor).dtype))

    nodes = (
        replace(node, epilogue=narrower(node.epilogue, graph.computed(node).dtype))
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))
