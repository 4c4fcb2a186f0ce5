"""Interval analysis: between which bounds the values of each channel lie, whatever the input."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tinyai.ir import Array, DType, Graph, Node, Step, Type
from tinyai.ops import (
    AdaptivePool2d,
    AvgPool2d,
    Concatenate,
    Conv2d,
    Dense,
    Elementwise,
    FloatAvgPool2d,
    MaxPool2d,
    Pad,
    Reshape,
    Resize,
    Slice,
    Sum,
    Transpose,
    steps,
)
from tinyai.ops.window import NHWC, Window
from tinyai.passes.channels import NONE, apart, channels


@dataclass(frozen=True, eq=False)
class Range:
    """The least and the largest value of each channel, both possible or not: int64, or float32,
    where infinite bounds also stand for NaN."""

    low: Array
    high: Array

    @property
    def constant(self) -> Array:
        """Which channels have the same value for every input."""
        return np.asarray(self.low == self.high)

    def plus(self, number: int) -> Range:
        return Range(self.low + number, self.high + number)

    def hull(self, value: Array | float) -> Range:
        """Bounds that hold ``value`` as well."""
        return Range(np.minimum(self.low, value), np.maximum(self.high, value))

    def spread(self, count: int) -> Range:
        """The bounds of all channels together, ``count`` times."""
        return Range(np.repeat(self.low.min(), count), np.repeat(self.high.max(), count))


def ranges(graph: Graph) -> dict[str, Range]:
    """The range of every tensor."""
    known = {name: _unknown(graph.type(name)) for name in graph.inputs}
    known |= {name: _of_constant(value) for name, value in graph.constants.items()}
    for node in graph.nodes:
        types = graph.types(node.inputs)
        result = node.op.infer(*types)
        data = [known[name] for name in node.inputs]
        found = _fitting(_of_op(graph, node, types, data, result), result)
        known[node.output] = _behind(graph, node.epilogue, result, found, known)
    return known


def _unknown(of: Type) -> Range:
    low, high = (-math.inf, math.inf) if of.dtype.is_float else of.dtype.range
    kind = np.float32 if of.dtype.is_float else np.int64
    return Range(np.full(channels(of), low, kind), np.full(channels(of), high, kind))


def _of_constant(value: Array) -> Range:
    wide = value.astype(np.float32 if value.dtype.kind == "f" else np.int64)
    rows = wide.reshape(-1, value.shape[-1] if value.ndim else 1)
    if not rows.size:
        return Range(np.zeros(rows.shape[1], wide.dtype), np.zeros(rows.shape[1], wide.dtype))
    return Range(rows.min(axis=0), rows.max(axis=0))


def _fitting(found: Range | None, of: Type) -> Range:
    """``found`` where it is known and fits the type; what may wrap, or is no number, can be any
    value of the type."""
    unknown = _unknown(of)
    if found is None:
        return unknown
    if of.dtype.is_float:
        fits = np.isfinite(found.low) & np.isfinite(found.high)
    else:
        fits = (found.low >= unknown.low) & (found.high <= unknown.high)
    return Range(np.where(fits, found.low, unknown.low), np.where(fits, found.high, unknown.high))


# --- Operators ---------------------------------------------------------------------------------


def _of_op(
    graph: Graph, node: Node, types: Sequence[Type], data: Sequence[Range], result: Type
) -> Range | None:
    op = node.op
    places = apart(op, types)
    match op:
        case Conv2d() if op.layout == NHWC:
            weights = graph.constants.get(node.inputs[1])
            edge = any(op.window.padding) or op.window.upsample != (1, 1)
            values = data[0].plus(-op.zero_point)
            return None if weights is None else _sums(weights, values.hull(0) if edge else values)
        case Dense():
            weights = graph.constants.get(node.inputs[1])
            values = data[0].plus(-op.zero_point)
            return None if weights is None else _sums(weights, values)
        case MaxPool2d() if places:
            inside = _sees(op.window, types[0])
            return data[0] if inside else data[0].hull(types[0].dtype.range[0])
        case AvgPool2d() if places:
            average = data[0].plus(-op.zero_point)
            edge = op.count_include_pad or not _sees(op.window, types[0])
            most = math.prod(op.window.kernel)
            return _average(average.hull(0) if edge else average, most)
        case FloatAvgPool2d() if places:
            return Range(*_of_even_images(op, types[0], data[0]))
        case AdaptivePool2d() if places:
            most = math.prod(types[0].shape[1:3])
            return data[0] if op.kind == "max" else _average(data[0].plus(-op.zero_point), most)
        case Sum():
            count = math.prod(types[0].shape[axis] for axis in op.axes)
            summed = data[0] if places else data[0].spread(channels(result))
            return Range(summed.low * count, summed.high * count)
        case Pad():
            padded = data[0] if places else data[0].spread(channels(result))
            return padded.hull(op.value) if np.any(op.widths) else padded
        case Elementwise() | Resize() | Reshape() | Transpose() | Slice() | Concatenate():
            return _moved(data, places, result)
    return None


def _sums(weights: Array, data: Range) -> Range:
    """Sums of products by ``weights`` (int8 or int16), the channel of the result first, that of the
    data in a group last."""
    rows = weights.reshape(weights.shape[0], -1, weights.shape[-1])
    above = np.maximum(rows, 0).sum(axis=1, dtype=np.int64).astype(np.float64)
    below = np.minimum(rows, 0).sum(axis=1, dtype=np.int64).astype(np.float64)
    groups = len(data.low) // weights.shape[-1]
    above, below = (part.reshape(groups, -1, weights.shape[-1]) for part in (above, below))
    # float64 holds every sum of products exactly.
    low, high = (bound.astype(np.float64).reshape(groups, -1, 1) for bound in (data.low, data.high))
    least, most = above @ low + below @ high, above @ high + below @ low
    return Range(least.reshape(-1).astype(np.int64), most.reshape(-1).astype(np.int64))


def _sees(window: Window, of: Type) -> bool:
    """Whether every place of a pooling's window has an element of the image in it."""
    top, left, _, _ = window.padding
    size = of.shape[1], of.shape[2]
    for first, length, count, kernel, stride, dilation in zip(
        (top, left),
        size,
        window.output(size),
        window.kernel,
        window.strides,
        window.dilation,
        strict=True,
    ):
        taps = np.arange(count)[:, None] * stride - first + np.arange(kernel) * dilation
        if not ((taps >= 0) & (taps < length)).any(axis=1).all():
            return False
    return True


