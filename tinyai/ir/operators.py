"""Operators of a graph: what each one says of itself, and what passes ask of it."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import ClassVar

from tinyai.ir.steps import given
from tinyai.ir.types import Array, Type
from tinyai.traits import ChannelMap, Dims, Range, join


class Op(abc.ABC):
    """An operator with its attributes: a frozen dataclass in ``tinyai/ops/``.

    ``name`` is unique. What follows ``macs``, and these four, are its *traits*: what passes ask.
    One that has none of its own answers what is true of any operator, and is left as it is.

    - ``takes_epilogue``: whether kernels of this operator run steps on their results.
    - ``takes_narrow``: whether it sums in int32 whatever 8-bit integers it reads.
    - ``keeps_scale``: whether its results are elements of its first input, and stand for real
      numbers as these do.
    - ``dims``: how it works in another order of dimensions. All but ``FIXED`` ones can be
      ``permuted``, but for what is nothing else than another order, or other dimensions.
    """

    name: ClassVar[str]
    takes_epilogue: ClassVar[bool] = False
    takes_narrow: ClassVar[bool] = False
    keeps_scale: ClassVar[bool] = False
    dims: ClassVar[Dims] = Dims.FIXED

    @abc.abstractmethod
    def infer(self, *inputs: Type) -> Type:
        """Type of the result before the epilogue. Raises ``ValueError`` with the reason."""

    @abc.abstractmethod
    def reference(self, *inputs: Array) -> Array:
        """The operator in plain numpy: the meaning that every kernel must equal bit for bit."""

    @staticmethod
    @abc.abstractmethod
    def examples() -> Iterator[Example]:
        """Operators with input types, at the edges of what is allowed: the tests walk them."""

    def macs(self, *inputs: Type) -> int:
        """Multiply-accumulate operations of one run."""
        return 0

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op | None:
        """The operator on inputs whose dimension i is what was ``dims[i]``, with a result of this
        shape; None where it cannot work so."""
        return None

    def bound_dims(self) -> tuple[int, ...]:
        """Dimensions along which elements do not all meet the same: no other may be part of one."""
        return ()

    def dropped_dims(self) -> tuple[int, ...]:
        """Dimensions of the data that the result has not; of a ``REDUCED`` operator."""
        return ()

    def channel_map(self, *inputs: Type) -> ChannelMap | None:
        """Which channels (places of the last dimension) of the data each one of the result is made
        of; None where that is more than one of an input."""
        return None

    def with_channels(self, kept: Array, count: int) -> Op | None:
        """The operator where the channels ``kept`` of the data are left, and ``count`` of the
        result; None where it cannot do without the others. Asked where there is a channel map."""
        return self

    def without_channels(self) -> Op:
        """The operator as it is for any channel: without what it says of their places."""
        return self

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range | None:
        """The range of the result for inputs of these types within ``data``, constant ones with
        their values; None where it is not known. A range that leaves the result's type says that
        results may wrap."""
        return None

    def shifted(self, offset: int, data: Type) -> tuple[Op, int] | None:
        """The operator for a first input that is ``offset`` larger, and what its result is larger
        by, for every input; None where that is not known. Of an operator whose result has the
        data's type, all inputs of that type are larger."""
        return None

    def padded(self, widths: Sequence[tuple[int, int]], value: float) -> Op | None:
        """The operator that pads its first input itself, by (before, after) of each dimension;
        None where it cannot."""
        return None

    def __str__(self) -> str:
        attrs = ", ".join(f"{name}={value}" for name, value in given(self))
        return f"{self.name}({attrs})" if attrs else self.name


class Move(Op):
    """An operator whose result is made of elements of its inputs alone."""

    keeps_scale: ClassVar[bool] = True

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range:
        return join(data, self.channel_map(*types), self.infer(*types).channels)

    def shifted(self, offset: int, data: Type) -> tuple[Op, int]:
        return self, offset


Example = tuple[Op, tuple[Type, ...]]
