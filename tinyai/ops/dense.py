"""``dense``: a fully connected layer of int8 by int8 into int32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.ir import Array, DType, Example, Op, Type
from tinyai.ops.conv2d import MAX_PRODUCTS
from tinyai.source import Call, Lowering, constant_of, fixed_type, require, sources


@dataclass(frozen=True)
class Dense(Op):
    """Rows by weights.

    in: data int8 [rows, k], weights int8 [units, k]; out: int32 [rows, units].
    """

    name: ClassVar[str] = "dense"
    takes_epilogue: ClassVar[bool] = True

    def infer(self, *inputs: Type) -> Type:
        data, weight = inputs
        if (data.dtype, weight.dtype) != (DType.INT8, DType.INT8):
            raise ValueError(f"dense of {data.dtype} by {weight.dtype}: int8 by int8 only")
        if len(data.shape) != 2 or len(weight.shape) != 2 or data.shape[1] != weight.shape[1]:
            raise ValueError(f"dense of {data} by {weight}: [rows, k] by [units, k]")
        if data.shape[1] > MAX_PRODUCTS:
            raise ValueError(f"{weight} may overflow int32: at most {MAX_PRODUCTS} products")
        return Type((data.shape[0], weight.shape[0]), DType.INT32)

    def reference(self, *inputs: Array) -> Array:
        data, weight = inputs
        # float64 holds every sum of int8 products exactly.
        return (data.astype(np.float64) @ weight.T.astype(np.float64)).astype(np.int32)

    def macs(self, *inputs: Type) -> int:
        return inputs[0].shape[0] * inputs[1].elements

    @staticmethod
    def examples() -> Iterator[Example]:
        for rows, k, units in ((1, 1, 1), (1, 64, 10), (3, 17, 5), (8, 130, 33)):
            yield Dense(), (Type((rows, k), DType.INT8), Type((units, k), DType.INT8))


def lower_dense(call: Call, lowering: Lowering) -> str:
    """nn.dense with constant weights."""
    data = lowering.type(call.args[0])
    weight = constant_of(call, 1, "weights")
    require(
        data.dtype is DType.INT8 and weight.dtype == np.int8,
        "dtypes of data and weights",
        f"{data.dtype} and {weight.dtype}",
        "int8 and int8",
    )
    result = fixed_type(call.type, "result")
    require(result.dtype is DType.INT32, "dtype of the result", result.dtype, "int32")
    require(len(data.shape) == 2, "shape of the data", data, "[rows, k]")
    require(data.shape[1] <= MAX_PRODUCTS, "k", data.shape[1], f"<= {MAX_PRODUCTS}")
    inputs = [lowering.tensor(call.args[0]), lowering.builder.constant(weight)]
    return lowering.builder.add(Dense(), inputs, sources=sources(call))