def _average(data: Range, most: int) -> Range | None:
    """The quotient of a sum of at most ``most`` elements lies between the least and the largest of
    them, unless the sum wraps."""
    size = max(np.abs(data.low).max(), np.abs(data.high).max())
    return data if size * most + most <= DType.INT32.range[1] else None


def _of_even_images(op: FloatAvgPool2d, of: Type, data: Range) -> Iterator[Array]:
    """The least result of an image of the least values, the largest of the largest: float32 sums
    and quotients are monotonic, wherever they round."""
    for end, extreme in ((data.low, np.min), (data.high, np.max)):
        yield extreme(op.reference(np.broadcast_to(end, of.shape)), axis=(0, 1, 2))


def _moved(data: Sequence[Range], places: Sequence[Array] | None, result: Type) -> Range:
    """The range of values that are moved, channel by channel or anyhow."""
    count = channels(result)
    low = np.full(count, np.min([each.low.min() for each in data]))
    high = np.full(count, np.max([each.high.max() for each in data]))
    if places is None:
        return Range(low, high)
    pairs = list(zip(places, data, strict=True))
    lows = [np.where(place == NONE, high, each.low[place]) for place, each in pairs]
    highs = [np.where(place == NONE, low, each.high[place]) for place, each in pairs]
    return Range(np.min(lows, axis=0), np.max(highs, axis=0))


# --- Steps -------------------------------------------------------------------------------------


def _behind(
    graph: Graph, chain: Sequence[Step], of: Type, value: Range, known: Mapping[str, Range]
) -> Range:
    """The range behind the steps of ``chain`` on a value of type ``of``."""
    for step in chain:
        operand = None
        if step.operand is not None:
            name = step.operand.tensor
            start = replace(of, dtype=graph.type(name).dtype)
            other = known[name]
            wide = Range(*(np.broadcast_to(b, (channels(of),)) for b in (other.low, other.high)))
            operand = _behind(graph, step.operand.steps, start, wide, known)
        after = replace(of, dtype=step.result(of.dtype))
        value = _fitting(_through(step, of, value, operand), after)
        of = after
    return value


