"""Convolutions and poolings along one dimension as those along two, the height 1; convolutions of
volumes as those of images, whose channels are those of all slices that a window sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyai.qdq.operands import Array, Reshaping, of, own_attributes, reshaped, shape_of
from tinyai.source import Call, Constant, Expr, require
from tinyai.vocabulary import call as made
from tinyai.vocabulary import constant


@dataclass(frozen=True)
class Height:
    """How results get two dimensions: with one of length 1 more at this place."""

    at: int

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return lengthened(shape, self.at)

    def numbers(self, values: Array, rank: int) -> Array:
        """Constants that are added to results of so many dimensions, in as many as these get."""
        behind = rank - self.at
        return np.expand_dims(values, values.ndim - behind) if values.ndim >= behind else values

    def channels(self, values: Array) -> Array:
        return values

    def undone(self, value: Expr, name: str) -> Call:
        return without_height(value, self.at, name)


@dataclass(frozen=True)
class Slices:
    """How volumes get two dimensions: each as so many images, of which the channels of ``beside``
    neighbouring slices are side by side."""

    images: int
    beside: int = 1

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        count, channels, _, *image = shape
        return count * self.images, channels * self.beside, *image

    def numbers(self, values: Array, rank: int) -> Array:
        """Constants that are added to volumes, for their slices: one number a channel."""
        shape = values.shape
        alike = all(size == 1 for d, size in enumerate(shape) if d - len(shape) != 1 - rank)
        require(alike, "shape of a constant beside volumes", shape, "one number a channel")
        if values.ndim < rank - 2:
            return values
        values = np.squeeze(values, -3)
        return np.repeat(values, self.beside, -3) if values.ndim > 2 and values.size > 1 else values

    def channels(self, values: Array) -> Array:
        return np.repeat(values, self.beside) if values.size > 1 else values

    def undone(self, value: Expr, name: str) -> Call:
        count, channels, *image = shape_of(value)
        count, channels, dtype = count // self.images, channels // self.beside, value.type.dtype
        value = reshaped(value, (count, self.images, channels, self.beside, *image), name)
        turned = of((count, channels, self.images, self.beside, *image), dtype)
        value = made("transpose", turned, value, name=name, axes=(0, 2, 1, 3, 4, 5))
        return reshaped(value, (count, channels, self.images * self.beside, *image), name)


def in_two_dimensions(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a convolution or pooling along W as those of one along H and W."""
    wide = dict(attrs)
    for key in attrs.keys() & {"layout", "weight_layout", "out_layout"}:
        wide[key] = attrs[key].replace("W", "HW")
    for key in attrs.keys() & {"strides", "dilation", "kernel"}:
        wide[key] = (1, *attrs[key])
    before, after = attrs["padding"]
    wide["padding"] = (0, before, 0, after)
    return wide


def with_height(value: Expr, at: int, name: str) -> Call:
    return reshaped(value, lengthened(shape_of(value), at), name)


def without_height(value: Expr, at: int, name: str) -> Call:
    shape = shape_of(value)
    return reshaped(value, (*shape[:at], *shape[at + 1 :]), name)


def lengthened(shape: tuple[int, ...], at: int | None) -> tuple[int, ...]:
    """``shape`` with a dimension of length 1 more, if it is to have one."""
    return shape if at is None else (*shape[:at], 1, *shape[at:])


def require_whole(call: Call) -> None:
    """Refuse an adaptive pooling along one dimension that is not over all of it."""
    sizes = [int(size) for size in call.attrs["output_size"]]
    require(sizes == [1], f"output size of {call.spelled}", sizes, [1])


def of_images(
    call: Call, attrs: Mapping[str, Any], data: Expr, weight: Expr, zero_point: int
) -> tuple[dict[str, Any], Expr, Expr, Reshaping | None]:
    """A convolution along one, two or three dimensions as one along two: its attributes, the data,
    whose zero has this integer, the weights, and what became of the results. ``attrs`` are those
    of ``call`` that the new one has too."""
    layout, kernel = attrs["layout"], shape_of(weight)
    if "D" in layout:
        transposed = "output_padding" in attrs
        layouts, known = (layout, attrs["weight_layout"]), "IODHW" if transposed else "OIDHW"
        require(layouts == ("NCDHW", known), "layouts", layouts, f"NCDHW, {known}")
        weight = _reshaped(weight, (kernel[0], kernel[1] * kernel[2], *kernel[3:]), call.name)
        if transposed:
            images, apart = _slices_apart(call, attrs, data, kernel[2])
            return _of_slices(attrs), images, weight, apart
        return _of_slices(attrs), _slices(call, data, zero_point), weight, Slices(shape_of(call)[2])
    if "H" not in layout:
        height = Height(layout.index("W"))
        weight = _reshaped(weight, lengthened(kernel, attrs["weight_layout"].index("W")), call.name)
        data = with_height(data, height.at, call.name)
        return in_two_dimensions(attrs), data, weight, height
    return {**attrs}, data, weight, None


def _reshaped(weight: Expr, shape: tuple[int, ...], name: str) -> Expr:
    if isinstance(weight, Constant):
        return constant(weight.value.reshape(shape))
    return reshaped(weight, shape, name)


