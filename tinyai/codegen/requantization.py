"""The epilogue that SIMD kernels know: accumulator -> 8 bits, by one multiplication a channel.

Most layers of a quantized network end so: a bias a channel, a multiplication a channel, a zero
point, bounds, a cast to 8 bits. ``relay.quantize`` writes a right shift for the multiplication.
``requantization_of`` recognises each and computes the numbers of their exact vector form; a node
whose epilogue is another one, or whose accumulators could leave the range in which the vector form
is exact, keeps its steps. Each framework's rounding ends in one of three forms.

*Rounded once*, halves up (TVM): ``(x * m + 2^(r-1)) >> r`` with a 64-bit product, where r >= 33.
That is the high 32 bits of ``x * m``, plus ``2^(r-33)``, shifted right by ``r - 32``: the low ones
cannot carry into the result, because the rounding constant is a multiple of 2^32. Where r < 33, x
and r grow by the same power of two, if that cannot overflow. The zero point goes in front of the
last shift.

*Rounded twice* (TFLite): to 2^31 first, which is ``high = (x * m + 2^30) >> 31`` for both signs,
then by s places, halves away from zero, which is ``(high + 2^(s-1) - (x < 0)) >> s``. With
``h = 4 * x * m >> 32`` the first is ``(h + 1) >> 1``, so that both are one shift:
``(h + 1 + 2^s - 2 * (x < 0)) >> (s + 1)``. That is the form above but for the last term, and the
term falls away where the lower bound is the zero point or more, as a ReLU's is: a negative x gives
no more than the zero point with it or without it.

Most channels need no ``4 * x`` then: ``((x + d) * m >> 32) + o) >> (s - 1)`` gives the same results
for some whole numbers d, which the bias takes in, and o (``_unshifted``).

*In floats* (ONNX Runtime): ``round(float(x) * m)``, halves to even, in single precision.

Where instructions round by themselves (``Rounded``), integers need no offsets: the high half of
``2 * x * m``, rounded first where TFLite does, then a shift that rounds halves up, and the zero
point last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tinyai.ir import Array, DType, Graph, Node, Step
from tinyai.ops import steps
from tinyai.ops.bounds import INT32_MAX

# Bits of a product that ``* multiplier >> 32`` drops; what both shifts drop at least, so that half
# a unit of the result is a whole number in front of the last one; and the bits below the unit of
# the first of two roundings that are kept for the second.
_HIGH, _LEAST, _SPARE = 32, 33, 2
# How many offsets are tried on each side of the natural one, to begin with and where none served.
TRIES = (16, 64, 256, 1024, 8192)
# Of the distance between the bounds: an offset so near to their middle is between them for certain.
_WELL = 0.499
OTHER_STEPS = "other steps than a zero point, bounds and a cast to 8 bits"

# The constant operand of a step, one number a channel; None where it is something else.
_Numbers = Callable[[Step], Array | None]


@dataclass(frozen=True, eq=False)
class Rounded:
    """``clamp((h >> -right) + zero_point, low, high)``, where the shift rounds halves up and ``h``
    is ``x * multiplier >> 31``, x an int32 accumulator that starts from ``bias``.

    With ``nearest`` h is rounded too, halves up; with ``away`` a negative h is 1 less, so that its
    halves go away from zero. ``right`` is 0 or less in each channel.
    """

    bias: Array
    multiplier: Array
    right: Array
    zero_point: int
    low: int
    high: int
    dtype: DType
    nearest: bool
    away: bool

    @property
    def numbers(self) -> tuple[str, ...]:
        """The arrays that the form reads, beside the bias."""
        return "multiplier", "right"


@dataclass(frozen=True, eq=False)
class Requantization:
    """``clamp((((x << left) * multiplier >> 32) + offset) >> right, low, high)``, x an int32
    accumulator that starts from ``bias``.

    The arrays are int32, one number a channel; ``offset`` holds the rounding and the zero point.
    ``dtype`` is int8 or uint8.

    With ``twice``, ``left`` is 2 and the offset of a negative x is 2 less. With ``floats`` it is
    ``clamp(round(x * multiplier) + offset, low, high)``, halves to even: ``multiplier`` holds the
    bits of float32 numbers, ``left`` and ``right`` are 0.

    ``rounded`` is the same for instructions that round, where it has such a form.
    """

    bias: Array
    left: Array
    multiplier: Array
    offset: Array
    right: Array
    low: int
    high: int
    dtype: DType
    twice: bool = False
    floats: bool = False
    rounded: Rounded | None = None

    @property
    def numbers(self) -> tuple[str, ...]:
        """The arrays that the form reads, beside the bias."""
        if self.floats:
            return "multiplier", "offset"
        shifted = not self.twice and bool(np.any(self.left))
        return (*(("left",) if shifted else ()), "multiplier", "offset", "right")


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
    chain = _relu_behind(chain)
    step = chain[0] if chain else None
    if isinstance(step, steps.Add):
        return "a sum with more than one constant a channel"
    if step == steps.Cast(DType.FLOAT32):
        return _in_floats(graph, np.broadcast_to(bias, (channels,)), chain, numbers, reach)
    if not isinstance(step, steps.FixedPointMultiply):
        return "no multiplication after the bias"
    if step.axis not in (None, axis):
        return f"multipliers along axis {step.axis}"
    tail = Clamp.of(graph, chain[1:])
    if tail is None:
        return OTHER_STEPS
    bias, multiplier, shift = (
        np.broadcast_to(np.array(values, np.int64), (channels,))
        for values in (bias, step.multiplier, step.shift)
    )
    return _numbers(bias, multiplier, shift, step.ties, tail, reach)


def _sum(chain: Sequence[Step], numbers: _Numbers) -> tuple[Array, Sequence[Step]]:
    """The additions of numbers that a chain begins with, added up, and the rest of the chain."""
    total = np.array(0, np.int64)
    for at, step in enumerate(chain):
        value = numbers(step) if isinstance(step, steps.Add) else None
        if value is None:
            return total, chain[at:]
        total = total + value
    return total, ()


def _relu_behind(chain: Sequence[Step]) -> Sequence[Step]:
    """A ReLU goes after the multiplication that it stands in front of: that keeps signs."""
    match chain:
        case [steps.Relu() as relu, steps.FixedPointMultiply() as step, *rest] if (
            min(step.multiplier) >= 0
        ):
            return [step, relu, *rest]
    return chain


def _without_shift(
    bias: Array, chain: Sequence[Step], numbers: _Numbers, axis: int, reach: Array
) -> tuple[Array, Sequence[Step]]:
    """``x >> s``, the rounding of ``relay.quantize``, as ``((x - 2^(s-1)) * 2^30 + 2^(s+29)) >> (s
    + 30)``, where x cannot wrap; a relu in front goes after, if the shift leaves 0 alone. Any
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
    bias: Array, multiplier: Array, shift: Array, ties: str, tail: Clamp, reach: Array
) -> Requantization | str:
    """The form of ``x * multiplier * 2^(shift - 31)``, or why there is none. ``again`` are the
    channels that round twice, ``known`` those whose every result is the same ``constant``."""
    largest = reach + np.abs(bias)
    rounded = _rounded(bias, multiplier, shift, ties, tail, reach)
    left, right = np.maximum(shift, 0), 31 + np.maximum(-shift, 0)
    if ties == "tonearest" and _meets_ties(largest, multiplier, left, right):
        return "halves that go away from zero, among the accumulators"
    again = (right > 31) & (ties == "twice")
    constant = _constants(bias, multiplier, shift, again, tail, reach)
    known = constant >= tail.low
    twice = bool(np.any(again & ~known)) and tail.low < tail.zero_point
    if twice and np.any(~again & ~known):
        return "channels that are rounded once beside those that are rounded twice"
    if np.any(again & (multiplier < 0)):
        return "negative multipliers that are rounded twice"
    more = np.where(again, _SPARE, np.maximum(_LEAST - right, 0))
    left, right = left + more, right + more
    # A channel without weights, or with tiny ones, gives the same result for every input.
    largest, multiplier = np.where(known, 0, largest), np.where(known, 0, multiplier)
    left = np.where(known, _SPARE * twice, left)
    right = np.where(known, _HIGH + _SPARE, right)
    if np.any(largest >= np.left_shift(np.int64(1), 31 - np.minimum(left, 31))):
        return "accumulators too large to be shifted before the multiplication"
    high = (np.left_shift(largest, left) * np.abs(multiplier) >> 32) + 1
    offset = np.left_shift(np.int64(1), right - _LEAST) + again
    offset = offset + np.left_shift(np.int64(tail.zero_point), right - _HIGH)
    # c and a half in quarters, which the last shift drops: less the 2 of a negative x it is c too.
    offset = np.where(known, 4 * constant + 2, offset)
    if np.any(high + np.abs(offset) + 2 >= 2**31):
        return "a zero point that does not fit in front of the last shift"
    right = right - _HIGH
    if np.any(again & ~known) and not twice:
        numbers = np.array((bias, left, multiplier, offset, right, ~known, reach), np.int64)
        bias, left, offset, right = _unshifted(numbers.tobytes(), tail)
    return Requantization(
        bias.astype(np.int32),
        left.astype(np.int32),
        multiplier.astype(np.int32),
        offset.astype(np.int32),
        right.astype(np.int32),
        tail.low,
        tail.high,
        tail.dtype,
        twice=twice,
        rounded=rounded,
    )


