"""Convolutions and products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tinyai.frontends.tflite.operators.rows import reads
from tinyai.frontends.tflite.operators.scaled import (
    Attributes,
    activated,
    image_shape,
    ints,
    to_scale,
    windows,
)
from tinyai.frontends.tflite.reader import Site
from tinyai.frontends.tflite.tensors import FileTensor
from tinyai.ir import Array
from tinyai.source import Expr, SourceType, require
from tinyai.vocabulary import constant

DYNAMIC = "int8 weights and floats: dynamic range quantization, or weights alone"
FULL = "integers in both: full integer quantization"


def weights_of(site: Site, place: int, data: FileTensor, axis: int) -> FileTensor:
    """The weights of a product, whose scales may lie along ``axis``."""
    weights = site.tensor(place)
    if data.dtype == "float32" != weights.dtype:
        require(not weights.is_quantized, "weights", DYNAMIC, FULL)
    if data.is_quantized:
        require(weights.is_quantized, "weights", weights.type, "integers with a scale")
        apart = weights.scales is not None and weights.scales.size > 1
        zeros = set(ints(weights.zero_points)) - {0}
        # TFLite's kernels of int8 look at those of dense layers alone.
        looks = weights.dtype == "uint8" or site.kind == "FULLY_CONNECTED"
        fits = not zeros or (looks and not apart)
        require(fits, "zero points of the weights", sorted(zeros), "0")
        weights.along(axis)
    return weights


def _biased(site: Site, sums: Expr, place: int, axis: int) -> Expr:
    if not site.has(place):
        return sums
    bias, channels = site.value(place), sums.type.shape[axis]
    require(bias.type.shape == (channels,), "shape of the bias", bias.type, f"[{channels}]")
    return site.call("bias_add", sums, bias, of=sums.type, axis=axis)


def product(
    site: Site,
    operator: str,
    places: tuple[int, int],
    data: Expr,
    weight: Expr,
    axis: int,
    of: SourceType,
    **attrs: object,
) -> Expr:
    """The sums of a product, with the bias and the activation, at the output's scale. ``places``
    are those of the data and of the bias; the weights come between, their scales along the last
    dimension of the result."""
    tensor, weights = site.tensor(places[0]), weights_of(site, 1, site.tensor(places[0]), axis)
    last = len(of.shape) - 1
    if not site.is_quantized(places[0]):
        sums = site.call(operator, data, weight, of=of, **attrs)
        return activated(site, _biased(site, sums, places[1], last))
    scale, wide = weights.along(axis), "int64" if tensor.dtype == "int16" else "int32"
    sums = site.call(
        f"quantized_{operator}",
        data,
        weight,
        constant(tensor.zero_point, "int32"),
        constant(weights.zero_point, "int32"),
        constant(tensor.scale, "float32"),
        constant(scale, "float32"),
        of=SourceType(of.shape, wide),
        **attrs,
    )
    biased = _biased(site, sums, places[1], last)
    scales = np.asarray(tensor.scale * scale, np.float32)
    return activated(site, to_scale(site, biased, scales, 0, last))


def _convolution(site: Site, kernel: Sequence[int]) -> Attributes:
    image_shape(site.output)
    strides = site.options("StrideH"), site.options("StrideW")
    dilation = site.options("DilationHFactor"), site.options("DilationWFactor")
    require(min(dilation) > 0, "dilation", dilation, "1 and more")
    taps = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
    sizes = image_shape(site.tensor(0))[1:3]
    return {
        "strides": strides,
        "dilation": dilation,
        "padding": windows(site, sizes, taps, strides),
        "layout": "NHWC",
        "out_layout": "",
    }


@reads("CONV_2D", options="Conv2DOptions", inputs=range(2, 4))
def _conv2d(site: Site) -> Expr:
    channels, (_, height, width, depth) = (
        image_shape(site.tensor(0))[3],
        image_shape(site.tensor(1)),
    )
    require(depth > 0 and channels % depth == 0, "channels", channels, f"a multiple of {depth}")
    attrs = _convolution(site, (height, width))
    attrs |= {"groups": channels // depth, "weight_layout": "HWIO"}
    site.options("QuantizedBiasType")  # of int16: the bias itself says it
    weight = site.transposed(site.value(1), (1, 2, 3, 0))
    return product(site, "conv2d", (0, 2), site.value(0), weight, 0, site.output.type, **attrs)


@reads("DEPTHWISE_CONV_2D", options="DepthwiseConv2DOptions", inputs=range(2, 4))
def _depthwise(site: Site) -> Expr:
    channels, (one, height, width, results) = (
        image_shape(site.tensor(0))[3],
        image_shape(site.tensor(1)),
    )
    multiplier = site.options("DepthMultiplier")
    fits = one == 1 and results == channels * multiplier and channels > 0
    require(fits, "depth multiplier", multiplier, f"{results} / {channels}")
    weight = site.reshaped(site.value(1), (height, width, channels, multiplier))
    # A convolution of one channel has no other groups.
    order = "HWIO" if channels == 1 else "HWOI"
    attrs = _convolution(site, (height, width)) | {"groups": channels, "weight_layout": order}
    return product(site, "conv2d", (0, 2), site.value(0), weight, 3, site.output.type, **attrs)


@reads("FULLY_CONNECTED", options="FullyConnectedOptions", inputs=range(2, 4))
def _fully_connected(site: Site) -> Expr:
    data, weights = site.tensor(0), site.tensor(1)
    require(len(weights.shape) == 2, "dimensions of the weights", len(weights.shape), "2")
    units, depth = weights.shape
    # Of dynamic range quantization, which is refused, and of int16; the shape of the result tells
    # which dimensions are kept.
    for field in ("AsymmetricQuantizeInputs", "QuantizedBiasType", "KeepNumDims"):
        site.options(field)
    count = math.prod(data.shape)
    require(depth > 0 and count % depth == 0, "elements", count, f"a multiple of {depth}")
    rows = site.reshaped(site.value(0), (count // depth, depth))
    of = site.typed((count // depth, units))
    sums = product(site, "dense", (0, 2), rows, site.value(1), 0, of)
    return site.reshaped(sums, site.shape)


@reads("TRANSPOSE_CONV", options="TransposeConvOptions", inputs=range(3, 5))
def _transposed(site: Site) -> Expr:
    """The output's shape is an input; what ``SAME`` cuts off is known from it."""
    data = image_shape(site.tensor(2))
    image_shape(site.output)
    _, *kernel, depth = image_shape(site.tensor(1))
    shape = ints(site.known(0, "output shape"))
    require(tuple(shape) == site.shape, "output shape", shape, list(site.shape))
    require(depth == data[3], "channels of the weights", depth, data[3])
    strides = site.options("StrideH"), site.options("StrideW")
    before = windows(site, site.shape[1:3], kernel, strides)[:2]
    site.options("QuantizedBiasType")
    cut = [
        (size - 1) * stride + taps - start - whole
        for size, stride, taps, start, whole in zip(
            data[1:3], strides, kernel, before, site.shape[1:3], strict=True
        )
    ]
    attrs: Attributes = {
        "strides": strides,
        "padding": (*before, *(max(each, 0) for each in cut)),
        "output_padding": tuple(max(-each, 0) for each in cut),
        "dilation": (1, 1),
        "groups": 1,
        "layout": "NHWC",
        "weight_layout": "IOHW",
        "out_layout": "",
    }
    weight = site.transposed(site.value(1), (3, 0, 1, 2))
    operands = site.value(2), weight
    return product(site, "conv2d_transpose", (2, 3), *operands, 0, site.output.type, **attrs)


