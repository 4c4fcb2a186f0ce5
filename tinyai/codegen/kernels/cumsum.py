"""The kernel of ``cumsum``: a running sum along an axis."""

from __future__ import annotations

from tinyai.codegen.c import C_TYPES
from tinyai.codegen.ctree import Assign, Code, Declare, nest
from tinyai.codegen.index import Axis
from tinyai.codegen.lowered import Kernel, Lowered, written
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Node
from tinyai.ops import CumSum


def _code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    """The sum wraps."""
    op = node.op
    assert isinstance(op, CumSum)
    (data,) = graph.types(node.inputs)
    outer, inner = Axis("o", data.shape[: op.axis]), Axis("n", data.shape[op.axis + 1 :])
    axis, of = Axis("i", (data.shape[op.axis],)), C_TYPES[data.dtype]
    along = f"({axis.count - 1} - i)" if op.reverse else "i"
    at = f"(o * {axis.count} + {along}) * {inner.count} + n"
    add = Assign("total", f"(u{of})in0[{at}]", "+=")
    store = Assign(f"out[{at}]", f"({of})total")
    body = (store, add) if op.exclusive else (add, store)
    return nest([outer, inner], Declare(f"u{of}", "total", 0), nest([axis], *body))


KERNELS = (Kernel(name="cumsum_scalar", op=CumSum, prepare=written(_code)),)
