"""What builders of operators work with: a graph that grows, tensors, and whose arithmetic it is."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from tinyai.ir import Array, Builder, DType, QParams, Step, Type
from tinyai.source import Call, Expr

Steps = tuple[Step, ...]


@dataclass(frozen=True)
class Scale:
    """One scale, or one along ``axis``, as float32, and the zero point. ``zero_points`` are those
    along ``axis``, where they differ.

    An accumulator's scale is a product that the importer has rounded to float32. ``factors`` are
    the scales of data and weights, where the operator ``maker`` that made it is known: some
    frameworks start from them.
    """

    scale: Array
    zero_point: int
    axis: int | None = None
    factors: tuple[Array, ...] = ()
    maker: str = ""
    zero_points: Array | None = None

    @property
    def qparams(self) -> QParams | None:
        if self.zero_points is not None:
            return None
        return QParams(tuple(map(float, self.scale.reshape(-1))), self.zero_point, self.axis)

    def spread(self, numbers: Array, rank: int) -> Array:
        """One number, or one a channel, shaped to broadcast along the axis."""
        if self.axis is None:
            return numbers.reshape(())
        return numbers.reshape(-1, *(1,) * (rank - self.axis - 1))

    def zeros(self, rank: int) -> Array | int:
        """The zero point, or those along the axis shaped as in ``spread``."""
        zeros = self.zero_points
        return self.zero_point if zeros is None else self.spread(zeros, rank)


@dataclass(frozen=True)
class Sides:
    """The scales of both arguments of an operator; ``tensor`` holds the right one, the left one is
    the running value.

    The operator's own first argument has the first of ``shapes``; it is the right one where they
    are ``swapped``.
    """

    left: Scale
    right: Scale
    tensor: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    swapped: bool = False

    @property
    def scales(self) -> tuple[Scale, Scale]:
        return self.left, self.right

    def product_ratio(self, target: Scale) -> Array:
        """Left scale times right scale over the target's, each step in float32."""
        return np.asarray(self.left.scale * self.right.scale / target.scale, np.float32)


class Arithmetic(abc.ABC):
    """Whose integers are computed: how a framework goes from one scale to another, and what else it
    does in its own way. ``rank`` is that of the tensor. What is not overridden is TVM's way, or
    what all have in common."""

    # As messages name it: "TFLite's".
    whose: ClassVar[str]
    # Whether integers of more than 8 bits were compared with the framework's.
    compares_wide: ClassVar[bool] = False
    # A mean and its requantization are one step, ``mean``; TFLite has no other mean.
    divides_with_rescaling: ClassVar[bool] = False
    needs_requantized_means: ClassVar[bool] = False
    # Whether an average of integers is rounded; TVM cuts it.
    rounds_averages: ClassVar[bool] = False
    # Whether averages of windows stay float, because they depend on the order of the sums.
    averages_in_float: ClassVar[bool] = False
    # Whether images of floats are made larger or smaller in an order of sums that is known.
    interpolates_floats: ClassVar[bool] = False
    has_log_softmax: ClassVar[bool] = True
    has_layer_norm: ClassVar[bool] = True
    # Whether both factors of a product of matrices may be computed at run time.
    multiplies_values: ClassVar[bool] = True
    # Whether a division by a constant is a product with its inverse.
    inverts_divisors: ClassVar[bool] = False
    # The framework's own kernels of float functions, by the vocabulary's names.
    functions: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def of_operator(self, attributes: Mapping[str, Any]) -> Arithmetic:
        """Where an operator's own attributes may say more.

        Raises ``Refusal`` for attributes that are not allowed.
        """
        return self

    @abc.abstractmethod
    def requantize(
        self, builder: Builder, source: Scale, target: Scale, found: DType, to: DType, rank: int
    ) -> Steps:
        """From integers of type ``found`` at ``source`` to ``to`` at ``target``."""

    @abc.abstractmethod
    def quantize(self, builder: Builder, target: Scale, to: DType, rank: int) -> Steps:
        """From float32 to ``to`` at ``target``."""

    @abc.abstractmethod
    def add(
        self, builder: Builder, sides: Sides, target: Scale, to: DType, step: type[Step]
    ) -> Steps:
        """From 8 bits on both sides, by ``step`` (Add or Subtract), to ``to`` at ``target``."""

    @abc.abstractmethod
    def multiply(self, builder: Builder, sides: Sides, target: Scale, to: DType) -> Steps:
        """As ``add``, for the product."""

    def mean(self, builder: Builder, source: Scale, target: Scale, count: int, to: DType) -> Steps:
        """From the sum of ``count`` elements at ``source`` to their mean at ``target``, where the
        framework ``divides_with_rescaling``."""
        raise NotImplementedError(f"{self.whose} mean is a sum that is requantized")

    def limits_after(
        self,
        bounds: tuple[float, float],
        source: Scale,
        target: Scale,
        found: DType,
        to: DType,
    ) -> Steps | None:
        """The bounds of a ReLU of its own behind its requantization, where the framework clips
        there; None where it clips before, as TVM's importers write it."""
        return None

    def quantized_function(
        self, quantize: Call, lowering: Lowering, target: Scale, to: DType
    ) -> str | None:
        """The tensor of a quantize of floats that, with what is before it, is one operator of the
        framework's; None where it is a quantize of floats."""
        return None

    def average_of_floats(self, average: Call, lowering: Lowering) -> str | None:
        """The tensor of an average pooling of floats, where the framework adds them up in an order
        that is known."""
        return None

    def bias_steps(self, values: Array, scales: Array) -> Array:
        """A bias at the scales of its sums, as whole numbers of float64."""
        return np.rint(values / scales)


@dataclass(frozen=True)
class Lowering:
    """What an operator's builder works with: the graph's builder, the tensor of each argument, and
    whose arithmetic it is.

    ``tensor(expr)`` is the name of the tensor that holds an argument.
    """

    builder: Builder
    tensor: Callable[[Expr], str]
    arithmetic: Arithmetic

    def type(self, expr: Expr) -> Type:
        return self.builder.type(self.tensor(expr))


# A builder returns the name of the result's tensor; of each of its tensors where it is a tuple.
Lower = Callable[[Call, Lowering], str | tuple[str, ...]]


@dataclass(frozen=True)
class OperatorRow:
    """An operator of the vocabulary: its builder, and the names of its operands, in order, and of
    its attributes. Without ``compute`` it only moves or renames values."""

    lower: Lower
    operands: str = "data"
    attributes: str = ""
    compute: bool = True