@reads("BATCH_MATMUL", options="BatchMatMulOptions", inputs=2)
def _batch_matmul(site: Site) -> Expr:
    """Matrices in any number of dimensions as one row of them."""
    left, right = site.value(0), site.value(1)
    turned = site.options("AdjX"), site.options("AdjY")
    site.options("AsymmetricQuantizeInputs")
    batch = site.shape[:-2]
    if len(right.type.shape) == 2 < len(left.type.shape) and not site.is_quantized(0, 1):
        # One matrix for all: rows of it.
        require(not turned[0], "adj_x", True, "False, by one matrix for all")
        return site.reshaped(_rows_by_matrix(site, left, right, turned[1]), site.shape)
    same = all(len(x.type.shape) >= 2 and x.type.shape[:-2] == batch for x in (left, right))
    require(same, "shapes", f"{left.type} by {right.type}", "as many matrices in both")
    count = math.prod(batch)
    left, right = (
        _matrices(site, x, count, turn) for x, turn in ((left, turned[0]), (right, not turned[1]))
    )
    of = site.typed((count, *site.shape[-2:]))
    if not site.is_quantized(0, 1):
        attrs: Attributes = {"transpose_a": False, "transpose_b": True}
        result: Expr = site.call("batch_matmul", left, right, of=of, **attrs)
    else:
        tensors = site.tensor(0), site.tensor(1)
        sums = site.call(
            "quantized_batch_matmul",
            left,
            right,
            *(constant(each.zero_point, "int32") for each in tensors),
            *(constant(each.scale, "float32") for each in tensors),
            of=SourceType(of.shape, "int32"),
        )
        scale: Array = np.asarray(tensors[0].scale * tensors[1].scale, np.float32)
        result = to_scale(site, sums, scale, 0)
    return site.reshaped(result, site.shape)


def _rows_by_matrix(site: Site, left: Expr, right: Expr, turned: bool) -> Expr:
    *outer, inner = (int(size or 0) for size in left.type.shape)
    count = math.prod(outer)
    rows = site.reshaped(left, (count, inner))
    weight = right if turned else site.transposed(right, (1, 0))
    return site.call("dense", rows, weight, of=site.typed((count, site.shape[-1])))


def _matrices(site: Site, value: Expr, count: int, turned: bool) -> Expr:
    value = site.reshaped(value, (count, *value.type.shape[-2:]))
    return site.transposed(value, (0, 2, 1)) if turned else value
