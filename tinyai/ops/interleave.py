"""``interleave``: planes of an image become channels of its pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.ir import Array, DType, Example, Move, Type


@dataclass(frozen=True)
class Interleave(Move):
    """The dimension ``axis`` goes behind all others: a transposition of few planes, with steps.

    in: any type, (…, planes, …, pixels); out: the same type, (…, …, pixels, planes).
    """

    name: ClassVar[str] = "interleave"
    takes_epilogue: ClassVar[bool] = True
    axis: int

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        if not 0 <= self.axis < len(x.shape) - 1:
            raise ValueError(f"axis {self.axis} of {x} goes behind the others")
        planes = x.shape[self.axis]
        return Type((*x.shape[: self.axis], *x.shape[self.axis + 1 :], planes), x.dtype)

    def reference(self, *inputs: Array) -> Array:
        return np.moveaxis(inputs[0], self.axis, -1)

    @staticmethod
    def examples() -> Iterator[Example]:
        yield Interleave(1), (Type((2, 3, 5, 70), DType.FLOAT32),)
        yield Interleave(0), (Type((2, 4, 66), DType.FLOAT32),)
        yield Interleave(1), (Type((1, 4, 1, 1), DType.FLOAT32),)
        yield Interleave(1), (Type((2, 5, 3), DType.INT8),)
        yield Interleave(0), (Type((3, 7), DType.INT32),)
