"""The kernel of ``gather``: a copy of each slice whose number is read."""

from __future__ import annotations

import math

from tinyai.codegen.ctree import Assign, Code, Declare, If, nest
from tinyai.codegen.index import Axis
from tinyai.codegen.lowered import Kernel, Lowered, written
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Node
from tinyai.ops import Gather


def _code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    op = node.op
    assert isinstance(op, Gather)
    data, indices = graph.types(node.inputs)
    before, size = math.prod(data.shape[: op.axis]), data.shape[op.axis]
    behind = math.prod(data.shape[op.axis + 1 :])
    read, write = (
        f"(b * {size} + at) * {behind} + k",
        f"(b * {indices.elements} + i) * {behind} + k",
    )
    bounded: Code = [
        If("at < 0", Assign("at", 0)),
        If(f"at > {size - 1}", Assign("at", size - 1)),
    ]
    wrapped: Code = [Assign("at", size, "%="), If("at < 0", Assign("at", size, "+="))]
    return nest(
        [Axis("b", (before,)), Axis("i", (indices.elements,))],
        Declare("int64_t", "at", "in1[i]"),
        wrapped if op.wraps else bounded,
        nest([Axis("k", (behind,))], Assign(f"out[{write}]", f"in0[{read}]")),
    )


KERNELS = (Kernel(name="gather_scalar", op=Gather, prepare=written(_code)),)
