"""Layers with weights as products of matrices: their weights, and the terms that these multiply."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tinyai.qdq.operands import is_call, shape_of
from tinyai.quantizer.folding import output_channels, weight_channels
from tinyai.quantizer.params import Array
from tinyai.quantizer.points import Points
from tinyai.quantizer.roles import Role
from tinyai.source import Call, Expr

# Places of a convolution in a sample that are looked at, evenly spread.
PLACES = 512


@dataclass(frozen=True, eq=False)
class WeightedLayer:
    """A convolution or a dense layer with constant weights, each output with its own, that
    reads the value of the point of the number ``point``."""

    product: Call
    weights: Array
    point: int

    @property
    def is_integer(self) -> bool:
        """Whether the model has these weights as integers already, which are kept."""
        return is_call(self.product["weight"], "dequantize")

    @property
    def groups(self) -> int:
        return int(self.product.attrs["groups"]) if is_call(self.product, "conv2d") else 1

    @property
    def terms(self) -> int:
        """The number of products in a sum."""
        return self.weights.size // self.outputs

    @property
    def outputs(self) -> int:
        return int(shape_of(self.product)[output_channels(self.product)])

    def matrix(self, weights: Array) -> Array:
        """Weights, or another array of their shape, as [groups, outputs of a group, terms]."""
        if is_call(self.product, "conv2d"):
            weights = weights.transpose(_axes(self.product))
        return weights.reshape(self.groups, self.outputs // self.groups, self.terms)

    def unmatrix(self, matrix: Array) -> Array:
        """The array that ``matrix`` turned into this one."""
        if not is_call(self.product, "conv2d"):
            return matrix.reshape(self.weights.shape)
        axes = _axes(self.product)
        wide = matrix.reshape([self.weights.shape[axis] for axis in axes])
        return np.ascontiguousarray(wide.transpose(np.argsort(axes)))

    def rows(self, data: Array) -> Array:
        """[groups, rows, terms] of a value that the layer reads: a row for each result, or for
        ``PLACES`` of a sample."""
        if not is_call(self.product, "conv2d"):
            return data.reshape(1, -1, self.terms)
        attrs = self.product.attrs
        images = np.moveaxis(data, attrs["layout"].index("C"), 1)
        top, left, bottom, right = attrs["padding"]
        images = np.pad(images, ((0, 0), (0, 0), (top, bottom), (left, right)))
        kernel = [self.weights.shape[attrs["weight_layout"].index(axis)] for axis in "HW"]
        dilation, strides = attrs["dilation"], attrs["strides"]
        window = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
        seen: Array = sliding_window_view(images, window, axis=(2, 3))  # type: ignore[call-overload]
        seen = seen[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]]
        batch, channels, height, width, *_ = seen.shape
        every = max(1, -(-height * width // PLACES))
        at = np.arange(every // 2, height * width, every)
        chosen = seen[:, :, at // width, at % width]  # [batch, channels, places, *kernel]
        shape = (batch, self.groups, channels // self.groups, len(at), math.prod(kernel))
        rows: Array = chosen.reshape(shape).transpose(1, 0, 3, 2, 4)
        return rows.reshape(self.groups, -1, self.terms)


def _axes(product: Call) -> list[int]:
    return [product.attrs["weight_layout"].index(axis) for axis in "OIHW"]


def layers(points: Points) -> Iterator[WeightedLayer]:
    """The quantized layers that have this form, in order of computation."""
    numbers = {point.expr: number for number, point in enumerate(points.points)}
    for expr in points.order:
        if points.roles.get(expr) is Role.PRODUCT and _has_this_form(points, expr):
            assert isinstance(expr, Call)
            if expr["data"] in numbers:
                weights = points.view.constant(expr["weight"])
                yield WeightedLayer(expr, weights, numbers[expr["data"]])


def _has_this_form(points: Points, expr: Expr) -> bool:
    if not is_call(expr, "conv2d", "dense") or not points.view.is_constant(expr["weight"]):
        return False
    if weight_channels(expr) is None:
        return False
    if is_call(expr, "dense"):
        return True
    attrs = expr.attrs
    return (
        attrs["layout"] in ("NCHW", "NHWC")
        and sorted(attrs["weight_layout"]) == sorted("OIHW")
        and attrs["out_layout"] in ("", attrs["layout"])
        and len(attrs["padding"]) == 4
    )


# A term whose variance is at most this share of its mean square is taken for constant.
_CONSTANT = 1e-9


@dataclass(frozen=True, eq=False)
class Moments:
    """Of the terms of a layer over many rows: ``count`` rows, sums of the float terms and of the
    quantized ones, [groups, terms], and of the products of each two float ones."""

    count: int
    floats: Array
    quantized: Array
    products: Array | None

    @classmethod
    def of(cls, floats: Array, quantized: Array, *, products: bool) -> Moments:
        """Of rows as ``WeightedLayer.rows`` gives them, float64."""
        pairs = floats.transpose(0, 2, 1) @ floats if products else None
        return cls(floats.shape[1], floats.sum(axis=1), quantized.sum(axis=1), pairs)

    def merge(self, other: Moments) -> Moments:
        pairs = self.products
        if pairs is not None and other.products is not None:
            pairs = pairs + other.products
        return Moments(
            self.count + other.count,
            self.floats + other.floats,
            self.quantized + other.quantized,
            pairs,
        )

    def spread(self, centred: bool) -> Array:
        """[groups, terms, terms]: mean products, those of the means taken off if ``centred``. A
        term that is as good as constant has no spread: what is left of it is rounding."""
        assert self.products is not None
        products = self.products / self.count
        if not centred:
            return products
        mean = self.floats / self.count
        centre = products - mean[:, :, None] * mean[:, None, :]
        spreads = np.einsum("gii->gi", centre) > _CONSTANT * np.einsum("gii->gi", products)
        spread: Array = centre * spreads[:, :, None] * spreads[:, None, :]
        return spread
