"""Kernels of elementwise nodes that look bytes up in a table."""

from __future__ import annotations

from tinyai.codegen.isa.x86.avx512vnni.vector_steps import simd, table_bytes
from tinyai.codegen.kernels import elementwise
from tinyai.codegen.kernels.elementwise import one_call
from tinyai.codegen.kernels.table import Kernel, Values, anywhere
from tinyai.codegen.steps import Epilogue
from tinyai.codegen.templates import render_core
from tinyai.ir import NARROW, Graph, Node
from tinyai.ops import Elementwise
from tinyai.ops.steps import Lookup

CORE = "tinyai_lookup_avx512vnni"
# Of rows that are no longer, the lanes' kernel takes as little time.
SHORT = 32


def _demands(graph: Graph, node: Node) -> str | None:
    (source,) = graph.types(node.inputs)
    match node.epilogue:
        case (Lookup(_, to),) if source.dtype in NARROW and to in NARROW:
            axes, _ = elementwise.loops(graph, node)
            if not elementwise.in_rows(axes, source.shape):
                return "an input that is broadcast along the last loop"
            short = len(axes) > 1 and axes[-1].count < SHORT
            return f"rows of less than {SHORT} bytes" if short else None
    return "anything but one table of bytes"


def _values(graph: Graph, node: Node, epilogue: Epilogue) -> Values:
    (step,) = node.epilogue
    assert isinstance(step, Lookup)
    table = epilogue.array(table_bytes(step, graph.type(node.inputs[0]).dtype))
    simd(epilogue)
    epilogue.cores[CORE] = render_core("lookup_core_avx512vnni.c.j2", name=CORE)
    return one_call(
        graph, node, epilogue, lambda at: f"{CORE}({at.taken}, {at.out}, {at.count}, {table});"
    )


KERNELS = (
    Kernel(
        name="elementwise_lookup_avx512vnni",
        op=Elementwise,
        isa="avx512vnni",
        template="elementwise_core.c.j2",
        demands=_demands,
        values=_values,
        bordered=True,
        strided_out=anywhere,
        strided_in=elementwise.same_shape,
        split=True,
    ),
)
