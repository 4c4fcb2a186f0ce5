"""What an instruction set brings for kernels that write vectors themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from tinyai.codegen.ctree import Code, Declare, For, Statement
from tinyai.codegen.index import Axis
from tinyai.codegen.placed import Placed
from tinyai.codegen.steps import Epilogue, StepChain
from tinyai.ir import Array, DType, Step
from tinyai.ops.steps import Lookup


def no_vector(what: str) -> str:
    """Why a kernel of vectors rejects a node: a step, type or place that has no vector form."""
    return f"no vector form of {what}"


class Vectors(Protocol):
    """Vectors of an instruction set as C. Values are expressions.

    A vector has ``lanes`` of 32 bits, each an integer of any type or a float, or as many lanes as
    it has ``bytes``. The type that methods ask for is that of the lanes: int32, float32, or int8
    and uint8 for bytes. Which lanes of a vector count, the variable ``lanes`` says in C.
    What ``lacks`` names has no form; the other methods are not asked for it.
    """

    @property
    def lanes(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    def lacks(
        self, graph: Placed, axes: Sequence[Axis], dtype: DType, chain: Sequence[Step]
    ) -> str | None:
        """What has no vector form of lanes of ``dtype``, which run along the last of ``axes``, a
        chain of steps from them, and its results; None where all have one."""
        ...

    def mask(self, axis: Axis, lanes: int) -> Declare:
        """The variable ``lanes`` at the axis' position: all, but for those after its end."""
        ...

    def load(self, address: str, dtype: DType) -> str:
        """Elements of a type, each in a lane of 32 bits; 0 in lanes that do not count."""
        ...

    def load_bytes(self, address: str) -> str: ...

    def store_bytes(self, address: str, value: str) -> Statement: ...

    def declare(self, name: str, value: str, dtype: DType, *, constant: bool = False) -> Declare:
        """A variable that holds a vector."""
        ...

    def zero(self, dtype: DType) -> str: ...

    def all_lanes(self, number: str | int, dtype: DType) -> str:
        """The same number in each lane."""
        ...

    def apply(
        self, operator: Literal["+", "-", "*", "/", ">>", "max"], a: str, b: str, dtype: DType
    ) -> str: ...

    def real(self, value: str) -> str:
        """Integers of 32 bits as floats."""
        ...

    def mean(self, epilogue: Epilogue, total: str, count: str, *, rounded: bool) -> str:
        """Sums of 32 bits, divided by a number: cut towards zero, or ``rounded``."""
        ...

    def quotient(self, epilogue: Epilogue, a: str, b: str, inverse: str) -> str:
        """Floats ``a`` over ``b``, whose rounded ``inverse`` is known, as a division rounds them:
        ``a`` is 0 or at least 2^-100, and inverse and quotient are normal numbers, or 0."""
        ...

    def steps(
        self,
        epilogue: Epilogue,
        axes: Sequence[Axis],
        value: str,
        dtype: DType,
        address: str,
        chain: Sequence[Step] | None = None,
    ) -> Code:
        """Statements that take lanes of ``dtype``, which run along the last of ``axes``, through
        all steps of the node, or those of ``chain``, and store the result at an address."""
        ...


def write_lanes(
    vectors: Vectors,
    epilogue: Epilogue,
    chain: StepChain,
    acc_index: str,
    out_index: str,
    axes: Sequence[Axis],
) -> Code:
    """A loop over the last axis, many lanes at a time, that takes ``acc[acc_index]`` through the
    steps of a chain to ``out[out_index]``; None where a step has no vector form."""
    last = axes[-1]
    if lacking := vectors.lacks(epilogue.graph, axes, chain.start, chain.steps):
        epilogue.slower.append(f"steps one element at a time: {no_vector(lacking)}")
        return None
    value = vectors.load(f"acc + {acc_index}", chain.start)
    steps = vectors.steps(epilogue, axes, value, chain.start, f"out + {out_index}", chain.steps)
    mask = vectors.mask(last, vectors.lanes)
    return For(last.var, 0, last.count, mask, steps, step=vectors.lanes)


def table_bytes(step: Lookup, start: DType) -> Array:
    """The results in the order of the values' bytes, of which negative ones are the last."""
    return np.roll(step.results, start.range[0])
