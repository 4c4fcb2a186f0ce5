"""How tensors lie in memory: dense, with a border, or inside of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

import numpy as np

from tinyai.codegen.index import Axis, element
from tinyai.ir import Array, DType, Graph, Type
from tinyai.traits import Border

# Bytes after the last row of an image with a border: whole words of them may be read.
BORDER_SLACK = 128


@dataclass(frozen=True)
class Subview:
    """The place of a tensor that is made inside of another one, which joins it with others:
    ``offset`` bytes from the start of ``whole``, ``strides`` elements between neighbours of each
    dimension."""

    whole: str
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Storage:
    """How a tensor is stored: one element after the other, as an image in NHWC with a ``border``
    around it, or as a ``subview`` of another tensor."""

    type: Type
    border: Border | None = None
    subview: Subview | None = None

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours of each dimension."""
        if self.subview:
            return self.subview.strides
        if self.border is None:
            return self.type.strides
        _, h, w, c = self.type.shape
        top, left, bottom, right = self.border.sides
        row = (left + w + right) * c
        return (top + h + bottom) * row, row, c, 1

    @property
    def first(self) -> int:
        """Elements of the border before the first one."""
        if self.border is None:
            return 0
        _, row, pixel, _ = self.strides
        return self.border.top * row + self.border.left * pixel

    @property
    def bytes(self) -> int:
        """Of the tensor with its border; of a subview without what lies in between."""
        if self.border is None:
            return self.type.bytes
        return self.type.shape[0] * self.strides[0] * self.type.dtype.bytes + BORDER_SLACK

    @property
    def seen(self) -> int:
        """Bytes from where the tensor's address is, in front of its border, to the end of its last
        element."""
        return self.first * self.type.dtype.bytes + self.end

    def read(self, memory: Array) -> Array:
        """The elements that the bytes of this array hold, from the tensor's address on."""
        size = self.type.dtype.bytes
        steps = [step * size for step in self.strides]
        numpy = self.type.dtype.numpy
        return np.ndarray(self.type.shape, numpy, memory, self.first * size, steps).copy()

    @property
    def dense(self) -> bool:
        """Whether the elements follow one another."""
        rows = zip(self.type.shape, self.strides, self.type.strides, strict=True)
        return all(size == 1 or stored == plain for size, stored, plain in rows)

    @property
    def plain(self) -> bool:
        """Whether there is nothing but the elements, one after the other."""
        return self.border is None and self.dense

    @property
    def end(self) -> int:
        """Bytes from the first element to the end of the last one."""
        steps = zip(self.type.shape, self.strides, strict=True)
        last = sum((size - 1) * step for size, step in steps)
        return (last + 1) * self.type.dtype.bytes

    def __str__(self) -> str:
        if self.border:
            sides = " ".join(map(str, self.border.sides))
            return f"with a border of {sides} around it, all {self.border.value}"
        if self.subview:
            return (
                f"in %{self.subview.whole} from byte {self.subview.offset}, strides {self.strides}"
            )
        return "one element after the other"


def stored_index(stored: Storage, axes: Sequence[Axis]) -> str:
    """Number of the element that a tensor has at the loops' position, from where it is stored."""
    at = element(stored.type.shape, axes, stored.strides)
    return f"{stored.first} + {at}" if stored.first else at


@dataclass(frozen=True)
class Placed(Graph):
    """A graph, and the ``storage`` of the tensors that are not stored one element after the
    other."""

    storage: Mapping[str, Storage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "storage", MappingProxyType(dict(self.storage)))

    @property
    def bytes_are(self) -> DType:
        """What bytes of images are to microkernels: unsigned, where no instruction set says
        otherwise."""
        return DType.UINT8

    def stored(self, name: str) -> Storage:
        """How a tensor is stored."""
        return self.storage.get(name) or Storage(self.type(name))

    def with_storage(self, storage: Mapping[str, Storage]) -> Self:
        """The same with these tensors stored so."""
        changed = replace(self, storage={**self.storage, **storage})
        # Makers and readers are what they were: many ways to store a tensor are tried.
        vars(changed).update((n, vars(self)[n]) for n in ("makers", "readers") if n in vars(self))
        return changed
