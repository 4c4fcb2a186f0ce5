"""Division by a number as two multiplications, proved for every float.

A float tensor is quantized by a division: ``x / scale``, rounded, cut to 8 or 16 bits. Processors
divide vectors many times slower than they multiply. ``fma(x, high, x * low)`` with the reciprocal
in two parts is nearly the quotient, and what differs in the last place differs in the result only
next to where that changes: from one integer to the next. Both forms grow with x, so they are equal
everywhere where they are equal on both sides of each such place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tinyai.ir import Array, DType, Graph, Step
from tinyai.ops import steps
from tinyai.ops.functions import fused_multiply_add
from tinyai.reference import run_steps

# Divisors of which no part of a reciprocal, nor of a quotient that counts, is subnormal.
LEAST, MOST = 2.0**-60, 2.0**60
# Floats in their order are numbered: 0 is zero, and this is infinity.
INFINITY = 0x7F800000


@dataclass(frozen=True)
class Reciprocal:
    """``fma(x, high, x * low)``; both are positive, or ``low`` is 0 and the product ``x * high``
    exact."""

    high: np.float32
    low: np.float32

    def quotient(self, x: Array) -> Array:
        """As a processor computes it."""
        if not self.low:
            return np.asarray(x * self.high)
        return fused_multiply_add(x, np.asarray(self.high), x * self.low)


def reciprocal_of(graph: Graph, chain: Sequence[Step]) -> Reciprocal | None:
    """Of the division that begins a chain, where every float has the same result either way; or
    None. Looked at are chains that round, add numbers, and end in 8 or 16 bits."""
    match chain:
        case [steps.Divide() as division, *between, steps.Clip(low, high), steps.Cast(to)]:
            pass
        case _:
            return None
    divisor = graph.number_operand(division)
    plain = all(isinstance(step, steps.Round | steps.Add | steps.Subtract) for step in between)
    if divisor is None or not plain or to not in (DType.INT8, DType.UINT8, DType.INT16):
        return None
    numbers: list[tuple[str, float]] = []
    for step in between:
        if step.operand is not None:
            number = graph.number_operand(step)
            if number is None:
                return None
            numbers.append((step.operand.tensor, float(number.reshape(-1)[0])))
    if not (
        LEAST < float(divisor.reshape(-1)[0]) < MOST and to.range[0] <= low <= high <= to.range[1]
    ):
        return None
    return _proved(float(divisor.reshape(-1)[0]), tuple(chain[1:]), tuple(numbers))


@functools.lru_cache(maxsize=256)
def _proved(
    divisor: float, chain: tuple[Step, ...], numbers: tuple[tuple[str, float], ...]
) -> Reciprocal | None:
    found = _reciprocal(divisor)
    constants = {name: np.array([number], np.float32) for name, number in numbers}
    with np.errstate(over="ignore", invalid="ignore"):
        return found if _is_exact(found, np.float32(divisor), chain, constants) else None


def _reciprocal(divisor: float) -> Reciprocal:
    """Its high part is cut off, so that the low one has the same sign: an infinity stays one."""
    exact = 1 / Fraction(divisor)
    high = np.float32(float(exact))
    if Fraction(float(high)) > exact:
        high = np.nextafter(high, np.float32(0))
    return Reciprocal(high, np.float32(float(exact - Fraction(float(high)))))


def _is_exact(
    found: Reciprocal, divisor: np.float32, chain: Sequence[Step], numbers: Mapping[str, Array]
) -> bool:
    def results(quotients: Array) -> Array:
        return run_steps(chain, quotients, numbers).astype(np.int64)

    least, most = results(_floats(np.array([-INFINITY, INFINITY])))
    wanted = np.arange(least + 1, most + 1)
    quotients = _floats(_first(lambda q: results(q) >= wanted, len(wanted)))
    at = _first(lambda x: x / divisor >= quotients, len(wanted))
    reached = found.quotient(_floats(at)) >= quotients
    before = found.quotient(_floats(at - 1)) < quotients
    return bool(np.all(reached & before))


def _first(holds: Callable[[Array], Array], count: int) -> Array:
    """For each of ``count`` questions the number of the first float of which it holds; it holds of
    all after that, and of infinity."""
    no, yes = np.full(count, -INFINITY - 1), np.full(count, INFINITY)
    while np.any(yes - no > 1):
        middle = (no + yes) // 2
        answers = holds(_floats(middle))
        no, yes = np.where(answers, no, middle), np.where(answers, middle, yes)
    return yes


def _floats(numbers: Array) -> Array:
    """The floats of these numbers, in their order."""
    sizes = np.minimum(np.abs(numbers), INFINITY).astype(np.int32).view(np.float32)
    return np.where(numbers < 0, -sizes, sizes)
