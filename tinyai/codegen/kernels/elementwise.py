"""Kernel of elementwise nodes: the fewest loops, the steps inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tinyai.codegen.ctree import Code, Statement, let, nest
from tinyai.codegen.index import Axis, merge_dims
from tinyai.codegen.kernels.image import border_of
from tinyai.codegen.kernels.work_stealing import axis_share, cut
from tinyai.codegen.lowered import Kernel, Lowered, written
from tinyai.codegen.placed import stored_index
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Node, operand_tensors
from tinyai.ops import Elementwise


def loops(graph: Lowered, node: Node) -> tuple[list[Axis], str]:
    """The fewest loops over the output, and the number of the input's element in them."""
    source, out = graph.stored(node.inputs[0]), graph.stored(node.output)
    read = [source, *(graph.stored(name) for name in operand_tensors(node.epilogue))]
    shapes = [of.type.shape for of in read]
    stored = [out.strides, *(of.strides for of in read if not of.dense)]
    axes = merge_dims(out.type.shape, shapes, stored)
    return axes, stored_index(source, axes)


def in_rows(axes: Sequence[Axis], *shapes: tuple[int, ...]) -> bool:
    """Whether tensors of these shapes are read in rows: none is broadcast along the last loop."""
    if not axes:
        return False
    sizes = axes[-1].sizes
    whole = ((1,) * (len(sizes) - len(shape)) + shape for shape in shapes)
    return all(shape[-len(sizes) :] == sizes for shape in whole)


def takes(graph: Lowered, node: Node, name: str) -> bool:
    """Tensors of the result's shape: at any strides, operands with a border only."""
    whole = graph.type(name).shape == graph.type(node.output).shape
    return whole and (
        graph.stored(name).border is not None or name not in operand_tensors(node.epilogue)
    )


@dataclass(frozen=True)
class ElementRow:
    """Neighbours along the last of ``axes``: where they are read, where the results go, and how
    many of them, in C."""

    axes: Sequence[Axis]
    source: str
    out: str
    count: str


def one_call(
    graph: Lowered, node: Node, epilogue: Epilogue, call: Callable[[ElementRow], Statement]
) -> Code:
    """An elementwise node whose inputs' neighbours are the output's along the last loop: that is
    one call of a microkernel."""
    axes, in_index = loops(graph, node)
    out, last = graph.stored(node.output), axes[-1]
    shared = cut(axes, epilogue.threads)
    count = f"end - {last.var}" if shared == last.var else str(last.count)
    row = ElementRow(axes, f"in0 + {in_index}", f"out + {stored_index(out, axes)}", count)
    first = None
    if shared == last.var or last.count > 1:  # else its number is in no index
        first = let(last.var, "begin" if shared == last.var else 0)
    return [
        border_of(out, epilogue),
        axis_share(axes, shared),
        nest(axes[:-1], first, call(row), cut=shared),
    ]


def _code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    """Reads an element before it writes the same one, so that the output may take the place of an
    operand of the same type."""
    axes, in_index = loops(graph, node)
    steps = epilogue.write(f"in0[{in_index}]", graph.type(node.inputs[0]).dtype, axes)
    return [border_of(graph.stored(node.output), epilogue), nest(axes, steps)]


KERNELS = (Kernel(name="elementwise_scalar", op=Elementwise, prepare=written(_code, takes)),)
