"""Functions of one 8-bit integer become tables of their 256 results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tinyai.ir import (
    NARROW,
    Array,
    DType,
    Graph,
    Node,
    Step,
    every_step,
    operand_tensors,
    step_types,
)
from tinyai.ops import Elementwise
from tinyai.ops.steps import Lookup
from tinyai.reference import run_steps

FEWEST_STEPS = 4  # shorter chains of integers cost less than a look-up


def make_tables(graph: Graph) -> Graph:
    """A stretch of an epilogue from 8 bits to 8 bits whose steps depend on the value alone becomes
    one look-up: rescaling, activation functions in float, any chain of such.

    The table is what the steps' references compute, so it is exact.
    """
    return replace(graph, nodes=tuple(_tabulate(graph, node) for node in graph.nodes))


def _tabulate(graph: Graph, node: Node) -> Node:
    dtype = graph.computed(node).dtype
    # Operands that read the node's own input are functions of the value as well, until it changes.
    own = node.inputs[0] if isinstance(node.op, Elementwise) else None
    if own is not None and graph.type(own).shape != graph.type(node.output).shape:
        own = None
    steps: list[Step] = []
    rest = list(node.epilogue)
    while rest:
        length = _longest(graph, dtype, rest, own) if dtype in NARROW else 0
        if length:
            steps.append(_lookup(graph, dtype, rest[:length], own))
        else:
            steps.append(rest[0])
        dtype = steps[-1].result(dtype)
        del rest[: length or 1]
        own = None
    return replace(node, epilogue=tuple(steps))


def _longest(graph: Graph, start: DType, steps: Sequence[Step], own: str | None) -> int:
    """How many steps the longest stretch has that is worth a table; 0 for none."""
    best, dtype = 0, start
    for count, step in enumerate(steps, 1):
        if not depends_on_value_alone(graph, step, own):
            break
        dtype = step.result(dtype)
        if dtype in NARROW and _is_worth_it(start, steps[:count]):
            best = count
    return best


def _is_worth_it(start: DType, steps: Sequence[Step]) -> bool:
    """Whether a look-up costs less: it does beside a function in float, or another look-up."""
    return (
        len(steps) >= FEWEST_STEPS
        or any(isinstance(step, Lookup) for step in steps)
        or any(dtype.is_float for dtype in step_types(start, steps))
    )


def depends_on_value_alone(graph: Graph, step: Step, own: str | None = None) -> bool:
    """Whether a step gives equal values equal results, wherever they stand; those of the tensor
    ``own`` are the value itself."""
    if any(each.along is not None for each in every_step([step])):
        return False
    return all(
        name == own or (name in graph.constants and graph.constants[name].size == 1)
        for name in operand_tensors([step])
    )


def _lookup(graph: Graph, dtype: DType, steps: Sequence[Step], own: str | None) -> Lookup:
    low, high = dtype.range
    values: Array = np.arange(low, high + 1).astype(dtype.numpy)
    scalars = {
        # A node of a constant may read it as an operand too: there it is the value, all the same.
        name: values if name == own else graph.constants[name].reshape(-1)
        for name in operand_tensors(steps)
    }
    result = run_steps(steps, values, scalars)
    return Lookup(tuple(map(int, result)), DType(result.dtype.name))
