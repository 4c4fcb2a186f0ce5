"""``softmax`` in float32, as TVM's CPU code computes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.ir import Array, DType, Example, Op, Type
from tinyai.ops.functions import exp
from tinyai.source import Call, Lowering, require, sources


@dataclass(frozen=True)
class Softmax(Op):
    """exp(x - max) / sum of exp(x - max) along ``axis``, summed from the first element on.

    in, out: float32 of one shape. The exponential is the C library's ``expf``.
    """

    name: ClassVar[str] = "softmax"
    takes_epilogue: ClassVar[bool] = True
    axis: int

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if not data.dtype.is_float or not 0 <= self.axis < len(data.shape):
            raise ValueError(f"softmax of {data} along axis {self.axis}: float32, an axis of it")
        return data

    def reference(self, *inputs: Array) -> Array:
        x = np.moveaxis(inputs[0], self.axis, -1)
        with np.errstate(invalid="ignore"):  # of an infinity
            powers = exp(x - x.max(axis=-1, keepdims=True))
            total = np.add.accumulate(powers, axis=-1, dtype=np.float32)[..., -1:]
            return np.moveaxis(powers / total, -1, self.axis)

    @staticmethod
    def examples() -> Iterator[Example]:
        yield Softmax(1), (Type((2, 10), DType.FLOAT32),)
        yield Softmax(1), (Type((2, 5, 3), DType.FLOAT32),)
        yield Softmax(0), (Type((1,), DType.FLOAT32),)


def lower_softmax(call: Call, lowering: Lowering) -> str:
    """nn.softmax of float32."""
    data = lowering.type(call.args[0])
    require(data.dtype.is_float, "dtype of softmax", data.dtype, "float32")
    op = Softmax(int(call.attrs["axis"]) % len(data.shape))
    return lowering.builder.add(op, [lowering.tensor(call.args[0])], sources=sources(call))
