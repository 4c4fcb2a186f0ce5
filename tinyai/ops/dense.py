"""``dense``: a fully connected layer of integers of 8 or 16 bits into int32 or int64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tinyai.builders import Lowering, OperatorRow
from tinyai.ir import Array, DType, Example, Op, Type
from tinyai.ops.contraction import Contraction
from tinyai.ops.conv2d import (
    centred,
    check_products,
    is_wide,
    require_int8_weights,
    with_room,
    zero_point,
)
from tinyai.ops.matmul import lower_quantized_matmul
from tinyai.ops.scales import QUANTIZED_PRODUCT
from tinyai.source import Call, Constant, constant_of, require, sources
from tinyai.traits import Dims


@dataclass(frozen=True)
class Dense(Contraction):
    """Rows of ``data - zero_point`` by weights.

    in: data int8, uint8 or int16 [rows, k], weights int8 or int16 (as in ``conv2d``) [units, k];
    out: int32, or int64 where ``wide`` (of int16 only), [rows, units].
    """

    name: ClassVar[str] = "dense"
    takes_epilogue: ClassVar[bool] = True
    dims: ClassVar[Dims] = Dims.CONTRACTED
    zero_point: int = 0
    wide: bool = False
    proven: bool = False

    def infer(self, *inputs: Type) -> Type:
        data, weight = inputs
        if len(data.shape) != 2 or len(weight.shape) != 2 or data.shape[1] != weight.shape[1]:
            raise ValueError(f"dense of {data} by {weight}: [rows, k] by [units, k]")
        check_products(data, weight, data.shape[1], self)
        return Type((data.shape[0], weight.shape[0]), self.accumulator)

    def reference(self, *inputs: Array) -> Array:
        data, weight = inputs
        # float64 holds every sum of products exactly.
        rows = data.astype(np.float64) - self.zero_point
        return (rows @ weight.T.astype(np.float64)).astype(self.accumulator.numpy)

    def macs(self, *inputs: Type) -> int:
        return inputs[0].shape[0] * inputs[1].elements

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op:
        """The order within the last dimension is the weights'."""
        return self

    @staticmethod
    def examples() -> Iterator[Example]:
        for rows, k, units in ((1, 1, 1), (1, 64, 10), (3, 17, 5), (8, 130, 33)):
            yield Dense(), (Type((rows, k), DType.INT8), Type((units, k), DType.INT8))
        yield Dense(-128), (Type((2, 19), DType.INT8), Type((3, 19), DType.INT8))
        yield Dense(255), (Type((2, 19), DType.UINT8), Type((3, 19), DType.INT16))
        for wide in (False, True):
            yield Dense(0, wide), (Type((5, 33), DType.INT16), Type((7, 33), DType.INT8))


def lower_dense(call: Call, lowering: Lowering) -> str:
    """dense with constant weights."""
    require_int8_weights(call, lowering)
    return _lower(call, lowering, Dense(), constant_of(call, "weight", "weights"))


def lower_quantized_dense(call: Call, lowering: Lowering) -> str:
    """quantized_dense: the zero point of the data stays, that of the weights is taken off here.

    Where the weights are computed at run time, it is a product of two matrices."""
    if not isinstance(call["weight"], Constant):
        return lower_quantized_matmul(call, lowering)
    weight = centred(call, constant_of(call, "weight", "weights"), 0)
    return _lower(call, lowering, Dense(zero_point(call, lowering)), weight)


def _lower(call: Call, lowering: Lowering, op: Dense, weight: Array) -> str:
    data = lowering.type(call["data"])
    require(len(data.shape) == 2, "shape of the data", data, "[rows, k]")
    room = with_room(replace(op, wide=is_wide(call, lowering)), data.dtype, weight, "k")
    inputs = [lowering.tensor(call["data"]), lowering.builder.constant(weight)]
    return lowering.builder.add(room, inputs, sources=sources(call))


OPERATORS = {
    "dense": OperatorRow(lower_dense, "data weight"),
    "quantized_dense": OperatorRow(lower_quantized_dense, QUANTIZED_PRODUCT),
}