def _rounded(
    bias: Array, multiplier: Array, shift: Array, ties: str, tail: Clamp, reach: Array
) -> Rounded | None:
    """The form of instructions that round: exact for every sum that does not wrap, where no channel
    shifts to the left and all round alike."""
    dead, twice = multiplier == 0, ties == "twice"
    places = np.where(dead, 1, -shift)
    once = places[~dead] == 0  # channels with nothing to do for the last shift
    nearest = twice or bool(np.all(once))
    away = twice and tail.low < tail.zero_point and not np.all(once)
    fits = np.all(reach + np.abs(bias) <= INT32_MAX) and np.all(np.abs(multiplier) <= INT32_MAX)
    shifts = np.all((places >= 0) & (places < 32)) and not (np.any(once) and (away or not nearest))
    if not fits or not shifts or (twice and np.any(multiplier < 0)):
        return None
    return Rounded(
        bias.astype(np.int32),
        multiplier.astype(np.int32),
        (-places).astype(np.int32),
        tail.zero_point,
        tail.low,
        tail.high,
        tail.dtype,
        nearest=nearest,
        away=away,
    )


@functools.lru_cache(maxsize=512)  # kernels ask for the numbers of a layer several times
def _unshifted(numbers: bytes, tail: Clamp) -> tuple[Array, Array, Array, Array]:
    """Bias, left, offset and right of an equal form of ``free`` channels that does not shift x to
    the left, where every channel has one; else as they are. ``numbers``
    are those of ``_numbers``, rows of int64.

    The result reaches k at ``x = ceil(edge(k))``, ``edge(k) = ((k << right) - offset) * 2^32 /
    (multiplier << left)``. Without the shift it does so at ``((k << right - left) - o) * 2^32 /
    multiplier - d``. That is ``edge(k) - e`` for one number e, so that all are equal if e stays
    between the edges' distances from the next whole numbers below and above. An o is looked for
    that brings e there, and each edge is tried.
    """
    rows = np.frombuffer(numbers, np.int64).reshape(7, -1)
    bias, left, multiplier, offset, right, free, reach = rows
    chosen = (free > 0) & (left > 0)
    m, places, small = multiplier[chosen], left[chosen], right[chosen] - left[chosen]
    if np.any(small < 0):
        return bias, left, offset, right
    k = np.arange(tail.low + 1, tail.high + 1)[:, None]
    # Of 2^(32 - left) / multiplier; for what is out of reach, the edge of another k stands in.
    number = ((k << right[chosen]) - offset[chosen]) << (32 - places)
    edge = -(-number // m)
    reached = np.abs(edge) <= (reach + np.abs(bias))[chosen]
    above = np.where(reached, (edge * m - number) / m, 0.5)
    natural = offset[chosen] / 2.0**places
    o, d = _offsets(natural, 2.0**32 / m, -above.min(axis=0), 1 - above.max(axis=0))
    results = [
        ((x + d) * m >> 32) + o >> small
        for x in (np.where(reached, edge, 0), np.where(reached, edge - 1, 0))
    ]
    proven = ~reached | ((results[0] >= k) & (results[1] < k))
    largest = (reach + np.abs(bias))[chosen] + np.abs(d)
    if not proven.all() or np.any(largest > INT32_MAX):
        return bias, left, offset, right
    bias, left, offset, right = (np.array(each) for each in (bias, left, offset, right))
    bias[chosen] += d
    left[chosen], offset[chosen], right[chosen] = 0, o, small
    return bias, left, offset, right


def _offsets(natural: Array, unit: Array, least: Array, most: Array) -> tuple[Array, Array]:
    """For each ``natural, unit, least, most`` whole numbers o, d for which ``(o - natural) * unit +
    d`` lies between ``least`` and ``most``, in the middle as near as can be found."""
    found = np.zeros((2, natural.size), np.int64)
    missing = np.arange(natural.size)
    for tries in TRIES:
        o = np.floor(natural[missing]) + np.arange(-tries, tries)[:, None]
        away = o - natural[missing]
        away *= unit[missing]
        away -= (least + most)[missing] / 2
        far = np.abs(away - np.rint(away))
        best = np.argmin(far, axis=0), np.arange(missing.size)
        found[0, missing], found[1, missing] = o[best], -np.rint(away[best])
        missing = missing[far[best] >= _WELL * (most - least)[missing]]
        if not missing.size:
            break
    return found[0], found[1]


def _meets_ties(largest: Array, multiplier: Array, left: Array, right: Array) -> bool:
    """Whether a product other than 0 can lie half way between two results: only where x is a
    multiple of 2^(right - 1), less the factors of 2 that the multiplier has."""
    twos = multiplier & -multiplier
    ties = largest * 2.0**left * twos >= 2.0 ** (right - 1)
    return bool(np.any(ties))


def _in_floats(
    graph: Graph, bias: Array, chain: Sequence[Step], numbers: _Numbers, reach: Array
) -> Requantization | str:
    """``round(float(x) * factor)``, and a zero point, bounds and a cast after it."""
    factor = numbers(chain[1]) if len(chain) > 1 and isinstance(chain[1], steps.Multiply) else None
    if factor is None or tuple(chain[2:3]) != (steps.Round("even"),):
        return "floats that are not multiplied by a constant and rounded to even"
    tail = Clamp.of(graph, chain[3:], DType.FLOAT32)
    if tail is None:
        return OTHER_STEPS
    largest = reach + np.abs(bias)
    if np.any(largest > INT32_MAX) or np.any(largest * np.abs(factor) >= 2.0**30):
        return "products that could leave 32 bits"
    zeros = np.zeros(bias.shape, np.int32)
    return Requantization(
        bias.astype(np.int32),
        zeros,
        factor.astype(np.float32).view(np.int32),
        zeros + np.int32(tail.zero_point),
        zeros,
        tail.low,
        tail.high,
        tail.dtype,
        floats=True,
    )


def _constants(
    bias: Array, multiplier: Array, shift: Array, again: Array, tail: Clamp, reach: Array
) -> Array:
    """The result of each channel that has the same for every sum of products within ``reach``;
    less than every result for the others. The result is monotonic in the sum."""
    ends = bias - reach, bias + reach
    scale = multiplier * 2.0 ** (shift - 31)
    least, most = (np.clip(sums * scale + tail.zero_point, tail.low, tail.high) for sums in ends)
    constant = np.full(bias.shape, tail.low - 1, np.int64)
    for c in np.flatnonzero(np.abs(most - least) <= 2):  # so near that rounding decides
        numbers = int(multiplier[c]), int(shift[c]), bool(again[c])
        first, last = (_exact(int(sums[c]), *numbers) for sums in ends)
        first, last = (min(max(x + tail.zero_point, tail.low), tail.high) for x in (first, last))
        constant[c] = first if first == last else constant[c]
    return constant


def _exact(x: int, multiplier: int, shift: int, again: bool) -> int:
    product = (x << max(shift, 0)) * multiplier
    if not again:
        right = 31 + max(-shift, 0)
        return (product + (1 << (right - 1))) >> right
    high = (product + (1 << 30)) >> 31
    return (high + (1 << (-shift - 1)) - (x < 0)) >> -shift


def _along(graph: Graph, step: Step, channels: int, axis: int, rank: int) -> Array | None:
    """The constant operand of a step as one number a channel."""
    value = graph.constant_operand(step)
    if value is None:
        return None
    shape = (1,) * (rank - value.ndim) + value.shape
    if value.size not in (1, channels) or (value.size > 1 and shape[axis] != channels):
        return None
    wide = np.float64 if value.dtype.kind == "f" else np.int64
    return np.broadcast_to(value.reshape(-1).astype(wide), (channels,))


_FREE = DType.INT32.range  # bounds where there are none


@dataclass(frozen=True)
class Clamp:
    """``clamp(x + zero_point, low, high)`` as ``dtype``."""

    zero_point: int
    low: int
    high: int
    dtype: DType

    @classmethod
    def of(cls, graph: Graph, chain: Sequence[Step], start: DType = DType.INT32) -> Clamp | None:
        """The clamp that steps are, from whole numbers of type ``start``."""
        zero_point, low, high, dtype = 0, *_FREE, start
        for step in chain:
            match step:
                case steps.Add() if dtype is start:
                    value = graph.number_operand(step)
                    if value is None:
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
