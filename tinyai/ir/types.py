"""Types and tensors of a graph: shapes, element types, scales, and which channels are stored."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class DType(enum.StrEnum):
    """Element types, named as numpy and Relay name them. A bool is a byte, true unless it is 0."""

    BOOL = "bool"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"

    @functools.cached_property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.value)

    @property
    def bytes(self) -> int:
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self is DType.FLOAT32

    @property
    def is_integer(self) -> bool:
        """Neither a float nor a bool."""
        return not (self.is_float or self is DType.BOOL)

    @functools.cached_property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value of a type that is no float."""
        if self is DType.BOOL:
            return (0, 1)
        info = np.iinfo(self.numpy)
        return int(info.min), int(info.max)


# The types of quantized values.
NARROW = (DType.INT8, DType.UINT8)


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours of each dimension of a dense tensor of this shape."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


@dataclass(frozen=True)
class Type:
    """Shape and element type of a tensor. Scalars have the shape ()."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def channels(self) -> int:
        """Places of the last dimension."""
        return self.shape[-1] if self.shape else 1

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.bytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours of each dimension of a dense tensor."""
        return strides(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class QParams:
    """Affine quantization: real = scale * (q - zero_point), per tensor or along ``axis``."""

    scale: tuple[float, ...]
    zero_point: int = 0
    axis: int | None = None

    def __str__(self) -> str:
        each = " ".join(f"{scale:.6g}" for scale in self.scale)
        scale = each if self.axis is None else f"per-channel axis {self.axis}"
        return f"scale {scale}, zero point {self.zero_point}"


@dataclass(frozen=True)
class Stored:
    """Which channels (places of the last dimension) a tensor stores of the ``whole`` ones that the
    same tensor of the source model has.

    ``channels`` are the stored ones, in their order. ``constant`` holds pairs of a channel and the
    value that it has for every input, ``equal`` pairs of a channel and the stored one that has the
    same values. All others were read by nobody.
    """

    whole: int
    channels: tuple[int, ...]
    constant: tuple[tuple[int, int], ...] = ()
    equal: tuple[tuple[int, int], ...] = ()

    @property
    def unread(self) -> int:
        """How many channels nobody read."""
        return self.whole - len(self.channels) - len(self.constant) - len(self.equal)

    def plus(self, number: int) -> Stored:
        """The same of a tensor whose values are all larger by ``number``."""
        return replace(self, constant=tuple((c, value + number) for c, value in self.constant))

    def restored(self, value: Array) -> tuple[Array, Array]:
        """The tensor with all channels that follow from the stored ones, and which these are."""
        whole = np.zeros((*value.shape[:-1], self.whole), value.dtype)
        whole[..., list(self.channels)] = value
        for channel, number in self.constant:
            whole[..., channel] = number
        for channel, stored in self.equal:
            whole[..., channel] = whole[..., stored]
        known = [*self.channels, *(c for c, _ in self.constant), *(c for c, _ in self.equal)]
        return whole, np.isin(np.arange(self.whole), known)

    def __str__(self) -> str:
        runs = np.split(self.channels, np.flatnonzero(np.diff(self.channels) != 1) + 1)
        texts = (f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
        return f"channels {' '.join(texts)} of {self.whole}"


@dataclass(frozen=True)
class Tensor:
    """A named value: what a node writes, an input, or a constant."""

    name: str
    type: Type
    quant: QParams | None = None
    stored: Stored | None = None

    def __str__(self) -> str:
        facts = [f"<{self.quant}>"] if self.quant else []
        facts += [f"({self.stored})"] if self.stored else []
        return " ".join([f"%{self.name}: {self.type}", *facts])
