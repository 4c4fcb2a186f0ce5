"""The epilogue that SIMD kernels know: accumulator -> 8 bits, by one fixed-point multiplication.

Most layers of a quantized network end so: a bias a channel, a fixed-point multiplication a channel,
a zero point, bounds, a cast to 8 bits. ``relay.quantize`` writes a right shift for the
multiplication. ``requantization_of`` recognises both and computes the numbers of their exact vector
form; a node whose epilogue is another one, or whose accumulators could leave the range in which the
vector form is exact, keeps its steps.

The vector form of ``(x * m + 2^(r-1)) >> r`` with a 64-bit product, where r >= 33: the high 32 bits
of ``x * m``, plus ``2^(r-33)``, shifted right by ``r - 32``. The low 32 bits cannot carry into the
result, because the rounding constant is a multiple of 2^32. Where r < 33, x and r grow by the same
power of two, if that cannot overflow. The zero point goes in front of the last shift.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tinyai.ir import Array, DType, Graph, Node, Step
from tinyai.ops import steps
from tinyai.ops.bounds import INT32_MAX

_SHIFT = 33

# The constant operand of a step, one number a channel; None where it is something else.
_Numbers = Callable[[Step], Array | None]


@dataclass(frozen=True, eq=False)
class Requantization:
    """``clamp((((x << left) * multiplier >> 32) + offset) >> right, low, high)``, x an int32
    accumulator that starts from ``bias``.

    The arrays are int32, one number a channel; ``offset`` holds the rounding and the zero point.
    ``dtype`` is int8 or uint8.
    """

    bias: Array
    left: Array
    multiplier: Array
    offset: Array
    right: Array
    low: int
    high: int
    dtype: DType


def requantization_of(
    graph: Graph, node: Node, epilogue: Sequence[Step], channels: int, axis: int, reach: Array
) -> Requantization | str:
    """The numbers of a node's ``epilogue``, or why it is none.

    ``reach`` (int64, one a channel) is the largest size of a sum of products, before the bias.
    """
    rank = len(graph.type(node.output).shape)

    def numbers(step: Step) -> Array | None:
        return _along(graph, step, channels, axis, rank)

    bias, chain = _sum(epilogue, numbers)
    bias, chain = _without_shift(bias, chain, numbers, axis, reach)
    step = chain[0] if chain else None
    if isinstance(step, steps.Add):
        return "a sum with more than one constant a channel"
    if not isinstance(step, steps.FixedPointMultiply) or step.rounding != "upward":
        return "no fixed-point multiplication, halves upward, behind the bias"
    if step.axis not in (None, axis):
        return f"multipliers along axis {step.axis}"
    tail = Clamp.of(graph, chain[1:])
    if tail is None:
        return "other steps than a zero point, bounds and a cast to 8 bits"
    bias, multiplier, shift = (
        np.broadcast_to(np.array(values, np.int64), (channels,))
        for values in (bias, step.multiplier, step.shift)
    )
    return _numbers(bias, multiplier, shift, tail, reach)


def _sum(chain: Sequence[Step], numbers: _Numbers) -> tuple[Array, Sequence[Step]]:
    """The additions of numbers that a chain begins with, added up, and the rest of the chain."""
    total = np.array(0, np.int64)
    for at, step in enumerate(chain):
        value = numbers(step) if isinstance(step, steps.Add) else None
        if value is None:
            return total, chain[at:]
        total = total + value
    return total, ()


def _without_shift(
    bias: Array, chain: Sequence[Step], numbers: _Numbers, axis: int, reach: Array
) -> tuple[Array, Sequence[Step]]:
    """``x >> s``, the rounding of ``relay.quantize``, as ``((x - 2^(s-1)) * 2^30 + 2^(s+29)) >> (s
    + 30)``, where x cannot wrap; a relu in front goes behind, if the shift leaves 0 alone. Any
    other chain stays as it is.
    """
    relu = [step for step in chain[:1] if isinstance(step, steps.Relu)]
    more, rest = _sum(chain[len(relu) :], numbers)
    places = numbers(rest[0]) if rest and isinstance(rest[0], steps.RightShift) else None
    if places is None or np.any(places < 1) or np.any(reach + abs(bias) + abs(more) > INT32_MAX):
        return bias, chain
    if relu and np.any(more >> places):
        return bias, chain
    shift = tuple(int(1 - s) for s in places)
    multiply = steps.FixedPointMultiply((1 << 30,) * len(shift), shift, axis)
    return bias + more - (1 << (places - 1)), [multiply, *relu, *rest[1:]]


def _numbers(
    bias: Array, multiplier: Array, shift: Array, tail: Clamp, reach: Array
) -> Requantization | str:
    largest = reach + np.abs(bias)
    left, right = np.maximum(shift, 0), 31 + np.maximum(-shift, 0)
    more = np.maximum(_SHIFT - right, 0)
    left, right = left + more, right + more
    constant = _constants(bias, multiplier, shift, tail, reach)
    known = constant >= tail.low
    # A channel without weights, or with tiny ones, gives the same result for every input.
    largest, multiplier = np.where(known, 0, largest), np.where(known, 0, multiplier)
    left, right = np.where(known, 0, left), np.where(known, 33, right)
    if np.any(largest >= np.left_shift(np.int64(1), 31 - np.minimum(left, 31))):
        return "accumulators too large to be shifted before the multiplication"
    high = (np.left_shift(largest, left) * np.abs(multiplier) >> 32) + 1
    offset = np.left_shift(np.int64(1), right - 33)
    offset = offset + np.left_shift(np.int64(tail.zero_point), right - 32)
    offset = np.where(known, 2 * constant, offset)
    if np.any(high + np.abs(offset) >= 2**31):
        return "a zero point that does not fit in front of the last shift"
    return Requantization(
        bias.astype(np.int32),
        left.astype(np.int32),
        multiplier.astype(np.int32),
        offset.astype(np.int32),
        (right - 32).astype(np.int32),
        tail.low,
        tail.high,
        tail.dtype,
    )


def _constants(bias: Array, multiplier: Array, shift: Array, tail: Clamp, reach: Array) -> Array:
    """The result of each channel that has the same for every sum of products within ``reach``;
    less than every result for the others. The result is monotonic in the sum."""
    ends = bias - reach, bias + reach
    scale = multiplier * 2.0 ** (shift - 31)
    least, most = (np.clip(sums * scale + tail.zero_point, tail.low, tail.high) for sums in ends)
    constant = np.full(bias.shape, tail.low - 1, np.int64)
    for c in np.flatnonzero(np.abs(most - least) <= 2):  # so near that rounding decides
        first, last = (_exact(int(sums[c]), int(multiplier[c]), int(shift[c])) for sums in ends)
        first, last = (min(max(x + tail.zero_point, tail.low), tail.high) for x in (first, last))
        constant[c] = first if first == last else constant[c]
    return constant


def _exact(x: int, multiplier: int, shift: int) -> int:
    right = 31 + max(-shift, 0)
    return ((x << max(shift, 0)) * multiplier + (1 << (right - 1))) >> right


def _along(graph: Graph, step: Step, channels: int, axis: int, rank: int) -> Array | None:
    """The constant operand of a step as one number a channel."""
    operand = step.operand
    if operand is None or operand.steps or operand.tensor not in graph.constants:
        return None
    value = graph.constants[operand.tensor]
    shape = (1,) * (rank - value.ndim) + value.shape
    if value.size not in (1, channels) or (value.size > 1 and shape[axis] != channels):
        return None
    return np.broadcast_to(value.reshape(-1).astype(np.int64), (channels,))


_FREE = DType.INT32.range  # bounds where there are none


@dataclass(frozen=True)
class Clamp:
    """``clamp(x + zero_point, low, high)`` as ``dtype``."""

    zero_point: int
    low: int
    high: int
    dtype: DType

    @classmethod
    def of(cls, graph: Graph, chain: Sequence[Step]) -> Clamp | None:
        zero_point, low, high, dtype = 0, *_FREE, DType.INT32
        for step in chain:
            match step:
                case steps.Add() if dtype is DType.INT32:
                    operand = step.operand
                    value = graph.constants.get(operand.tensor) if operand else None
                    if operand is None or operand.steps or value is None or value.size != 1:
                        return None
                    number = int(value.reshape(-1)[0])
                    zero_point += number
                    low, high = (b if b in _FREE else b + number for b in (low, high))
                case steps.Clip():
                    low, high = _bounded(low, high, int(step.low), int(step.high))
                case steps.Relu():
                    low, high = _bounded(low, high, 0, high)
                case steps.Cast(to) if (
                    not to.is_float and to.range[0] <= low and high <= to.range[1]
                ):
                    dtype = to
                case _:
                    return None
        if dtype not in (DType.INT8, DType.UINT8) or abs(zero_point) > 255:
            return None
        return cls(zero_point, low, high, dtype)


def _bounded(low: int, high: int, least: int, most: int) -> tuple[int, int]:
    """Bounds of ``max(min(x, most), least)`` for x from low to high."""
    return max(min(low, most), least), max(min(high, most), least)
