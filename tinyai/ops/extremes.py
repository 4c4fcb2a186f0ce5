"""``max``, ``min``, ``argmax`` and ``argmin`` of integers: poolings of whole images."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tinyai.builders import Lower, Lowering, OperatorRow, Steps
from tinyai.ir import Array, DType, Operand, Step, Type
from tinyai.ops import steps
from tinyai.ops.elementwise import Elementwise
from tinyai.ops.layout import Reshape, Transpose
from tinyai.ops.pool2d import AdaptivePool2d
from tinyai.ops.reduce import axes_of
from tinyai.ops.scales import minus, number, plus, scale_of
from tinyai.source import Call, Expr, fixed_type, require, sources


def lower_extreme(*, largest: bool) -> Lower:
    """max, min: over axes, with or without them in the result."""

    def lower(call: Call, lowering: Lowering) -> str:
        data = lowering.tensor(call["data"])
        of = _integer_type(call, call["data"], lowering)
        # The smallest integer is the largest of -1 - x, or of 255 - x.
        turned = () if largest else _subtracted_from(lowering, sum(of.dtype.range), of.dtype)
        return _pooled(call, lowering, data, turned)

    return lower


def lower_place(*, largest: bool) -> Lower:
    """argmax, argmin: the place of the first of the largest, or of the last, along one axis."""

    def lower(call: Call, lowering: Lowering) -> str:
        data, builder = _undone(call["data"]), lowering.builder
        of = _integer_type(call, data, lowering)
        axes = axes_of(call, len(of.shape))
        require(len(axes) == 1, f"axes of {call.spelled}", axes, "one")
        digits = max((of.shape[axes[0]] - 1).bit_length(), 1)
        fits = digits <= 31 - 8 * of.dtype.bytes
        place = _place_behind(digits) if fits else _place_of_equals
        found, chain = place(call, lowering, data, axes[0], largest=largest)
        to = fixed_type(call.type, "result").dtype
        chain = chain if to is DType.INT32 else (*chain, steps.Cast(to))
        shape = builder.type(found).shape
        return builder.add(Elementwise(shape), [found], chain, sources(call))

    return lower


def _place_behind(digits: int) -> Callable[..., tuple[str, Steps]]:
    """The integer and its place behind it are one larger number each; of four places, in binary:
    5 at the place 1 is ``101 10`` where the first is wanted (3 - 1), ``101 01`` where the last is.
    Of the largest of these numbers the lower ``digits`` are the place.
    """

    def place(
        call: Call, lowering: Lowering, data: Expr, axis: int, *, largest: bool
    ) -> tuple[str, Steps]:
        builder, of = lowering.builder, lowering.type(data)
        last, top = bool(call.attrs["select_last_index"]), 2**digits - 1
        places = _along(np.arange(of.shape[axis], dtype=np.int32), axis, of)
        shift = number(builder, digits, DType.INT32)
        numbers = builder.add(
            Elementwise(of.shape),
            [lowering.tensor(data)],
            (
                steps.Cast(DType.INT32),
                *(() if largest else _subtracted_from(lowering, -1, DType.INT32)),
                steps.LeftShift(operand=shift),
                *plus(builder, places if last else top - places),
            ),
            sources(call),
        )
        found = _pooled(call, lowering, numbers)
        upper = (steps.RightShift(operand=shift), steps.LeftShift(operand=shift))
        chain = (
            steps.Subtract(operand=Operand(found, upper)),
            *(() if last else _subtracted_from(lowering, top, DType.INT32)),
        )
        return found, chain

    return place


def _place_of_equals(
    call: Call, lowering: Lowering, data: Expr, axis: int, *, largest: bool
) -> tuple[str, Steps]:
    """Of integers that leave no room for a place: those that equal the largest count as their
    place, from either end and from 1 on, and all others as 0."""
    builder, of, names = lowering.builder, lowering.type(data), sources(call)
    turned = () if largest else _subtracted_from(lowering, -1, of.dtype)
    best = _pooled(call, lowering, lowering.tensor(data), turned)
    kept = (*of.shape[:axis], 1, *of.shape[axis + 1 :])
    best = builder.add(Reshape(kept), [best], sources=names)
    last, count = bool(call.attrs["select_last_index"]), of.shape[axis]
    places = np.arange(count, dtype=np.int32)
    counted = number(builder, _along(places + 1 if last else count - places, axis, of), DType.INT32)
    chain = (
        steps.Compare(sign="==", operand=Operand(best)),
        steps.Cast(DType.INT32),
        steps.Multiply(operand=counted),
    )
    numbers = builder.add(Elementwise(of.shape), [lowering.tensor(data)], chain, names)
    back = minus(builder, 1) if last else _subtracted_from(lowering, count, DType.INT32)
    return _pooled(call, lowering, numbers), back


def _along(places: Array, axis: int, of: Type) -> Array:
    return places.reshape(-1, *[1] * (len(of.shape) - axis - 1))


def _undone(value: Expr) -> Expr:
    """The integers of a dequantized value: floats that differ wherever they do, in their order."""
    if not isinstance(value, Call) or value.op != "dequantize":
        return value
    scale = scale_of(value, "input").scale
    fits = bool(scale >= np.finfo(np.float32).tiny)
    require(fits, "scale of what is compared", scale, "a normal float")
    return value["data"]


def _integer_type(call: Call, data: Expr, lowering: Lowering) -> Type:
    of = lowering.type(data)
    require(of.dtype.is_integer, f"dtype of {call.spelled}", of.dtype, "an integer")
    return of


def _subtracted_from(lowering: Lowering, value: int, dtype: DType) -> tuple[Step, ...]:
    return (steps.SubtractFrom(operand=number(lowering.builder, value, dtype)),)


def _pooled(call: Call, lowering: Lowering, data: str, turned: tuple[Step, ...] = ()) -> str:
    """The largest along the call's axes, in the shape of its result, of values that are ``turned``
    before and after."""
    builder, names = lowering.builder, sources(call)
    sizes = builder.type(data).shape
    axes = axes_of(call, len(sizes))
    require(bool(axes), "axes", "none", "at least one")
    if turned:
        data = builder.add(Elementwise(sizes), [data], turned, names)
    before = tuple(axis for axis in range(axes[0]) if axis not in axes)
    behind = tuple(axis for axis in range(axes[0], len(sizes)) if axis not in axes)
    order = (*before, *axes, *behind)
    if order != tuple(range(len(sizes))):
        data = builder.add(Transpose(order), [data], sources=names)
    kept, reduced, channels = (
        math.prod(sizes[axis] for axis in part) for part in (before, axes, behind)
    )
    # Where nothing is behind, what is kept is as good as channels.
    layout = "NHWC" if behind else "NCHW"
    whole = (kept, reduced, 1, channels) if behind else (1, kept, 1, reduced)
    if len(sizes) == 4 and axes == (layout.index("H"), layout.index("W")):  # an image as it is
        whole = sizes
    for op, epilogue in (
        (Reshape(whole), ()),
        (AdaptivePool2d("max", (1, 1), layout), turned),
        (Reshape(fixed_type(call.type, "result").shape), ()),
    ):
        if op != Reshape(builder.type(data).shape):
            data = builder.add(op, [data], epilogue, names)
    return data


_REDUCTION = "axis keepdims exclude"
OPERATORS = {
    "max": OperatorRow(lower_extreme(largest=True), "data", _REDUCTION),
    "min": OperatorRow(lower_extreme(largest=False), "data", _REDUCTION),
    "argmax": OperatorRow(lower_place(largest=True), "data", f"{_REDUCTION} select_last_index"),
    "argmin": OperatorRow(lower_place(largest=False), "data", f"{_REDUCTION} select_last_index"),
}
