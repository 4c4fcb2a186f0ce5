"""Kernels of transpositions that turn squares of elements in registers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tinyai.codegen.ctree import CallStatement, Code, nest
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.kernels.image import border_of, takes_border
from tinyai.codegen.kernels.layout import Copy, copies_of
from tinyai.codegen.kernels.work_stealing import share
from tinyai.codegen.lowered import Kernel, Lowered, Prepared, at_strides
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Node
from tinyai.ops import Transpose

REGISTER = 16  # bytes


@dataclass(frozen=True)
class Matrices:
    """A copy as matrices: ``rows`` that are neighbours in the output, ``columns`` that are in the
    input. Steps are in bytes. ``outer`` are the loops around them."""

    rows: int
    columns: int
    row_step: int
    column_step: int
    outer: Copy


def _matrices(graph: Lowered, node: Node) -> Matrices | str:
    (copy,) = (each.merged() for each in copies_of(graph, node))
    size = graph.type(node.output).dtype.bytes
    side = REGISTER // size
    if not copy.counts or 1 not in copy.in_steps or copy.out_steps[-1] != 1:
        return "elements that are no neighbours in the input or in the output"
    row, column = len(copy.counts) - 1, copy.in_steps.index(1)
    rows, columns = copy.counts[row], copy.counts[column]
    if row == column or min(rows, columns) < side:
        return f"a matrix of at least {side} × {side}, and not {rows} × {columns}"
    return Matrices(
        rows,
        columns,
        copy.in_steps[row] * size,
        copy.out_steps[column] * size,
        copy.without(row, column),
    )


@dataclass(frozen=True)
class Turned(Prepared):
    """A transposition by a microkernel that turns squares. Threads share columns."""

    microkernel: Callable[[Epilogue, int, int], str]

    def takes(self, graph: Lowered, name: str) -> bool:
        """At strides that leave squares: the fewest loops may be more than of dense tensors."""
        squares = not isinstance(_matrices(graph, self.node), str)
        result = name == self.node.output and takes_border(graph, name)
        return squares and (result or at_strides(graph, self.node, name))

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        matrices = _matrices(graph, self.node)
        assert isinstance(matrices, Matrices)
        size = graph.type(self.node.output).dtype.bytes
        side = REGISTER // size
        outer, shared = matrices.outer, epilogue.threads > 1
        call = CallStatement(
            self.microkernel(epilogue, side, size),
            f"in0 + {outer.read}",
            matrices.row_step,
            f"out + {outer.write}",
            matrices.column_step,
            matrices.rows,
            *(("begin", "end") if shared else (0, matrices.columns)),
        )
        return [
            border_of(graph.stored(self.node.output), epilogue),
            share(matrices.columns, side) if shared else None,
            nest(outer.axes, call),
        ]


def _prepared(graph: Lowered, node: Node, *, micro: Microkernels) -> Turned | str:
    assert micro.transpose is not None
    matrices = _matrices(graph, node)
    return matrices if isinstance(matrices, str) else Turned(node, micro.transpose)


KERNELS = tuple(
    Kernel(
        name=f"transpose_{micro.name}",
        op=Transpose,
        isa=micro.name,
        prepare=functools.partial(_prepared, micro=micro),
        split=True,
    )
    for micro in MICROKERNELS
    if micro.transpose
)
