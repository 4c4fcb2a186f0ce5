"""Interval analysis: between which bounds the values of each channel lie, whatever the input."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

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
)
from tinyai.ops.window import NHWC, Window
from tinyai.passes.channels import NONE, apart, channels
from tinyai.traits import Range


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
        value = _fitting(step.infer_range(of, value, operand), after)
        of = after
    return value
