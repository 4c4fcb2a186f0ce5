"""Kernels of products of two matrices that are computed at run time."""

from __future__ import annotations

from tinyai.codegen.index import Axis, place
from tinyai.codegen.kernels.table import Kernel, Values, result_at_strides
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.steps import Epilogue
from tinyai.ir import DType, Node
from tinyai.ops import BatchMatmul


def _less(zero_point: int) -> str:
    return f" - {zero_point}" if zero_point > 0 else f" + {-zero_point}" if zero_point else ""


def _values(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    op = node.op
    assert isinstance(op, BatchMatmul)
    data, other = graph.types(node.inputs)
    out = graph.stored(node.output)
    axes = [Axis(f"i{dim}", (size,)) for dim, size in enumerate(out.type.shape)]
    steps = epilogue.write("acc", DType.INT32, axes)
    return {
        "axes": axes,
        "k": data.shape[2],
        "data": data.strides[0] if data.shape[0] > 1 else 0,
        "other": other.strides[0] if other.shape[0] > 1 else 0,
        "less": _less(op.zero_point),
        "less_other": _less(op.other_zero_point),
        "store": place(out, axes),
        "steps": steps,
        "result": epilogue.result,
    }


KERNELS = (
    Kernel(
        name="batch_matmul_scalar",
        op=BatchMatmul,
        template="batch_matmul_scalar.c.j2",
        values=_values,
        takes=result_at_strides,
    ),
)
