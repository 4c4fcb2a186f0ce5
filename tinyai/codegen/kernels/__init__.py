"""The kernel table. A row more is a kernel more: nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence

from tinyai.codegen.isa import variants_of
from tinyai.codegen.isa.variant import IsaVariant
from tinyai.codegen.kernels import (
    add,
    conv2d,
    cumsum,
    depthwise,
    elementwise,
    gather,
    interleave,
    interpolate,
    lanes,
    layout,
    lookup,
    matmul,
    own_weights,
    patches,
    pool2d,
    reduce,
    resize,
    tile,
    transpose,
)
from tinyai.codegen.lowered import Kernel, KernelChoice, Lowered, Prepared, written
from tinyai.errors import UnsupportedError, owning_faults
from tinyai.ir import Graph, Node, format_node
from tinyai.target import Target

KERNELS: tuple[Kernel, ...] = (
    *depthwise.KERNELS,
    *own_weights.KERNELS,
    *tile.KERNELS,
    *add.KERNELS,
    *lookup.KERNELS,
    *patches.KERNELS,
    *lanes.KERNELS,
    *conv2d.KERNELS,
    *matmul.KERNELS,
    *pool2d.KERNELS,
    *reduce.KERNELS,
    *elementwise.KERNELS,
    *interleave.KERNELS,
    *transpose.KERNELS,
    *layout.KERNELS,
    *resize.KERNELS,
    *cumsum.KERNELS,
    *gather.KERNELS,
    *interpolate.KERNELS,
)


def choose_kernels(graph: Graph, target: Target, own: Sequence[Kernel] = ()) -> Lowered:
    """The graph with the kernel of each node for each instruction set of the target, and the
    threads that there is work for. Rows of another back end's ``own`` go before all others."""
    isas = variants_of(target)
    dense = Lowered.of(graph, {isa: {} for isa in isas})
    variants = {
        isa: {node.output: choose(dense, node, isa, own) for node in graph.nodes} for isa in isas
    }
    return Lowered.of(graph, variants, target.threads)


def choose(graph: Lowered, node: Node, isa: IsaVariant, own: Sequence[Kernel] = ()) -> KernelChoice:
    """The first row for the node's operator and the instruction set that does not reject it.
    Rejected are those of the node's kind in front of it.

    Raises ``UnsupportedError`` with each row's rejection.
    """
    rows = (
        row
        for table in (own, KERNELS)
        for name in isa.rows
        for row in table
        if (row.isa, row.op) == (name, type(node.op))
    )
    all_rows: list[str] = []
    rejected: list[str] = []
    with owning_faults(f"the kernel for {node.named}"):
        for kernel in rows:
            prepared = kernel.prepare(graph, node)
            if isinstance(prepared, Prepared):
                return KernelChoice(kernel, prepared, tuple(rejected))
            all_rows.append(f"{kernel.name}: {prepared}")
            if kernel.kind(graph, node):
                rejected.append(f"{kernel.name} rejected: {prepared}")
    raise UnsupportedError(
        f"no kernel for {node.named}\n  at {format_node(graph, node)}",
        found="; ".join(all_rows) or f"no row for {node.op.name}",
        allowed="an operator and types that a row of tinyai/codegen/kernels serves",
        hint="keep the operator on the host",
    )


__all__ = ["KERNELS", "Kernel", "choose", "choose_kernels", "written"]
