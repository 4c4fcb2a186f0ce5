"""The kernel table. A row more is a kernel more: nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator

from tinyai.codegen.isa import rows
from tinyai.codegen.isa.section import Isa
from tinyai.codegen.kernels import (
    add,
    conv2d,
    depthwise,
    elementwise,
    layout,
    matmul,
    pool2d,
    reduce,
    resize,
    tile,
    transpose,
)
from tinyai.codegen.kernels.table import Kernel
from tinyai.errors import UnsupportedError
from tinyai.ir import Graph, Node, format_node

KERNELS: tuple[Kernel, ...] = (
    *depthwise.KERNELS,
    *tile.KERNELS,
    *add.KERNELS,
    *rows.KERNELS,
    *conv2d.KERNELS,
    *matmul.KERNELS,
    *pool2d.KERNELS,
    *reduce.KERNELS,
    *elementwise.KERNELS,
    *transpose.KERNELS,
    *layout.KERNELS,
    *resize.KERNELS,
)


def choose(graph: Graph, node: Node, isa: Isa) -> Kernel:
    """The first row for the node's operator and the instruction set that demands nothing more.

    Raises ``UnsupportedError`` with each row's complaint.
    """
    complaints = []
    for kernel, complaint in _asked(graph, node, isa):
        if complaint is None:
            return kernel
        complaints.append(f"{kernel.name}: {complaint}")
    raise UnsupportedError(
        f"no kernel for {format_node(graph, node)}",
        found="; ".join(complaints) or f"no row for {node.op.name}",
        allowed="an operator and types that a row of tinyai/codegen/kernels serves",
        hint="keep the operator on the host",
    )


def rejected(graph: Graph, node: Node, isa: Isa) -> tuple[str, ...]:
    """The rows of the node's kind in front of the chosen one, each with its complaint."""
    found = []
    for kernel, complaint in _asked(graph, node, isa):
        if complaint is None:
            break
        if kernel.kind(graph, node):
            found.append(f"{kernel.name} rejected: {complaint}")
    return tuple(found)


def _asked(graph: Graph, node: Node, isa: Isa) -> Iterator[tuple[Kernel, str | None]]:
    """The rows for the node's operator and the instruction set, the preferred first, and what each
    lacks."""
    for row in isa.rows:
        for kernel in KERNELS:
            if kernel.op is type(node.op) and kernel.isa == row:
                yield kernel, kernel.demands(graph, node)


__all__ = ["KERNELS", "Kernel", "choose", "rejected"]
