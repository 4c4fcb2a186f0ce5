"""Kernels of elementwise nodes that look bytes up in a table."""

from __future__ import annotations

import functools

from tinyai.codegen.ctree import Call, Code
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.isa.vectors import table_bytes
from tinyai.codegen.kernels import elementwise
from tinyai.codegen.kernels.elementwise import one_call
from tinyai.codegen.lowered import Kernel, Lowered
from tinyai.codegen.steps import Epilogue
from tinyai.ir import NARROW, Node
from tinyai.ops import Elementwise
from tinyai.ops.steps import Lookup

# Of rows that are no longer, the lanes' kernel takes as little time.
SHORT = 32


def _is_lookup(graph: Lowered, node: Node) -> bool:
    """Whether the node is one table of bytes."""
    match node.epilogue:
        case (Lookup(_, to),):
            return {graph.type(node.inputs[0]).dtype, to} <= {*NARROW}
    return False


def _rejection(graph: Lowered, node: Node) -> str | None:
    if not _is_lookup(graph, node):
        return "anything but one table of bytes"
    axes, _ = elementwise.loops(graph, node)
    if not elementwise.in_rows(axes, graph.type(node.inputs[0]).shape):
        return "an input that is broadcast along the last loop"
    return f"rows of less than {SHORT} bytes" if _is_short(graph, node) else None


def _is_short(graph: Lowered, node: Node) -> bool:
    axes, _ = elementwise.loops(graph, node)
    return len(axes) > 1 and axes[-1].count < SHORT


def _code(graph: Lowered, node: Node, epilogue: Epilogue, *, micro: Microkernels) -> Code:
    (step,) = node.epilogue
    assert isinstance(step, Lookup)
    assert micro.lookup is not None
    table = epilogue.array(table_bytes(step, graph.type(node.inputs[0]).dtype))
    microkernel = micro.lookup(epilogue)
    return one_call(
        graph, node, epilogue, lambda at: Call(microkernel, at.source, at.out, at.count, table)
    )


KERNELS = tuple(
    Kernel(
        name=f"elementwise_lookup_{micro.name}",
        op=Elementwise,
        isa=micro.name,
        rejection=_rejection,
        kind=lambda graph, node: _is_lookup(graph, node) and not _is_short(graph, node),
        code=functools.partial(_code, micro=micro),
        takes=elementwise.takes,
        split=True,
    )
    for micro in MICROKERNELS
    if micro.lookup
)
