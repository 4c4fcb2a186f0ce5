"""Kernels that take 16 neighbouring elements of the output at a time through the epilogue:
elementwise nodes and sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tinyai.codegen.index import Axis, element, merge_dims
from tinyai.codegen.kernels.reduce import SumLoops
from tinyai.codegen.kernels.table import Kernel, Values
from tinyai.codegen.steps import Epilogue
from tinyai.codegen.vector_steps import NoVector, VectorSteps, load, store
from tinyai.ir import Graph, Node, Op, operand_tensors
from tinyai.ops import Elementwise, Sum


@dataclass(frozen=True)
class Loops:
    """Loops over the output, lanes along the last, and the ``places`` of its dimensions; for each
    element ``inner`` loops add up the input's elements at ``taken`` (no inner loop: the element
    itself)."""

    axes: Sequence[Axis]
    places: Sequence[Axis]
    inner: Sequence[Axis]
    taken: str


def _elementwise(graph: Graph, node: Node) -> Loops:
    (source,) = graph.types(node.inputs)
    operands = graph.types(operand_tensors(node.epilogue))
    shape = graph.type(node.output).shape
    axes = merge_dims(shape, [source.shape, *(operand.shape for operand in operands)])
    if not axes:
        raise NoVector("a scalar")
    last = source.shape[-len(axes[-1].sizes) :]
    if last != axes[-1].sizes:
        raise NoVector("an input that is broadcast inside of the lanes")
    return Loops(axes, axes, (), element(source.shape, axes))


def _sum(graph: Graph, node: Node) -> Loops:
    assert isinstance(node.op, Sum)
    (source,) = graph.types(node.inputs)
    if len(source.shape) - 1 in node.op.axes:
        raise NoVector("a sum over the last axis")
    loops = SumLoops.of(graph, node)
    return Loops(loops.kept, loops.places, loops.reduced, loops.taken)


KINDS: dict[type[Op], Callable[[Graph, Node], Loops]] = {Elementwise: _elementwise, Sum: _sum}


def _write(graph: Graph, node: Node, epilogue: Epilogue) -> Values:
    """Raises ``NoVector`` with the reason where the node is none for these kernels."""
    (source,) = graph.types(node.inputs)
    loops = KINDS[type(node.op)](graph, node)
    out = graph.type(node.output)
    writer = VectorSteps(epilogue, loops.places)
    if loops.inner and source.dtype.is_float:
        raise NoVector("a sum of floats")
    value = load(f"in0 + {loops.taken}", source.dtype)
    start = node.op.infer(source).dtype
    result, dtype = writer.write("total" if loops.inner else value, start)
    assert dtype is out.dtype
    return {
        "loops": loops,
        "value": value,
        "lines": writer.lines,
        "store": store(f"out + {element(out.shape, loops.places)}", result, dtype),
        "last": loops.axes[-1],
    }


def _demands(graph: Graph, node: Node) -> str | None:
    try:
        _write(graph, node, Epilogue(graph, node))
    except NoVector as reason:
        return str(reason)
    return None


KERNELS = tuple(
    Kernel(
        name=f"{op.name}_lanes_avx512vnni",
        op=op,
        isa="avx512vnni",
        template="lanes_avx512vnni.c.j2",
        demands=_demands,
        values=_write,
    )
    for op in KINDS
)
