"""Elementwise steps of an epilogue, and what reads and prints them."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import Any, ClassVar

from tinyai.ir.types import Array, DType, Type
from tinyai.traits import Range


def given(what: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of a dataclass's fields, without those that have their default."""
    for each in fields(what):
        value = getattr(what, each.name)
        if value != each.default:
            yield each.name, value


@dataclass(frozen=True)
class Operand:
    """The second operand of a step: a tensor, after elementwise steps of its own."""

    tensor: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Step(abc.ABC):
    """One elementwise operation of an epilogue: a frozen dataclass in ``tinyai/ops/steps/``.

    ``operand``, where the kind has one, is broadcast to the shape of the node's output and has
    the type of the value that it meets, or the one that ``operand_type`` says.

    What follows ``fits`` are its *traits*: what passes ask. A kind that has none of its own answers
    what is true of any step, and is left as it is.
    """

    name: ClassVar[str]
    keeps_channels: ClassVar[bool] = False  # whether passes leave a node's channels as they are
    keeps_scale: ClassVar[bool] = False  # whether results stand for reals as the value does
    operand: Operand | None = field(default=None, kw_only=True)

    @abc.abstractmethod
    def result(self, dtype: DType) -> DType:
        """Type of the result on a value of type ``dtype``; ``ValueError`` where not defined."""

    @abc.abstractmethod
    def reference(self, value: Array, operand: Array | None) -> Array:
        """The step in plain numpy; integers wrap as in TVM."""

    def operand_type(self, dtype: DType) -> DType:
        """Type of the operand that meets a value of type ``dtype``."""
        return dtype

    def with_operand(self, change: Callable[[Operand], Operand]) -> Step:
        """The step with its operand changed, if it has one."""
        return self if self.operand is None else replace(self, operand=change(self.operand))

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether the step's own numbers fit an output of this shape."""
        return True

    @property
    def commuted(self) -> Step | None:
        """The step that gives the same result where value and operand change places."""
        return None

    @property
    def along(self) -> int | None:
        """The dimension of the node's output along which each element has numbers of its own."""
        return None

    def with_elements(self, elements: Sequence[int], axis: int) -> Step:
        """The step with the numbers of these elements, for outputs where they lie along ``axis``;
        asked only of steps with numbers ``along`` a dimension."""
        raise NotImplementedError(self.name)

    def apart(self) -> tuple[Step, Array]:
        """The step without the numbers ``along`` a dimension, and these, a row for each element."""
        raise NotImplementedError(self.name)

    def is_identity(self, dtype: DType, operand: Array | None) -> bool:
        """Whether it changes no integer of type ``dtype``; ``operand`` is given where constant."""
        return False

    def commutes_with_widening(self) -> bool:
        """Whether it gives of an int64 that is an int32's value what it gives of the int32."""
        return False

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        """The range of the result, for a value of type ``of`` within ``value``; None where it is
        not known. A range that leaves the result's type says that results may wrap."""
        return None

    def largest(self, size: int, operand: int, constant: Array | None) -> int | None:
        """The largest absolute value of a result that does not wrap, of a value of at most ``size``
        and an operand of at most ``operand``, which is ``constant`` where that is known."""
        return None

    def text(self, show: Callable[[str], str]) -> str:
        """``kind(operand, arguments)``, where ``show`` names a tensor."""
        args = [str(value) for name, value in given(self) if name != "operand"]
        if self.operand is not None:
            inner = format_steps(self.operand.steps, show)
            args.insert(0, " >> ".join(filter(None, (show(self.operand.tensor), inner))))
        return f"{self.name}({', '.join(args)})"


def operands(steps: Iterable[Step]) -> Iterator[Operand]:
    """What steps read, and after each what its steps read."""
    return (step.operand for step in every_step(steps) if step.operand is not None)


def operand_tensors(steps: Iterable[Step]) -> Iterator[str]:
    """Names of the tensors that steps read, in the order of use."""
    return (operand.tensor for operand in operands(steps))


def every_step(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps, and after each those of its operand."""
    for step in steps:
        yield step
        if step.operand is not None:
            yield from every_step(step.operand.steps)


def step_types(dtype: DType, steps: Iterable[Step]) -> list[DType]:
    """The type in front of the steps, and after each of them."""
    return list(accumulate(steps, lambda before, step: step.result(before), initial=dtype))


def rename_steps(steps: tuple[Step, ...], rename: Callable[[str], str]) -> tuple[Step, ...]:
    """The same steps with every operand's tensor renamed."""

    def renamed(operand: Operand) -> Operand:
        return Operand(rename(operand.tensor), rename_steps(operand.steps, rename))

    return tuple(step.with_operand(renamed) for step in steps)


def format_steps(steps: tuple[Step, ...], show: Callable[[str], str] = "%{}".format) -> str:
    """``add(%c1) >> right_shift(%c2) >> clip(-127.0, 127.0) >> cast(int8)``"""
    return " >> ".join(step.text(show) for step in steps)
