"""What moves values, as several front ends write it: ``call`` makes a call of their operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tinyai.ir import Array
from tinyai.qdq.operands import is_call
from tinyai.source import Call, Constant, Expr, require
from tinyai.vocabulary import constant

Make: TypeAlias = "Callable[..., Call]"


def reshaped(call: Make, value: Expr, shape: Iterable[int | None]) -> Expr:
    """In another shape of as many elements: a constant for one, the value itself for its own."""
    of = replace(value.type, shape=tuple(shape))
    if of == value.type:
        return value
    counts = [math.prod(dim or 0 for dim in each.shape) for each in (value.type, of)]
    require(counts[0] == counts[1], "elements", f"{value.type}", f"as many as in {of}")
    if isinstance(value, Constant):
        sizes = [dim or 0 for dim in of.shape]
        return Constant((of,), load=lambda: value.value.reshape(sizes))
    return call("reshape", value, of=of)


def transposed(call: Make, value: Expr, axes: Iterable[int]) -> Expr:
    """Dimensions in another order: of a constant as of ``reshaped``."""
    order = tuple(axes)
    if order == tuple(range(len(order))):
        return value
    of = replace(value.type, shape=tuple(value.type.shape[axis] for axis in order))
    if isinstance(value, Constant):
        return Constant((of,), load=lambda: np.ascontiguousarray(value.value.transpose(order)))
    return call("transpose", value, of=of, axes=order)


def split(call: Make, value: Expr, axis: int, sizes: Sequence[int]) -> tuple[Expr, ...]:
    """Slices of these sizes along an axis, one after the other."""
    whole = value.type.shape
    require(sum(sizes) == whole[axis], "sizes of the parts", list(sizes), whole[axis])
    if len(sizes) == 1:
        return (value,)
    types = (replace(value.type, shape=(*whole[:axis], n, *whole[axis + 1 :])) for n in sizes)
    return call("split", value, of=tuple(types), axis=axis).fields


def taken(call: Make, value: Expr, places: Array, axis: int) -> Call:
    """The elements of these places along an axis."""
    sizes = value.type.shape
    of = replace(value.type, shape=(*sizes[:axis], *places.shape, *sizes[axis + 1 :]))
    indices = constant(places, "int32")
    return call("take", value, indices, of=of, axis=axis, batch_dims=0, mode="clip")


def counted_from_the_end(indices: Expr, size: int) -> Expr | None:
    """``x``, where ``indices`` are ``x < 0 ? x + size : x``, as Keras writes them: of such an index
    that is outside nothing is known, of ``x`` it is. None of any others."""
    if not is_call(indices, "where"):
        return None
    below, wrapped, x = indices.args
    pairs = ((below, "less", 0), (wrapped, "add", size))
    for call, operator, number in pairs:
        if not is_call(call, operator) or call.args[0] is not x:
            return None
        other = call.args[1]
        if not isinstance(other, Constant) or (other.value != number).any():
            return None
    return x


def sliced(
    call: Make, value: Expr, begin: Sequence[int], steps: Sequence[int], shape: Sequence[int]
) -> Call:
    """From ``begin`` on, by ``steps``, as many elements as ``shape`` has."""
    of, attrs = replace(value.type, shape=tuple(shape)), {"axes": None, "slice_mode": "end"}
    return call("strided_slice", value, of=of, begin=tuple(begin), strides=tuple(steps), **attrs)


def padded(
    call: Make, value: Expr, widths: Sequence[tuple[int, int]], mode: str, number: Any = 0
) -> Expr:
    """With ``number`` around it, or in one of numpy's modes with its own values: "edge", "reflect",
    "symmetric", "wrap". Negative widths take away."""
    sizes = [int(dim or 0) for dim in value.type.shape]
    if any(min(width) < 0 for width in widths):
        require(mode == "constant", "mode of negative pads", mode, "constant")
        pairs = list(zip(sizes, widths, strict=True))
        kept = [size + min(before, 0) + min(after, 0) for size, (before, after) in pairs]
        begin = [max(-before, 0) for before, _ in widths]
        value = sliced(call, value, begin, [1] * len(sizes), kept)
        sizes, widths = kept, [(max(before, 0), max(after, 0)) for before, after in widths]
    if mode == "constant":
        shape = tuple(size + sum(width) for size, width in zip(sizes, widths, strict=True))
        of, padding = replace(value.type, shape=shape), constant(number, value.type.dtype)
        return call("pad", value, padding, of=of, mode="constant", widths=tuple(widths))
    for axis, (size, width) in enumerate(zip(sizes, widths, strict=True)):
        if any(width):
            most = {"reflect": size - 1, "symmetric": size}.get(mode, max(width))
            require(max(width) <= most, "widths of a reflection", width, f"at most {most}")
            places = np.pad(np.arange(size), width, mode=mode)  # type: ignore[call-overload]
            value = taken(call, value, places, axis)
    return value