def _through(step: Step, of: Type, value: Range, operand: Range | None) -> Range | None:
    """The range behind one step; None where it is not known. Steps are monotonic in the value and
    in the operand, on both sides of 0, rounding included: their own arithmetic at the ends gives
    the extremes. Infinite bounds give infinite ones or none, for which ``_fitting`` knows no range.
    """
    match step:
        case steps.Clip(low, high):
            ends = (np.clip(end, *_bounds(of.dtype, low, high)) for end in (value.low, value.high))
            return Range(*ends)
        case steps.Lookup(table):
            first = of.dtype.range[0]
            parts = [table[a - first : b - first + 1] for a, b in _pairs(value)]
            return Range(*(np.array([end(part) for part in parts]) for end in (min, max)))
        case steps.Cast(to):
            return _cast(to, value)
        case steps.FixedPointMultiply():
            return _multiplied(step, of, value)
        case steps.Divide() if operand is None or not np.all(operand.constant & (operand.low > 0)):
            return None
        case steps.LeakyRelu(alpha) if alpha < 0 and not of.dtype.is_float:
            return None
        case steps.Multiply() | steps.LeftShift() | steps.LeakyRelu() | steps.Prelu() if (
            of.dtype is DType.INT64
        ):
            return None
        case steps.Relu() | steps.LeakyRelu() | steps.Round() | steps.Divide():
            return _extremes(step, value, operand)
        case steps.Add() | steps.Subtract() | steps.SubtractFrom() | steps.RightShift():
            return _extremes(step, value, operand) if _small(value, operand) else None
        case steps.Maximum() | steps.Minimum() | steps.Prelu() | steps.MultiplyAdd():
            return _extremes(step, value, operand)
        case steps.Multiply() | steps.LeftShift():
            return _extremes(step, value, operand)
    return None


def _bounds(dtype: DType, low: float, high: float) -> tuple[Array, Array]:
    kind = np.float32 if dtype.is_float else np.int64
    return np.asarray(low, kind), np.asarray(high, kind)


def _pairs(value: Range) -> Iterator[tuple[int, int]]:
    return zip(value.low.tolist(), value.high.tolist(), strict=True)


def _small(*values: Range | None) -> bool:
    """Whether sums of two cannot leave 64 bits."""
    ends = (end for value in values if value for end in (value.low, value.high))
    return all(end.dtype.kind == "f" or np.all(abs(end.astype(float)) < 2.0**62) for end in ends)


def _extremes(step: Step, value: Range, operand: Range | None) -> Range:
    """The least and the largest result of a step at the ends of its arguments, and at 0."""
    values = (value.low, value.high, np.clip(np.zeros_like(value.low), value.low, value.high))
    others = (operand.low, operand.high) if operand else (None,)
    with np.errstate(all="ignore"):
        results = [step.reference(v, other) for v in values for other in others]
        return Range(np.min(results, axis=0), np.max(results, axis=0))


def _cast(to: DType, value: Range) -> Range | None:
    """A conversion is monotonic where it does not wrap; ``_fitting`` asks that of integers."""
    kind = np.float32 if to.is_float else np.int64
    if kind is np.int64 and value.low.dtype.kind == "f":
        low, high = to.range
        if not (np.all(value.low >= low) and np.all(value.high <= high)):
            return None
    return Range(value.low.astype(kind), value.high.astype(kind))


def _multiplied(step: steps.FixedPointMultiply, of: Type, value: Range) -> Range:
    """The ends, multiplied; all int32 where a product or its result may wrap."""
    if step.axis == len(of.shape) - 1:
        return _by(replace(step, axis=1), value)
    numbers = set(zip(step.multiplier, step.shift, strict=True))
    each = [_by(replace(step, multiplier=(m,), shift=(s,), axis=None), value) for m, s in numbers]
    lows, highs = zip(*((one.low, one.high) for one in each), strict=True)
    return Range(np.min(lows, axis=0), np.max(highs, axis=0))


def _by(step: steps.FixedPointMultiply, value: Range) -> Range:
    ends = np.stack([value.low, value.high])
    size = abs(ends.astype(float)).max(axis=0)
    shift, multiplier = np.array(step.shift), abs(np.array(step.multiplier, float))
    shifted = size * 2.0 ** np.maximum(shift, 0)
    result = size * multiplier * 2.0 ** (shift - 31)
    fits = (shifted < 2.0**31) & (shifted * multiplier < 2.0**61) & (result < 2.0**31 - 2)
    results = step.reference(ends, None)
    low, high = DType.INT32.range
    return Range(
        np.where(fits, results.min(axis=0), low), np.where(fits, results.max(axis=0), high)
    )
