"""A back end of one's own with an operator, a composite and a kernel, for the front ends' tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tinyai.builders import Lowering
from tinyai.codegen.ctree import Code, Declare, nest
from tinyai.codegen.index import Axis
from tinyai.codegen.kernels import Kernel, written
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Array, DType, Example, Node, Op, Type
from tinyai.match import AnyConstant, op, part
from tinyai.patterns import PatternRow
from tinyai.source import Constant, Expr, require


@dataclass(frozen=True)
class Magnitude(Op):
    """How far an integer is from a zero point. in: int8; out: int8, at most 127."""

    zero_point: int
    name = "magnitude"
    takes_epilogue = True

    def infer(self, data: Type) -> Type:
        return data

    def reference(self, data: Array) -> Array:
        return np.minimum(np.abs(data.astype(np.int32) - self.zero_point), 127).astype(np.int8)

    @staticmethod
    def examples() -> Sequence[Example]:
        return [(Magnitude(-3), (Type((70,), DType.INT8),))]


def code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    assert isinstance(node.op, Magnitude)
    rows, columns = graph.type(node.output).shape
    axes, at = [Axis("i", (rows,)), Axis("j", (columns,))], f"in0[i * {columns} + j]"
    return nest(
        axes,
        Declare("int32_t", "far", f"(int32_t){at} - ({node.op.zero_point})"),
        Declare("const int32_t", "size", "far < 0 ? -far : far"),
        Declare("const int8_t", "acc", "(int8_t)(size > 127 ? 127 : size)"),
        epilogue.write("acc", DType.INT8, axes),
    )


def magnitude(parts: Mapping[str, Expr], lowering: Lowering) -> str:
    zero_point = parts["zero_point"]
    assert isinstance(zero_point, Constant)
    data = lowering.tensor(parts["data"])
    require(lowering.builder.type(data).dtype is DType.INT8, "dtype", "another", "int8")
    return lowering.builder.add(Magnitude(int(zero_point.value)), [data])


REALS = op("dequantize", part("data"), AnyConstant(), part("zero_point", AnyConstant()))
ROW = PatternRow(
    "magnitude",
    op("quantize", op("abs", REALS), AnyConstant(), AnyConstant()),
    build=magnitude,
)
KERNEL = Kernel(name="magnitude", op=Magnitude, prepare=written(code))
