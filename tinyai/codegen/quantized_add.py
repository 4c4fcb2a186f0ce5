"""The sum of two 8-bit tensors, each rescaled and rounded first, in lanes of 16 bits.

A residual sum of a quantized network rescales both branches to the scale of the result. Rescaling
an 8-bit value is a function of 256 values, and nearly all such functions are

    f(x) = times * v + (v * scale >> 16) + constant, where v = x + 256 * above

with 16-bit numbers: the whole part of the slope is ``times``, its fraction ``scale``, and ``above``
chooses what is cut off. The high half of a product is one instruction, and ``above`` costs none: it
is the byte that x gets above it when it is widened. Whether a function has this form is decided
value by value. x is the value's byte from 0 to 255; a signed value has its sign bit turned, which
makes it unsigned.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tinyai.codegen.requantization import Clamp
from tinyai.ir import NARROW, Array, DType, Graph, Step
from tinyai.ops import steps
from tinyai.reference import run_steps

# The slope between the first and the last result is so close to the one that is looked for.
NEAR = 2 * 65536 // 255


@dataclass(frozen=True)
class Branch:
    """``times * v + (v * scale >> 16) + constant`` for x from 0 to 255, v = ``x + 256 * above``. Of
    ``times * v`` the low 16 bits count, like those of all sums."""

    times: int
    above: int
    scale: int
    constant: int


@dataclass(frozen=True)
class QuantizedAdd:
    """``clamp(f(x) + g(y) + constant, low, high)`` as ``dtype``, y the tensor ``operand``.

    The constants of the branches count in ``constant`` already; the sum fits 16 bits.
    """

    x: Branch
    y: Branch
    x_type: DType
    y_type: DType
    operand: str
    constant: int
    low: int
    high: int
    dtype: DType

    @property
    def arguments(self) -> tuple[str, ...]:
        """The numbers that a microkernel is called with, in C."""
        numbers = [n for b in (self.x, self.y) for n in (b.times, b.above, b.scale)]
        shorts = np.array([*numbers, self.constant]).astype(np.int16)
        return *map(str, shorts), str(self.low), str(self.high)


def quantized_add_of(graph: Graph, chain: Sequence[Step], dtype: DType) -> QuantizedAdd | str:
    """The sum that steps from values of ``dtype`` are, or why they are none."""
    computed = (step.operand and step.operand.tensor not in graph.constants for step in chain)
    at = next((i for i, reads_tensor in enumerate(computed) if reads_tensor), None)
    if at is None or not isinstance(chain[at], steps.Add):
        return "no sum with another tensor"
    operand = chain[at].operand
    assert operand is not None
    y_type = graph.type(operand.tensor).dtype
    tail = Clamp.of(graph, chain[at + 1 :])
    x, y = _results(graph, chain[:at], dtype), _results(graph, operand.steps, y_type)
    if x is None or y is None:
        return "a branch that is no function of 8 bits to 32"
    if tail is None:
        return "other steps after the sum than a zero point, bounds and a cast to 8 bits"
    f, g = branch_of(tuple(map(int, x))), branch_of(tuple(map(int, y)))
    if f is None or g is None:
        return "a branch that is no line in 16 bits"
    ends = [sum(int(end(each)) for each in (x, y)) + tail.zero_point for end in (np.min, np.max)]
    if ends[0] < DType.INT16.range[0] or ends[1] > DType.INT16.range[1]:
        return "sums that do not fit 16 bits"
    constant = f.constant + g.constant + tail.zero_point
    return QuantizedAdd(
        f, g, dtype, y_type, operand.tensor, constant, tail.low, tail.high, tail.dtype
    )


def _results(graph: Graph, chain: Sequence[Step], dtype: DType) -> Array | None:
    """What the steps make of each byte of an 8-bit type, by the byte with a turned sign bit; None
    where they are not those of 8 bits to 32 by single numbers."""
    if dtype not in NARROW:
        return None
    operands = [step.operand for step in chain if step.operand]
    names = [operand.tensor for operand in operands]
    if any(operand.steps for operand in operands):
        return None
    if any(name not in graph.constants or graph.constants[name].size > 1 for name in names):
        return None
    if any(step.along is not None for step in chain):
        return None
    low, high = dtype.range
    numbers = {name: graph.constants[name].reshape(-1) for name in names}
    results = run_steps(chain, np.arange(low, high + 1).astype(dtype.numpy), numbers)
    return results if results.dtype == np.int32 else None


@functools.lru_cache(maxsize=512)
def branch_of(results: tuple[int, ...]) -> Branch | None:
    """The branch that gives 0 to 255 these results, or None.

    ``floor(v * scale / 2^16) + rest`` is f(x) without ``times * x`` where ``256 * above * scale +
    rest * 2^16`` lies between D(x) and D(x) + 2^16, D(x) = ``(f(x) - times * x) * 2^16 - scale *
    x``: a scale fits if the largest D is less than 2^16 above the smallest.
    """
    f, x = np.array(results, np.int64), np.arange(256, dtype=np.int64)
    slope = int(f[-1] - f[0]) * 65536 // 255
    for times in (slope >> 16, (slope >> 16) - 1):
        rest = slope - times * 65536
        scales = np.arange(max(rest - NEAR, 0), min(rest + NEAR, 65535) + 1)
        distance = (f - times * x) * 65536 - scales[:, None] * x
        least, most = distance.min(axis=1), distance.max(axis=1)
        room = 65535 - (most - least)
        # A scale of 0 is the cheapest; of the others the most central one.
        for at in np.lexsort((-room, scales != 0)):
            branch = _with_byte_above(times, int(scales[at]), int(most[at]), int(room[at]))
            if branch:
                return branch
    return None


def _with_byte_above(times: int, scale: int, most: int, room: int) -> Branch | None:
    """The branch of the least byte above x, for which ``256 * above * scale + rest * 2^16`` is at
    most ``room`` above ``most``."""
    if room < 0:
        return None
    offsets = 256 * np.arange(256, dtype=np.int64)
    fits = np.flatnonzero((offsets * scale - most) % 65536 <= room)
    if not fits.size:
        return None
    above = int(fits[0])
    rest = -((256 * above * scale - most) // 65536)
    return Branch(times, above, scale, rest - times * 256 * above)
