"""Kernels of elementwise nodes that look bytes up in a table."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tinyai.codegen.ctree import CallStatement, Code
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import Lookups, Microkernels
from tinyai.codegen.isa.vectors import table_bytes
from tinyai.codegen.kernels import elementwise
from tinyai.codegen.kernels.elementwise import one_call
from tinyai.codegen.lowered import Kernel, Lowered, Prepared
from tinyai.codegen.steps import Epilogue
from tinyai.ir import NARROW, DType, Node
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


def _is_short(graph: Lowered, node: Node) -> bool:
    axes, _ = elementwise.loops(graph, node)
    return len(axes) > 1 and axes[-1].count < SHORT


@dataclass(frozen=True)
class TableOfBytes(Prepared):
    step: Lookup
    start: DType
    lookup: Lookups

    def takes(self, graph: Lowered, name: str) -> bool:
        return elementwise.takes(graph, self.node, name)

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        table = epilogue.array(self.lookup.table(table_bytes(self.step, self.start)))
        name = self.lookup.write(epilogue)
        return one_call(
            graph,
            self.node,
            epilogue,
            lambda at: CallStatement(name, at.source, at.out, at.count, table),
        )


def _prepared(graph: Lowered, node: Node, *, micro: Microkernels) -> TableOfBytes | str:
    if not _is_lookup(graph, node):
        return "anything but one table of bytes"
    axes, _ = elementwise.loops(graph, node)
    data = graph.type(node.inputs[0])
    if not elementwise.in_rows(axes, data.shape):
        return "an input that is broadcast along the last loop"
    if _is_short(graph, node):
        return f"rows of less than {SHORT} bytes"
    (step,) = node.epilogue
    assert isinstance(step, Lookup)
    assert micro.lookup is not None
    return TableOfBytes(node, step, data.dtype, micro.lookup)


KERNELS = tuple(
    Kernel(
        name=f"elementwise_lookup_{micro.name}",
        op=Elementwise,
        isa=micro.name,
        prepare=functools.partial(_prepared, micro=micro),
        kind=lambda graph, node: _is_lookup(graph, node) and not _is_short(graph, node),
        split=True,
    )
    for micro in MICROKERNELS
    if micro.lookup
)
