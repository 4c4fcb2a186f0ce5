"""Rescaling of 8-bit values as one float operation, ``round(a * x + b)``, proved value by value.

A branch of a sum begins so: the zero point comes off, and a fixed-point multiplication takes the
value to the scale of the result. In vectors of 32-bit lanes a product of 64 bits is dear, and a
float has more than enough digits for 256 values: the form is used where it gives each of them the
same result.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tinyai.ir import NARROW, Array, DType, Graph, Step
from tinyai.ops import steps
from tinyai.reference import run_steps

# Ties are rounded to even here, and by other rules in the steps: a little more or less decides.
TILTS = (1.0, 1 + 2.0**-23, 1 - 2.0**-23)
NUDGES = (0.0, 2.0**-12, -(2.0**-12), 2.0**-16, -(2.0**-16))


@dataclass(frozen=True)
class Line:
    """``round(fma(x, a, b))``, halves to even, does the first ``steps`` of a chain; the result is
    an int32."""

    a: np.float32
    b: np.float32
    steps: int


def line_of(graph: Graph, chain: Sequence[Step], dtype: DType) -> Line | None:
    """The line of the longest beginning of ``chain`` that has one, from values of ``dtype``."""
    if dtype not in NARROW:
        return None
    for count, scale, offset in reversed(list(_beginnings(graph, chain))):
        low, high = dtype.range
        values = np.arange(low, high + 1).astype(dtype.numpy)
        names = [step.operand.tensor for step in chain[:count] if step.operand]
        numbers = {name: graph.constants[name].reshape(-1) for name in names}
        want = run_steps(chain[:count], values, numbers)
        for tilt, nudge in itertools.product(TILTS, NUDGES):
            a, b = np.float32(scale * tilt), np.float32(offset + nudge)
            if np.array_equal(_on_line(values, a, b), want):
                return Line(a, b, count)
    return None


def _beginnings(graph: Graph, chain: Sequence[Step]) -> Iterator[tuple[int, float, float]]:
    """Steps of each beginning that rescales, and the real numbers that it stands for."""
    scale, offset, rescales = 1.0, 0.0, False
    for count, step in enumerate(chain, 1):
        match step:
            case steps.Cast(DType.INT32):
                pass
            case steps.Add() | steps.Subtract():
                value = graph.number_operand(step)
                if value is None:
                    return
                number = int(value.reshape(-1)[0])
                offset += number if isinstance(step, steps.Add) else -number
            case steps.FixedPointMultiply() if len(step.multiplier) == 1:
                factor = step.multiplier[0] * 2.0 ** (step.shift[0] - 31)
                scale, offset, rescales = scale * factor, offset * factor, True
            case _:
                return
        if rescales:
            yield count, scale, offset


def _on_line(values: Array, a: np.float32, b: np.float32) -> Array:
    """The line's results as a processor computes them, rounded once after the sum. Nothing where
    the sum does not fit a double, so that rounding it would be rounding twice."""
    product = values.astype(np.float64) * np.float64(a)
    total = product + np.float64(b)
    if np.any(total - product != b) or np.any(total - np.float64(b) != product):
        return np.empty(0)
    return np.rint(total.astype(np.float32)).astype(np.int32)
