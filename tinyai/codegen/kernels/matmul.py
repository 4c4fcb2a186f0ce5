"""Kernels of products of two matrices that are computed at run time."""

from __future__ import annotations

from tinyai.codegen.c import less
from tinyai.codegen.ctree import Assign, Code, Comment, Declare, For, nest
from tinyai.codegen.index import Axis
from tinyai.codegen.lowered import Kernel, Lowered, result_at_strides, written
from tinyai.codegen.steps import Epilogue
from tinyai.ir import DType, Node
from tinyai.ops import BatchMatmul

# Between uint8 and int8. Where a machine has dot products of both and the number of products is
# known, gcc 12 adds up those of (uint8 - 128) and int8 wrong.
_MIDDLE = 128
_HIDDEN: Code = (
    Comment("The compiler does not know this number: with it gcc 12 adds up wrong."),
    Declare("const volatile int32_t", "kept", _MIDDLE),
    Declare("const int32_t", "middle", "kept"),
)


def _code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    op = node.op
    assert isinstance(op, BatchMatmul)
    data, other = graph.types(node.inputs)
    axes = [Axis(f"i{dim}", (size,)) for dim, size in enumerate(graph.type(node.output).shape)]
    k = data.shape[2]
    image, other_image = (of.strides[0] if of.shape[0] > 1 else 0 for of in (data, other))
    zero_points = op.zero_point, op.other_zero_point
    hides = data.dtype != other.dtype and _MIDDLE in zero_points
    less_x, less_y = (
        " - middle" if hides and zero_point == _MIDDLE else less(zero_point)
        for zero_point in zero_points
    )
    x = f"in0[i0 * {image} + i1 * {k} + k]{less_x}"
    y = f"in1[i0 * {other_image} + i2 * {k} + k]{less_y}"
    return _HIDDEN if hides else (), nest(
        axes,
        Declare("int32_t", "acc", 0),
        For("k", 0, k, Assign("acc", f"({x}) * ({y})", "+=")),
        epilogue.write("acc", DType.INT32, axes),
    )


KERNELS = (
    Kernel(
        name="batch_matmul_scalar",
        op=BatchMatmul,
        prepare=written(_code, result_at_strides),
    ),
)
