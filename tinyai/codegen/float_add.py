"""The sum of two 8-bit tensors as two multiply-adds in floats, proved for every pair of values.

TFLite rescales both branches of a sum with 20 binary places to spare, and rounds what they add up
to; ONNX Runtime multiplies and adds in floats. Either way the result is very nearly
``round(a * x + b * y + c)``, and there are only 65,536 pairs: the form is used where it gives each
of them the same result. Float32 has digits enough, but for the few pairs that lie next to a tie; a
slightly different a, b or c decides those.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tinyai.codegen.c import literal
from tinyai.ir import NARROW, Array, DType, Graph, Operand, Step, operand_tensors
from tinyai.ops import steps
from tinyai.ops.functions import fused_multiply_add
from tinyai.reference import run_steps

TILTS = tuple(1 + n * 2.0**-23 for n in (0, 1, -1, 2, -2))
NUDGES = tuple(n * 2.0**-p for p, n in ((1, 0), *itertools.product((18, 16, 14, 12), (1, -1))))
# Pairs so near to a tie are looked at first: they decide.
NEAR = 2.0**-10


@dataclass(frozen=True)
class FloatAdd:
    """``clamp(round(a * x + (b * y + c)), low, high)`` as ``dtype``, halves to even, y the tensor
    ``operand``; ``fused`` multiply-adds round once."""

    a: np.float32
    b: np.float32
    c: np.float32
    x_type: DType
    y_type: DType
    operand: str
    low: int
    high: int
    dtype: DType
    fused: bool

    @property
    def arguments(self) -> tuple[str, ...]:
        """The numbers that a microkernel is called with, in C."""
        numbers = [literal(n, DType.FLOAT32) for n in (self.a, self.b, self.c)]
        return *numbers, str(self.low), str(self.high)

    def results(self, x: Array, y: Array) -> Array:
        """What the microkernel computes, as int64."""
        if self.fused:
            a, b, c = (np.asarray(number) for number in (self.a, self.b, self.c))
            total = fused_multiply_add(x, a, fused_multiply_add(y, b, c))
        else:
            total = x * self.a + (y * self.b + self.c)
        return np.clip(np.rint(total), self.low, self.high).astype(np.int64)


def float_add_of(
    graph: Graph, chain: Sequence[Step], dtype: DType, *, fused: bool
) -> FloatAdd | str:
    """The sum that steps from values of ``dtype`` are, or why they are none."""
    read = set(operand_tensors(chain))
    tensors = sorted(read - set(graph.constants))
    constants = sorted(read & set(graph.constants))
    if len(tensors) != 1:
        return "no sum with one other tensor"
    if any(graph.constants[name].size > 1 for name in constants):
        return "numbers that differ from channel to channel"
    types = dtype, graph.type(tensors[0]).dtype
    if not set(types) <= set(NARROW):
        return f"a sum of {types[0]} and {types[1]}"
    numbers = tuple((name, graph.constants[name].reshape(-1)[0]) for name in constants)
    return _found(tuple(chain), types, tensors[0], numbers, fused)


@functools.lru_cache(maxsize=512)
def _found(
    chain: tuple[Step, ...],
    types: tuple[DType, DType],
    operand: str,
    numbers: tuple[tuple[str, np.generic], ...],
    fused: bool,
) -> FloatAdd | str:
    constants = {name: np.asarray(number) for name, number in numbers}
    plane = _plane(chain, np.array([1.0, 0.0, 0.0]), operand, constants)
    dtype = types[0]
    for step in chain:
        dtype = step.result(dtype)
    if plane is None or dtype not in NARROW:
        return "other steps than a sum of rescaled tensors that ends in 8 bits"
    values = [np.arange(of.range[0], of.range[1] + 1).astype(of.numpy) for of in types]
    x, y = np.meshgrid(*values, indexing="ij")
    want = run_steps(chain, x, {**constants, operand: y}).astype(np.int64)
    x, y = x.astype(np.float32), y.astype(np.float32)
    a, b, c = map(float, plane)
    exact = a * x + b * y + c
    near = np.abs(exact - np.floor(exact) - 0.5) < NEAR
    bounds = int(want.min()), int(want.max())
    for tilt, other, nudge in itertools.product(TILTS, TILTS, NUDGES):
        form = FloatAdd(
            np.float32(a * tilt),
            np.float32(b * other),
            np.float32(c + nudge),
            *types,
            operand,
            *bounds,
            dtype,
            fused,
        )
        if not np.array_equal(form.results(x[near], y[near]), want[near]):
            continue
        if np.array_equal(form.results(x, y), want):
            return form
    return "sums of which one or more are not those of floats"


def _plane(
    chain: Sequence[Step], start: Array, tensor: str, constants: Mapping[str, Array]
) -> Array | None:
    """``a``, ``b`` and ``c`` of what steps mean in real numbers, bounds left out: they begin at
    ``start`` and add ``tensor``. None where they are not linear."""
    at = start
    for step in chain:
        other = _operand(step.operand, tensor, constants)
        moved = None if other is None else _moved(step, at, other)
        if moved is None:
            return None
        at = moved
    return at


def _operand(operand: Operand | None, tensor: str, constants: Mapping[str, Array]) -> Array | None:
    """The same of a step's operand; zeros where the step has none."""
    if operand is None:
        return np.zeros(3)
    if operand.tensor == tensor:
        start = np.array([0.0, 1.0, 0.0])
    else:
        start = np.array([0.0, 0.0, float(constants[operand.tensor])])
    return _plane(operand.steps, start, tensor, constants)


def _moved(step: Step, at: Array, other: Array) -> Array | None:
    a, b, number = map(float, other)
    match step:
        case steps.Cast() | steps.Round() | steps.Clip():
            return at
        case steps.Add():
            return np.asarray(at + other)
        case steps.Subtract():
            return np.asarray(at - other)
        case steps.AddProduct(factor):
            return np.asarray(at + other * factor)
        case steps.MultiplyAdd(factor):
            return np.asarray(at * factor + other)
        case steps.FixedPointMultiply() if len(step.multiplier) == 1:
            return np.asarray(at * step.multiplier[0] * 2.0 ** (step.shift[0] - 31))
        case steps.LeftShift() if not (a or b):
            return np.asarray(at * 2.0**number)
        case steps.Multiply() if not (a or b):
            return np.asarray(at * number)
        case steps.Divide() if number and not (a or b):
            return np.asarray(at / number)
    return None