def _of_slices(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a convolution or pooling of volumes as those of one of their slices."""
    flat = {**attrs, "out_layout": ""}
    for key in attrs.keys() & {"layout", "weight_layout"}:
        flat[key] = attrs[key].replace("D", "")
    for key in attrs.keys() & {"strides", "dilation", "kernel", "output_padding"}:
        flat[key] = tuple(attrs[key][1:])
    _, top, left, _, bottom, right = attrs["padding"]
    return {**flat, "padding": (top, left, bottom, right)}


def _slices(convolution: Call, value: Expr, zero_point: int) -> Call:
    """[N, C, depth, H, W] as an image for each slice of the result, [N * slices, C * kernel, H, W],
    in which the slices that its window sees are channels, those of a channel side by side."""
    attrs, name, dtype = convolution.attrs, convolution.name, value.type.dtype
    count, channels, depth, *image = shape_of(value)
    kernel, results = shape_of(convolution["weight"])[2], shape_of(convolution)[2]
    before, after = attrs["padding"][0], attrs["padding"][3]
    if before or after:
        padded = of((count, channels, before + depth + after, *image), dtype)
        border = constant(zero_point, dtype)
        widths = ((0, 0), (0, 0), (before, after), (0, 0), (0, 0))
        value = made("pad", padded, value, border, name=name, mode="constant", widths=widths)
    value = _windows(value, _seen(attrs, kernel, results), name)
    turned = of((count, results, channels, kernel, *image), dtype)
    value = made("transpose", turned, value, name=name, axes=(0, 3, 1, 2, 4, 5))
    return reshaped(value, (count * results, channels * kernel, *image), name)


def require_slices_apart(attrs: Mapping[str, Any], kernel: int) -> None:
    """Refuse a transposed convolution that adds up slices: each makes as many as the kernel has."""
    names = ("strides", "dilation", "output_padding")
    along = attrs["padding"][0], attrs["padding"][3], *(attrs[name][0] for name in names)
    wanted = (0, 0, kernel, 1, 0)
    found = f"padding, stride, dilation and output_padding {along} along the depth"
    require(along == wanted, "transposed convolution", found, f"slices that do not meet: {wanted}")
    require(attrs["groups"] == 1, "groups", attrs["groups"], 1)


def _slices_apart(
    call: Call, attrs: Mapping[str, Any], data: Expr, kernel: int
) -> tuple[Call, Slices]:
    """[N, C, depth, H, W] as [N * depth, C, H, W], each of which makes as many slices as the kernel
    has."""
    require_slices_apart(attrs, kernel)
    count, channels, depth, *image = shape_of(data)
    turned = of((count, depth, channels, *image), data.type.dtype)
    data = made("transpose", turned, data, name=call.name, axes=(0, 2, 1, 3, 4))
    images = reshaped(data, (count * depth, channels, *image), call.name)
    return images, Slices(depth, kernel)


def _seen(attrs: Mapping[str, Any], kernel: int, results: int) -> Array:
    """[kernel, results]: the slices that each window sees, borders included. In this order they
    are as many pieces of the volume as the window sees slices."""
    first, taps = np.arange(results) * attrs["strides"][0], np.arange(kernel) * attrs["dilation"][0]
    return np.asarray(np.add.outer(taps, first))


def _windows(value: Expr, seen: Array, name: str) -> Call:
    """[N, C, depth, H, W] as [N, C, *seen.shape, H, W], of these slices."""
    shape, dtype = shape_of(value), value.type.dtype
    if seen.reshape(-1).tolist() != [*range(shape[2])]:
        every = of((*shape[:2], seen.size, *shape[3:]), dtype)
        places = constant(seen.reshape(-1), "int32")
        value = made("take", every, value, places, name=name, axis=2, batch_dims=0, mode="clip")
    return reshaped(value, (*shape[:2], *seen.shape, *shape[3:]), name)


def largest_of_volumes(call: Call, value: Expr) -> Call:
    """A max pooling of volumes: the largest in each slice's windows, then of the slices that a
    window sees."""
    attrs, name, dtype = own_attributes(call, "max_pool2d"), call.name, value.type.dtype
    require(attrs["layout"] == "NCDHW", "layout", attrs["layout"], "NCDHW")
    count, channels, depth, *image = shape_of(value)
    results, *pooled = shape_of(call)[2:]
    slices = of((count, channels * depth, *pooled), dtype)
    images = reshaped(value, (count, channels * depth, *image), name)
    value = made("max_pool2d", slices, images, name=name, **_of_slices(attrs))
    seen = _seen(attrs, attrs["kernel"][0], results) - attrs["padding"][0]
    # What is seen twice changes no maximum: in a border's place is a slice of the window's own.
    inside = (seen >= 0) & (seen < depth)
    seen = np.where(inside, seen, seen[inside.argmax(axis=0), np.arange(results)])
    value = _windows(reshaped(value, (count, channels, depth, *pooled), name), seen, name)
    of_all = of(shape_of(call), dtype)
    return made("max", of_all, value, name=name, axis=(2,), keepdims=False, exclude=False)
