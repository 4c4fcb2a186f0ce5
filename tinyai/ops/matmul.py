"""``batch_matmul``: products of two matrices that are both computed at run time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.builders import Lowering, OperatorRow
from tinyai.ir import NARROW, Array, DType, Example, Op, Type
from tinyai.ops.layout import Reshape
from tinyai.ops.scales import QUANTIZED_PRODUCT, require_factors
from tinyai.source import Call, fixed_type, one_number, require, sources

# The operands of a product, and how messages call them.
SIDES = {"data": "data", "weight": "other matrix"}


@dataclass(frozen=True)
class BatchMatmul(Op):
    """Rows of ``data - zero_point`` by rows of ``other - other_zero_point``, matrix by matrix.

    in: int8 or uint8 [batch, rows, k] and [batch, columns, k], where a batch of 1 goes with any;
    out: int32 [batch, rows, columns].
    """

    name: ClassVar[str] = "batch_matmul"
    takes_epilogue: ClassVar[bool] = True
    zero_point: int = 0
    other_zero_point: int = 0

    def infer(self, *inputs: Type) -> Type:
        data, other = inputs
        shapes = data.shape, other.shape
        if any(len(shape) != 3 for shape in shapes) or data.shape[2] != other.shape[2]:
            raise ValueError(f"batch_matmul of {data} by {other}: [batch, rows, k] both")
        if data.shape[0] != other.shape[0] and 1 not in (data.shape[0], other.shape[0]):
            raise ValueError(f"batch_matmul of {data} by {other}: one batch, or 1")
        if not {data.dtype, other.dtype} <= {*NARROW}:
            raise ValueError(f"batch_matmul of {data} by {other}: 8 bits only")
        most = most_products(data.dtype, other.dtype, self.zero_point, self.other_zero_point)
        if data.shape[2] > most:
            raise ValueError(f"{other} may overflow int32: at most {most} products")
        batch = max(data.shape[0], other.shape[0])
        return Type((batch, data.shape[1], other.shape[1]), DType.INT32)

    def reference(self, *inputs: Array) -> Array:
        data, other = inputs
        # float64 holds every sum of products exactly.
        left = data.astype(np.float64) - self.zero_point
        right = other.astype(np.float64) - self.other_zero_point
        return np.asarray((left @ right.transpose(0, 2, 1)).astype(np.int32))

    def macs(self, *inputs: Type) -> int:
        return self.infer(*inputs).elements * inputs[0].shape[2]

    @staticmethod
    def examples() -> Iterator[Example]:
        i8, u8 = DType.INT8, DType.UINT8
        for batches, rows, columns, k in (((1, 1), 1, 1, 1), ((2, 2), 3, 5, 7), ((3, 1), 2, 4, 65)):
            shapes = (batches[0], rows, k), (batches[1], columns, k)
            yield BatchMatmul(), (Type(shapes[0], i8), Type(shapes[1], i8))
            yield BatchMatmul(-128, 255), (Type(shapes[0], i8), Type(shapes[1], u8))
        yield BatchMatmul(3, -7), (Type((1, 4, 9), u8), Type((2, 3, 9), i8))


def most_products(data: DType, other: DType, zero_point: int, other_zero_point: int) -> int:
    """The number of products whose sum cannot overflow int32."""
    zeros = (data, zero_point), (other, other_zero_point)
    left, right = (max(abs(end - zero) for end in dtype.range) for dtype, zero in zeros)
    return (2**31 - 1) // (left * right)


def lower_quantized_batch_matmul(call: Call, lowering: Lowering) -> str:
    """quantized_batch_matmul into int32."""
    names = [lowering.tensor(call[side]) for side in SIDES]
    return lowering.builder.add(_op(call, lowering), names, sources=sources(call))


def lower_quantized_matmul(call: Call, lowering: Lowering) -> str:
    """quantized_dense whose weights are computed at run time: one matrix by another."""
    builder, names = lowering.builder, [lowering.tensor(call[side]) for side in SIDES]
    for name in names:
        shape = builder.type(name).shape
        require(len(shape) == 2, "shape of the data", builder.type(name), "[rows, k]")
    op = _op(call, lowering)
    wide = [builder.add(Reshape((1, *builder.type(name).shape)), [name]) for name in names]
    product = builder.add(op, wide, sources=sources(call))
    return builder.add(Reshape(fixed_type(call.type, "result").shape), [product])


def _op(call: Call, lowering: Lowering) -> BatchMatmul:
    how, found = lowering.arithmetic, "a product of two values"
    require(how.multiplies_values, f"{how.whose} arithmetic of", found, "weights that are constant")
    require_factors(call)
    result = fixed_type(call.type, "result")
    require(result.dtype is DType.INT32, "dtype of the result", result.dtype, "int32")
    zeros, dtypes = [], []
    for side, what in SIDES.items():
        of = lowering.type(call[side])
        require(of.dtype in NARROW, f"dtype of the {what}", of.dtype, ", ".join(NARROW))
        zero = int(one_number(call, f"{side}_zero_point", f"zero point of the {what}"))
        low, high = of.dtype.range
        require(low <= zero <= high, f"zero point of the {what}", zero, f"{low} .. {high}")
        zeros.append(zero)
        dtypes.append(of.dtype)
    count = lowering.type(call["data"]).shape[-1]
    most = most_products(dtypes[0], dtypes[1], zeros[0], zeros[1])
    require(count <= most, "k", count, f"<= {most}")
    return BatchMatmul(*zeros)


OPERATORS = {
    "quantized_batch_matmul": OperatorRow(lower_quantized_batch_matmul, QUANTIZED_PRODUCT),
}
