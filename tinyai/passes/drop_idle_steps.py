"""Steps that change no value go away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tinyai.ir import DType, Graph, Operand, Step


def drop_idle_steps(graph: Graph) -> Graph:
    """Epilogues without sums with zero, casts to the type that a value has, and bounds that hold
    every value: what is left of zero points of 0 and of bounds that fusion brought together.

    After all passes that look for a zero point.
    """

    def shorter(chain: Iterable[Step], dtype: DType) -> tuple[Step, ...]:
        kept = []
        for step in chain:
            # Floats keep all: adding zero changes -0.0, bounds change NaN.
            if dtype.is_float or not step.is_identity(dtype, graph.constant_operand(step)):
                kept.append(step.with_operand(with_shorter_steps))
            dtype = step.result(dtype)
        return tuple(kept)

    def with_shorter_steps(operand: Operand) -> Operand:
        return replace(operand, steps=shorter(operand.steps, graph.type(operand.tensor).dtype))

    nodes = (
        replace(node, epilogue=shorter(node.epilogue, graph.computed(node).dtype))
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))
