"""The sum of two 8-bit tensors as one linear function of both, proved for every pair of values.

TFLite rescales both branches of a sum with 20 binary places to spare, and rounds what they add up
to; ONNX Runtime multiplies and adds in floats. Either way the result is very nearly
``round(a * x + b * y + c)``, and there are only 65,536 pairs: a form is used where it gives each
of them the same result. Its numbers have digits enough, but for the few pairs that lie next to a
tie; a slightly different a, b or c decides those.

Bytes that are multiplied as integers need not be made floats and back: ``FixedAdd`` goes first
where an instruction set has it. It has no halves to even, so ``FloatAdd`` has the sums that do.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tinyai.codegen.c import literal
from tinyai.ir import NARROW, Array, DType, Graph, Operand, Step, operand_tensors
from tinyai.ops import steps
from tinyai.ops.functions import fused_multiply_add
from tinyai.reference import run_steps

# In integers, or in floats with multiply-adds that round once (fused) or twice.
Form = Literal["fixed", "fused", "floats"]
TILTS = tuple(1 + n * 2.0**-23 for n in (0, 1, -1, 2, -2))
NUDGES = tuple(n * 2.0**-p for p, n in ((1, 0), *itertools.product((18, 16, 14, 12), (1, -1))))
# Pairs so near to a tie are looked at first: they decide.
NEAR = 2.0**-10
# With so many places a and b are at most 64 each.
LEAST_PLACES = 24


@dataclass(frozen=True, kw_only=True)
class _Sum:
    """Types of the tensors x and y, y by name, and bounds and type of the result."""

    x_type: DType
    y_type: DType
    operand: str
    low: int
    high: int
    dtype: DType


@dataclass(frozen=True, kw_only=True)
class FloatAdd(_Sum):
    """``clamp(round(a * x + (b * y + c)), low, high)``, halves to even; ``fused`` multiply-adds
    round once."""

    a: np.float32
    b: np.float32
    c: np.float32
    fused: bool

    @property
    def arguments(self) -> tuple[str, ...]:
        """The numbers that a microkernel is called with, in C."""
        numbers = [literal(n, DType.FLOAT32) for n in (self.a, self.b, self.c)]
        return *numbers, str(self.low), str(self.high)

    def results(self, x: Array, y: Array) -> Array:
        """What the microkernel computes, as int64."""
        x, y = x.astype(np.float32), y.astype(np.float32)
        if self.fused:
            a, b, c = (np.asarray(number) for number in (self.a, self.b, self.c))
            total = fused_multiply_add(x, a, fused_multiply_add(y, b, c))
        else:
            total = x * self.a + (y * self.b + self.c)
        return np.clip(np.rint(total), self.low, self.high).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class FixedAdd(_Sum):
    """``clamp((a * x + b * y + c >> places) + whole, low, high)``, where x and y are the bytes from
    0 to 255: a signed value has its sign bit turned.

    a and b have 32 bits, of which products of 16 bits take a half each: with ``a = high * 2^16 +
    low``, and b alike, the shift is ``(high_a * x + high_b * y + (low_a * x + low_b * y + c >> 16))
    >> (places - 16)``. No sum leaves 32 bits.
    """

    a: int
    b: int
    c: int
    whole: int
    places: int

    @property
    def arguments(self) -> tuple[str, ...]:
        """The numbers that a microkernel is called with, in C: both halves of a and of b, c,
        places after the first 16, the whole number, and the bounds."""
        halves = []
        for number in (self.a, self.b):
            high, above = divmod(number + 2**15, 2**16)
            halves += [high, above - 2**15]
        numbers = *halves, self.c, self.places - 16, self.whole, self.low, self.high
        return tuple(map(str, numbers))

    def results(self, x: Array, y: Array) -> Array:
        """What the microkernel computes, as int64."""
        of_x = self.a * (x.astype(np.int64) - self.x_type.range[0])
        of_y = self.b * (y.astype(np.int64) - self.y_type.range[0])
        total = (of_x + of_y + self.c >> self.places) + self.whole
        return np.clip(total, self.low, self.high)


LinearAdd = FloatAdd | FixedAdd


def linear_add_of(graph: Graph, chain: Sequence[Step], dtype: DType, form: Form) -> LinearAdd | str:
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
    return _found(tuple(chain), types, tensors[0], numbers, form)


@functools.lru_cache(maxsize=512)
def _found(
    chain: tuple[Step, ...],
    types: tuple[DType, DType],
    operand: str,
    numbers: tuple[tuple[str, np.generic], ...],
    form: Form,
) -> LinearAdd | str:
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
    a, b, c = map(float, plane)
    exact = a * x + b * y + c
    near = np.abs(exact - np.floor(exact) - 0.5) < NEAR
    of = _Sum(
        x_type=types[0],
        y_type=types[1],
        operand=operand,
        low=int(want.min()),
        high=int(want.max()),
        dtype=dtype,
    )
    for tilt, other, nudge in itertools.product(TILTS, TILTS, NUDGES):
        add = _FORMS[form](of, a * tilt, b * other, c + nudge)
        if add is None or not np.array_equal(add.results(x[near], y[near]), want[near]):
            continue
        if np.array_equal(add.results(x, y), want):
            return add
    return (
        f"sums of which one or more are not those of {'integers' if form == 'fixed' else 'floats'}"
    )


def _in_floats(of: _Sum, a: float, b: float, c: float, *, fused: bool) -> FloatAdd:
    numbers = np.float32(a), np.float32(b), np.float32(c)
    return FloatAdd(**vars(of), a=numbers[0], b=numbers[1], c=numbers[2], fused=fused)


def _in_integers(of: _Sum, a: float, b: float, c: float) -> FixedAdd | None:
    """The form with as many places as fit; None where sums would not fit the 16 bits of a result
    that is not cut off yet."""
    places = min(31, 30 - math.frexp(max(abs(a), abs(b)))[1])
    if places < LEAST_PLACES:
        return None
    scaled = [round(math.ldexp(number, places)) for number in (a, b)]
    turned = scaled[0] * of.x_type.range[0] + scaled[1] * of.y_type.range[0]
    half = 2 ** (places - 1)
    # Half a unit rounds up; c is what lies around the nearest whole number, from -half to half.
    whole, rest = divmod(round(math.ldexp(c, places)) + turned + 2 * half, 2 * half)
    if abs(whole) > DType.INT16.range[1]:
        return None
    return FixedAdd(**vars(of), a=scaled[0], b=scaled[1], c=rest - half, whole=whole, places=places)


_FORMS: Mapping[Form, Callable[[_Sum, float, float, float], LinearAdd | None]] = {
    "fixed": _in_integers,
    "fused": functools.partial(_in_floats, fused=True),
    "floats": functools.partial(_in_floats, fused=False),
}


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
