"""Functions of one 8-bit integer become tables of their 256 results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tinyai.ir import Array, DType, Graph, Node, Operand, Step, every_step, operand_tensors
from tinyai.ops import Elementwise
from tinyai.ops.steps import FixedPointMultiply, Function, Lookup
from tinyai.reference import run_steps

NARROW = (DType.INT8, DType.UINT8)
# Whether a stretch, from its type at the start, is worth a look-up.
Worth = Callable[[DType, Sequence[Step]], bool]
FEWEST_STEPS = 4  # shorter chains of integers cost less than a look-up


def make_tables(graph: Graph) -> Graph:
    """A stretch of an epilogue from 8 bits to 8 bits whose steps depend on the value alone becomes
    one look-up: rescaling, activation functions in float, any chain of such.

    An operand's own steps become one only where they hold a ``Function``, which has no C: the
    other steps have a form for several lanes at once, and a look-up has none.

    The table is what the steps' references compute, so it is exact.
    """
    return replace(graph, nodes=tuple(_tabulate(graph, node) for node in graph.nodes))


def _tabulate(graph: Graph, node: Node) -> Node:
    dtype = node.op.infer(*graph.types(node.inputs)).dtype
    # Operands that read the node's own input are functions of the value as well, until it changes.
    own = node.inputs[0] if isinstance(node.op, Elementwise) else None
    if own is not None and graph.type(own).shape != graph.type(node.output).shape:
        own = None
    return replace(node, epilogue=_with_tables(graph, dtype, node.epilogue, own, _takes_long))


def _with_tables(
    graph: Graph, dtype: DType, chain: Sequence[Step], own: str | None, worth: Worth
) -> tuple[Step, ...]:
    """The chain on a value of ``dtype``; it begins as the tensor ``own``, if there is one."""
    steps: list[Step] = []
    rest = list(chain)
    while rest:
        length = _longest(graph, dtype, rest, own, worth) if dtype in NARROW else 0
        if length:
            steps.append(_lookup(graph, dtype, rest[:length], own))
        else:
            steps.append(_with_operand_tables(graph, rest[0]))
        dtype = steps[-1].result(dtype)
        del rest[: length or 1]
        own = None
    return tuple(steps)


def _with_operand_tables(graph: Graph, step: Step) -> Step:
    """An operand's steps begin with its tensor, and so do operands of theirs that read it again:
    both are broadcast to the same shape."""
    if step.operand is None:
        return step
    tensor, inner = step.operand.tensor, step.operand.steps
    inner = _with_tables(graph, graph.type(tensor).dtype, inner, tensor, _has_function)
    return replace(step, operand=Operand(tensor, inner))


def _takes_long(start: DType, steps: Sequence[Step]) -> bool:
    return len(steps) >= FEWEST_STEPS or any(dtype.is_float for dtype in _dtypes(start, steps))


def _has_function(start: DType, steps: Sequence[Step]) -> bool:
    return any(isinstance(step, Function) for step in every_step(steps))


def _longest(
    graph: Graph, start: DType, steps: Sequence[Step], own: str | None, worth: Worth
) -> int:
    """How many steps the longest stretch has that is worth a table; 0 for none."""
    best, dtype = 0, start
    for count, step in enumerate(steps, 1):
        if not _depends_on_value_alone(graph, step, own):
            break
        dtype = step.result(dtype)
        if dtype in NARROW and worth(start, steps[:count]):
            best = count
    return best


def _dtypes(dtype: DType, steps: Sequence[Step]) -> Iterator[DType]:
    for step in steps:
        dtype = step.result(dtype)
        yield dtype


def _depends_on_value_alone(graph: Graph, step: Step, own: str | None) -> bool:
    if isinstance(step, FixedPointMultiply) and step.axis is not None:
        return False
    return all(
        name == own or (name in graph.constants and graph.constants[name].size == 1)
        for name in operand_tensors([step])
    )


def _lookup(graph: Graph, dtype: DType, steps: Sequence[Step], own: str | None) -> Lookup:
    low, high = dtype.range
    values: Array = np.arange(low, high + 1).astype(dtype.numpy)
    tensors = {name: graph.constants.get(name, values) for name in operand_tensors(steps)}
    scalars = {name: array.reshape(-1) for name, array in tensors.items()}
    result = run_steps(steps, values, scalars)
    return Lookup(tuple(map(int, result)), DType(result.dtype.name))
