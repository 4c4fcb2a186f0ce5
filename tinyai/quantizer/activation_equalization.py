"""Channels of activations get ranges that are more alike, and the network stays the same.

A tensor of activations has one scale, by its widest channel. Xiao et al., "SmoothQuant: Accurate
and Efficient Post-Training Quantization for Large Language Models" (2023): a channel ``j`` divided
by ``s[j]`` uses more of the tensor's range, and the layer that reads it multiplies its weights by
``s[j]``. Here ``s[j] = r[j] ** alpha``, with ``r[j]`` the channel's range and a margin, as a share
of the tensor's: at most 1, so that no tensor's range grows and no activation is rounded more
coarsely. Weights may be: those of an output have one scale. So ``alpha`` is, of a few, that with
the least noise of both kinds, for all channels that meet in tensors; where the readers are
depthwise it is 1, for their channels have scales of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tinyai.quantizer.channels import Channels, along
from tinyai.quantizer.folding import input_channels, is_depthwise, weight_channels
from tinyai.quantizer.params import Array
from tinyai.quantizer.points import Points
from tinyai.quantizer.roles import Role
from tinyai.source import Call, Expr, children, rebuilt
from tinyai.vocabulary import constant

ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
# A channel is made at most so many times as large: of few samples less is not known.
LARGEST = 64.0
# A channel's range is taken for so many times as large: other samples go beyond it.
MARGIN = 1.25


@dataclass(frozen=True, eq=False)
class Ranges:
    """Of each channel of a value over samples: the least, the largest, the mean square."""

    low: Array
    high: Array
    square: Array
    count: int = 1

    @classmethod
    def of(cls, values: Array, axis: int) -> Ranges:
        rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).astype(np.float64)
        return cls(rows.min(axis=1), rows.max(axis=1), (rows**2).mean(axis=1))

    def merge(self, other: Ranges) -> Ranges:
        return Ranges(
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.square + other.square,
            self.count + other.count,
        )


@dataclass(frozen=True, eq=False)
class Equalized:
    """``root`` is the model with other constants, ``new`` is what became of each expression;
    ``factors`` are those that the channels of a point's value were divided by, in a form that
    divides them, by the point's number."""

    root: Expr
    new: Mapping[Expr, Expr] = field(repr=False)
    factors: Mapping[int, Array] = field(repr=False)


def equalized(points: Points, samples: Iterable[Mapping[int, Array]]) -> Equalized | None:
    """The model of ``points`` with its activations equalized by ``samples``, each of which has the
    points' values by number; None where no channel has a factor."""
    channels = Channels(points)
    ranges: dict[int, Ranges] = {}
    for sample in samples:
        for number, value in sample.items():
            expr = points.points[number].expr
            if expr in channels.numbers:
                seen = Ranges.of(value, channels.axes[expr])
                ranges[number] = ranges[number].merge(seen) if number in ranges else seen
    factors = _factors(points, channels, ranges)
    if (factors == 1).all():
        return None
    new = _rebuilt(points, channels, factors)
    by_point = {}
    for number, point in enumerate(points.points):
        if point.expr in channels.numbers:
            own = factors[channels.numbers[point.expr]]
            if (own != 1).any():
                rank = len(point.expr.type.shape)
                by_point[number] = along(own, rank, channels.axes[point.expr])
    return Equalized(new[points.root], new, by_point)


def _factors(points: Points, channels: Channels, ranges: Mapping[int, Ranges]) -> Array:
    """The factor of each number of a channel; of number 0 it is 1."""
    shares = np.zeros(channels.count)
    limits = _limits(points, ranges)
    for number, seen in ranges.items():
        point = points.points[number]
        low, high = limits[point.grid]
        above = seen.high / high if high > 0 else 0 * seen.high
        below = seen.low / low if low < 0 else 0 * seen.low
        np.maximum.at(shares, channels.numbers[point.expr], np.maximum(above, below))
    shares = np.where(shares > 0, np.clip(MARGIN * shares, 1 / LARGEST, 1.0), 1.0)
    shares[0] = 1.0
    factors = np.ones(channels.count)
    for members, readers in _together(points, channels, ranges):
        costs = [
            sum(reader.noise(shares[reader.numbers] ** alpha) for reader in readers)
            for alpha in ALPHAS
        ]
        factors[members] = shares[members] ** ALPHAS[int(np.argmin(costs))]
    # float32, so that products of weights by it are those of the values by their inverse.
    return factors.astype(np.float32).astype(np.float64)


