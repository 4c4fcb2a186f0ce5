"""Steps with a second operand: ``value <op> operand``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.ir import Array, DType, Step, Type
from tinyai.ops.functions import fused_multiply_add
from tinyai.ops.steps.ranges import Monotonic, Product, SumStep, extremes
from tinyai.traits import Range


@dataclass(frozen=True)
class Binary(Step):
    """``value <op> operand``, both of one type of numbers, which is the type of the result."""

    def result(self, dtype: DType) -> DType:
        if self.operand is None:
            raise ValueError(f"{self.name} has no operand")
        if dtype is DType.BOOL:
            raise ValueError(f"{self.name} of {dtype}: numbers only")
        return dtype

    def reference(self, value: Array, operand: Array | None) -> Array:
        assert operand is not None, self.name
        with np.errstate(over="ignore", invalid="ignore"):  # an infinity times 0 is a NaN
            return np.asarray(self.apply(value, operand), dtype=value.dtype)

    def apply(self, value: Array, operand: Array) -> Array:
        raise NotImplementedError(self.name)


@dataclass(frozen=True)
class _Commutative(Binary):
    """A step whose value and operand may change places."""

    @property
    def commuted(self) -> Step:
        return self


@dataclass(frozen=True)
class _Additive(SumStep, Binary):
    """A step that adds the operand to the value, or subtracts it."""

    def is_identity(self, dtype: DType, operand: Array | None) -> bool:
        return operand is not None and not operand.any()

    def largest(self, size: int, operand: int, constant: Array | None) -> int:
        return size + operand


@dataclass(frozen=True)
class Add(_Additive, _Commutative):
    name: ClassVar[str] = "add"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.add(value, operand)


@dataclass(frozen=True)
class Subtract(_Additive):
    name: ClassVar[str] = "subtract"

    @property
    def commuted(self) -> Step:
        return SubtractFrom(operand=self.operand)

    def apply(self, value: Array, operand: Array) -> Array:
        return np.subtract(value, operand)


@dataclass(frozen=True)
class SubtractFrom(SumStep, Binary):
    """``operand - value``: a subtraction whose second argument is the running value."""

    name: ClassVar[str] = "subtract_from"

    @property
    def commuted(self) -> Step:
        return Subtract(operand=self.operand)

    def apply(self, value: Array, operand: Array) -> Array:
        return np.subtract(operand, value)


@dataclass(frozen=True)
class Multiply(Product, _Commutative):
    name: ClassVar[str] = "multiply"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.multiply(value, operand)


@dataclass(frozen=True)
class Divide(Binary):
    """Floats divide; integers are cut towards zero, as in C, and their divisor is constant and
    positive (the builders check)."""

    name: ClassVar[str] = "divide"

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        if operand is None or not np.all(operand.constant & (operand.low > 0)):
            return None
        return extremes(self, value, operand)

    def apply(self, value: Array, operand: Array) -> Array:
        if value.dtype.kind == "f":
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.divide(value, operand)
        size = np.abs(value) // operand
        return np.where(value < 0, -size, size)


@dataclass(frozen=True)
class Maximum(Monotonic, _Commutative):
    """``value > operand ? value : operand``: what TVM's max does with a NaN, too."""

    name: ClassVar[str] = "maximum"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.where(value > operand, value, operand)


@dataclass(frozen=True)
class Minimum(Monotonic, _Commutative):
    """``value < operand ? value : operand``: what TVM's min does with a NaN, too."""

    name: ClassVar[str] = "minimum"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.where(value < operand, value, operand)


@dataclass(frozen=True)
class _Shift(Binary):
    """Shift by 0 .. bits-1 places; the builders check the amounts, which are constant."""

    def result(self, dtype: DType) -> DType:
        if dtype.is_float:
            raise ValueError(f"{self.name} of {dtype}: integers only")
        return super().result(dtype)


@dataclass(frozen=True)
class RightShift(SumStep, _Shift):
    name: ClassVar[str] = "right_shift"

    def largest(self, size: int, operand: int, constant: Array | None) -> int:
        return size if constant is None else -(-size >> int(constant.min()))

    def apply(self, value: Array, operand: Array) -> Array:
        return np.right_shift(value, operand)


@dataclass(frozen=True)
class LeftShift(Product, _Shift):
    name: ClassVar[str] = "left_shift"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.left_shift(value, operand)


@dataclass(frozen=True)
class Prelu(Product, Binary):
    """``value > 0 ? value : value * operand``."""

    name: ClassVar[str] = "prelu"

    def apply(self, value: Array, operand: Array) -> Array:
        return np.where(value > 0, value, value * operand)


@dataclass(frozen=True)
class MultiplyAdd(Monotonic, Binary):
    """``value * factor + operand`` of float32, rounded once."""

    name: ClassVar[str] = "multiply_add"
    factor: float

    def result(self, dtype: DType) -> DType:
        if not dtype.is_float:
            raise ValueError(f"{self.name} of {dtype}: float32 only")
        return super().result(dtype)

    def apply(self, value: Array, operand: Array) -> Array:
        return fused_multiply_add(value, np.asarray(np.float32(self.factor)), operand)


@dataclass(frozen=True)
class AddProduct(MultiplyAdd):
    """``value + operand * factor`` of float32, rounded once."""

    name: ClassVar[str] = "add_product"

    def apply(self, value: Array, operand: Array) -> Array:
        return fused_multiply_add(operand, np.asarray(np.float32(self.factor)), value)
