"""Steps that change no value go away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tinyai.ir import DType, Graph, Node, Operand, Step


def drop_idle_steps(graph: Graph) -> Graph:
    """Epilogues without sums with zero, casts to the type that a value has, and bounds that hold
    every value: what is left of zero points of 0 and of bounds that fusion brought together.

    After all passes that look for a zero point.
    """
    return replace(graph, nodes=tuple(_shortened(graph, node) for node in graph.nodes))


def _shortened(graph: Graph, node: Node) -> Node:
    start = node.op.infer(*graph.types(node.inputs)).dtype
    return replace(node, epilogue=_busy(graph, node.epilogue, start))


def _busy(graph: Graph, chain: Iterable[Step], dtype: DType) -> tuple[Step, ...]:
    kept = []
    for step in chain:
        if not _is_idle(graph, step, dtype):
            kept.append(step.with_operand(lambda operand: _busy_operand(graph, operand)))
        dtype = step.result(dtype)
    return tuple(kept)


def _busy_operand(graph: Graph, operand: Operand) -> Operand:
    dtype = graph.type(operand.tensor).dtype
    return replace(operand, steps=_busy(graph, operand.steps, dtype))


def _is_idle(graph: Graph, step: Step, dtype: DType) -> bool:
    """Floats keep all: adding zero changes -0.0, bounds change NaN."""
    return not dtype.is_float and step.is_identity(dtype, graph.constant_operand(step))