def _limits(points: Points, ranges: Mapping[int, Ranges]) -> dict[int, tuple[float, float]]:
    """The range of each grid, with 0 in it."""
    found: dict[int, tuple[float, float]] = {}
    for number, seen in ranges.items():
        grid = points.points[number].grid
        low, high = found.get(grid, (0.0, 0.0))
        found[grid] = min(low, float(seen.low.min())), max(high, float(seen.high.max()))
    if points.config.symmetric:
        return {grid: (-max(-low, high), max(-low, high)) for grid, (low, high) in found.items()}
    return found


@dataclass(frozen=True, eq=False)
class _Reader:
    """A layer that reads a value whose channels have ``numbers``: of its weights the sum of squares
    by each channel (``squares``), and the scale by output and channel (``scales``, [outputs,
    channels]; None of a depthwise layer), ``taps`` by channel and output; the ``step`` of the
    value's grid, and the mean square of each channel (``power``)."""

    numbers: Array
    squares: Array
    scales: Array | None
    taps: int
    step: float
    power: Array

    def noise(self, factors: Array) -> float:
        """The noise of the results as a share of their power, with these factors."""
        rounding = (self.squares * (self.step * factors) ** 2).sum()
        if self.scales is not None:
            steps = (self.scales * factors).max(axis=1)
            terms = self.taps * (self.power / factors**2).sum()
            rounding += (steps**2).sum() * terms
        signal = (self.squares * self.power).sum()
        return float(rounding / signal) if signal > 0 else 0.0


def _together(
    points: Points, channels: Channels, ranges: Mapping[int, Ranges]
) -> Iterator[tuple[Array, list[_Reader]]]:
    """The numbers of channels that meet in tensors, and the layers that read these."""
    least = np.arange(channels.count)  # of those that meet
    changed = True
    while changed:
        before = least.copy()
        for number in ranges:
            own = channels.numbers[points.points[number].expr]
            own = own[own > 0]
            if len(own):
                least[own] = least[own].min()
        least = least[least]
        changed = bool((before != least).any())
    readers: dict[int, list[_Reader]] = {}
    at = {points.points[number].expr: number for number in ranges}
    limits = _limits(points, ranges)
    for expr in points.order:
        if channels.is_layer(expr) and isinstance(expr, Call) and expr["data"] in at:
            number = at[expr["data"]]
            own = channels.numbers[expr["data"]]
            if own.any():
                low, high = limits[points.points[number].grid]
                reader = _reader(points, expr, own, (high - low) / 255, ranges[number])
                readers.setdefault(int(least[own[own > 0][0]]), []).append(reader)
    for root, own_readers in readers.items():
        yield np.flatnonzero(least == root), own_readers


def _reader(points: Points, layer: Call, numbers: Array, step: float, seen: Ranges) -> _Reader:
    weights = points.view.constant(layer["weight"]).astype(np.float64)
    inner, outer = input_channels(layer), weight_channels(layer)
    assert inner is not None
    assert outer is not None
    rest = tuple(d for d in range(weights.ndim) if d != inner)
    squares, power = (weights**2).sum(axis=rest), seen.square / seen.count
    if is_depthwise(layer):
        return _Reader(numbers, squares, None, 1, step, power)
    taps = tuple(d for d in range(weights.ndim) if d not in (inner, outer))
    scales = np.abs(weights).max(axis=taps) / points.config.largest_weight
    scales = scales if outer < inner else scales.T
    return _Reader(numbers, squares, scales, weights.size // scales.size, step, power)


def _rebuilt(points: Points, channels: Channels, factors: Array) -> dict[Expr, Expr]:
    """What becomes of each expression with other constants."""
    view, new = points.view, dict[Expr, Expr]()
    for expr in points.order:
        made: list[Expr] = [new[child] for child in children(expr)]
        own = channels.numbers.get(expr)
        if channels.is_layer(expr) and isinstance(expr, Call) and own is not None:
            weights = view.constant(expr["weight"]).astype(np.float64)
            inner, outer = input_channels(expr), weight_channels(expr)
            assert outer is not None
            by = 1 / along(factors[own], weights.ndim, outer)
            data = channels.numbers.get(expr["data"])
            # Number 0 has no factor: so have channels along another axis than the layer's.
            if inner is not None and data is not None and data.any():
                by = by * along(factors[data], weights.ndim, inner)
            if (by != 1).any():
                made[1] = constant((weights * by).astype(np.float32))
        elif own is not None and points.roles.get(expr) is Role.STEP and isinstance(expr, Call):
            (place,) = (n for n, arg in enumerate(expr.args) if view.is_constant(arg))
            if (factors[own] != 1).any():
                value = view.constant(expr.args[place])
                made[place] = constant(
                    (value / factors[own].reshape(value.shape)).astype(np.float32)
                )
        new[expr] = rebuilt(expr, made)
    return new
