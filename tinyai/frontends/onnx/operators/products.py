"""Convolutions and products of matrices, of floats and of integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinyai.frontends.onnx import windows
from tinyai.frontends.onnx.operators.rows import (
    pair_of,
    reads,
    reads_contrib,
    scale_of,
    zero_of,
)
from tinyai.frontends.onnx.reader import Site, fixed_sizes
from tinyai.qdq.operands import shape_of
from tinyai.qdq.two_dimensions import of_images, require_slices_apart
from tinyai.source import Constant, Expr, SourceType, require
from tinyai.vocabulary import constant

# --- Convolutions --------------------------------------------------------------------------------


def _checked(site: Site, data: Expr, weight: Expr, inputs: int) -> tuple[list[int], int]:
    """The sizes of images, and their number of dimensions."""
    sizes, kernel = fixed_sizes(data), fixed_sizes(weight)
    rank, groups = len(kernel) - 2, int(site.attr("group"))
    require(rank in (1, 2, 3), "dimensions of a convolution", rank, "1 to 3")
    require(len(sizes) == rank + 2, "dimensions of the data", len(sizes), rank + 2)
    require(groups > 0, "group", groups, "1 and more")
    fits = sizes[1] == inputs * groups and kernel[0] % groups == 0
    require(fits, "channels", f"{data.type} by {weight.type}, group {groups}", "as many")
    return list(sizes[2:]), rank


def _convolved(
    site: Site, data: Expr, weight: Expr, place: int
) -> tuple[SourceType, dict[str, Any]]:
    """The result's type but for its dtype, and the attributes of the vocabulary."""
    sizes, rank = _checked(site, data, weight, int(weight.type.shape[1] or 0))
    kernel = windows.kernel_of(site, place)
    window = windows.WindowAttributes.of(site, kernel)
    pads = windows.pads_of_layer(site, window, kernel)
    shape = (data.type.shape[0], weight.type.shape[0], *window.counts(sizes, pads))
    return replace(data.type, shape=shape), {
        **_window(site, window, pads),
        "layout": f"NC{'DHW'[-rank:]}",
        "weight_layout": f"OI{'DHW'[-rank:]}",
    }


def _window(site: Site, window: windows.WindowAttributes, pads: Sequence[int]) -> dict[str, Any]:
    return {
        "strides": window.strides,
        "padding": tuple(pads),
        "dilation": window.dilations,
        "groups": int(site.attr("group")),
        "out_layout": "",
    }


def _biased(site: Site, value: Expr, place: int) -> Expr:
    if not site.has(place):
        return value
    bias, channels = site.expr(place), value.type.shape[1]
    require(bias.type.shape == (channels,), "shape of the bias", bias.type, f"[{channels}]")
    return site.call("bias_add", value, bias, of=value.type, axis=1)


@reads("Conv")
def _conv(site: Site) -> Expr:
    data, weight = site.expr(0), site.expr(1)
    of, attrs = _convolved(site, data, weight, 1)
    operator = f"conv{len(of.shape) - 2}d"
    return _biased(site, site.call(operator, data, weight, of=of, **attrs), 2)


@reads("ConvTranspose")
def _conv_transpose(site: Site) -> Expr:
    data, weight = site.expr(0), site.expr(1)
    rank = len(weight.type.shape) - 2
    if rank == 1:  # the vocabulary has two dimensions: the height is 1
        data, weight = (
            site.reshaped(x, (*sizes[:-1], 1, sizes[-1]))
            for x in (data, weight)
            for sizes in [fixed_sizes(x)]
        )
    sizes, _ = _checked(
        site, data, weight, int(weight.type.shape[0] or 0) // int(site.attr("group"))
    )
    kernel = windows.kernel_of(site, 1)
    window = windows.WindowAttributes.of(site, kernel)
    pads = windows.pads_of_transposed(site, window, kernel)
    more = list(site.attr("output_padding") or [0] * rank)
    attrs: dict[str, Any] = {**_window(site, window, pads), "output_padding": tuple(more)}
    if rank == 1:
        for name, plain in (("strides", 1), ("dilation", 1), ("output_padding", 0)):
            attrs[name] = (plain, *attrs[name])
        attrs["padding"] = tuple(n for pad in pads for n in (0, pad))
    elif rank == 3:
        require_slices_apart(attrs, kernel[0])
    extent = window.extent if rank > 1 else (1, *window.extent)
    before, after = np.reshape(attrs["padding"], (2, -1)).tolist()
    image = tuple(
        (size - 1) * stride + extra + span - cut
        for size, stride, extra, span, cut in zip(
            sizes,
            attrs["strides"],
            attrs["output_padding"],
            extent,
            map(sum, zip(before, after, strict=True)),
            strict=True,
        )
    )
    channels = int(weight.type.shape[1] or 0) * attrs["groups"]
    of = replace(data.type, shape=(data.type.shape[0], channels, *image))
    axes = "DHW"[-len(image) :]
    attrs |= {"layout": f"NC{axes}", "weight_layout": f"IO{axes}"}
    operator = f"conv{len(image)}d_transpose"
    value = _biased(site, site.call(operator, data, weight, of=of, **attrs), 2)
    return value if rank > 1 else site.reshaped(value, (fixed_sizes(data)[0], channels, image[1]))


@reads("QLinearConv")
def _quantized_conv(site: Site) -> Expr:
    data, weight = site.expr(0), site.expr(3)
    of, attrs = _convolved(site, data, weight, 3)
    quantization = _quantization(site)
    call = site.call(f"conv{len(of.shape) - 2}d", data, weight, of=of, **attrs)
    assert isinstance(quantization[0], Constant)
    zero_point = int(quantization[0].value.reshape(-1)[0])
    attrs, data, weight, reshaping = of_images(call, attrs, data, weight, zero_point)
    shape = shape_of(call) if reshaping is None else reshaping.shape(shape_of(call))
    of = replace(of, shape=shape, dtype="int32")
    sums: Expr = site.call("quantized_conv2d", data, weight, *quantization, of=of, **attrs)
    made = _requantized(site, _biased(site, sums, 8), quantization[2:], 6, axis=1)
    return made if reshaping is None else reshaping.undone(made, site.node.name)


def _quantization(site: Site) -> tuple[Expr, ...]:
    """Zero points and scales of a product's operands, which are in the places 0 and 3."""
    left, right = site.expr(0).type.dtype, site.expr(3).type.dtype
    return zero_of(site, 2, left), zero_of(site, 5, right), scale_of(site, 1), scale_of(site, 4)


def _requantized(
    site: Site, sums: Expr, scales: Sequence[Expr], place: int, *, axis: int, factor: float = 1
) -> Expr:
    """Sums on the grid of the result, whose scale is in this place and whose zero point follows."""
    left, right = (each.value for each in scales if isinstance(each, Constant))
    scale = np.asarray(left * right * np.float32(factor), np.float32)
    return site.call(
        "requantize",
        sums,
        constant(scale),
        constant(0, "int32"),
        *pair_of(site, place),
        of=replace(sums.type, dtype=site.facts.dtype(site.operand(place + 1)) or "uint8"),
        axis=axis,
        rounding="None" if axis == 1 else "TONEAREST",
        compute_dtype="None",
    )


# --- Products of matrices ------------------------------------------------------------------------


@reads("Gemm")
def _gemm(site: Site) -> Expr:
    left, right = _matrices(site, 0, 1)
    alpha, beta = float(site.attr("alpha")), float(site.attr("beta"))
    if isinstance(right, Constant):  # floats: what is dequantized keeps its integers
        right = _times(site, alpha, right)
    else:
        left = _times(site, alpha, left)
    of = replace(left.type, shape=(left.type.shape[0], right.type.shape[0]))
    product: Expr = site.call("dense", left, right, of=of)
    if not site.has(2):
        return product
    return site.call("add", product, _times(site, beta, site.expr(2)), of=of)


def _times(site: Site, factor: float, value: Expr) -> Expr:
    if factor == 1:
        return value
    if isinstance(value, Constant):
        return constant(value.value * np.float32(factor), "float32")
    return site.call("multiply", value, constant(factor, "float32"), of=value.type)


def _matrices(site: Site, first: int, second: int) -> tuple[Expr, Expr]:
    """Rows of data, and rows of weights."""
    left, right = site.expr(first), site.expr(second)
    ranks = [len(each.type.shape) for each in (left, right)]
    require(ranks == [2, 2], "dimensions of the operands", ranks, "2 and 2")
    left = site.transposed(left, (1, 0)) if site.attr("transA") else left
    right = right if site.attr("transB") else site.transposed(right, (1, 0))
    fits = left.type.shape[1] == right.type.shape[1]
    require(fits, "shapes of a product", f"{left.type} by {right.type}", "rows of one length")
    return left, right


@reads_contrib("QGemm", alpha=1.0, transA=0, transB=0)
def _quantized_gemm(site: Site) -> Expr:
    left, right = _matrices(site, 0, 3)
    quantization = _quantization(site)
    of = SourceType((left.type.shape[0], right.type.shape[0]), "int32")
    sums: Expr = site.call("quantized_dense", left, right, *quantization, of=of)
    if site.has(6):
        sums = site.call("add", sums, site.expr(6), of=of)
    require(site.has(7), "scale of the result", "none", "one: QGemm into floats is not read")
    alpha = float(site.attr("alpha"))
    return _requantized(site, sums, quantization[2:], 7, axis=-1, factor=alpha)


@reads("MatMul")
def _matmul(site: Site) -> Expr:
    left, right = site.expr(0), site.expr(1)
    return _product(
        site, left, right, "dense", "batch_matmul", (), replace(left.type, dtype="float32")
    )


@reads("QLinearMatMul")
def _quantized_matmul(site: Site) -> Expr:
    left, right = site.expr(0), site.expr(3)
    quantization = _quantization(site)
    operators = "quantized_dense", "quantized_batch_matmul"
    of = replace(left.type, dtype="int32")
    sums = _product(site, left, right, *operators, quantization, of)
    return _requantized(site, sums, quantization[2:], 6, axis=-1)


def _product(
    site: Site,
    left: Expr,
    right: Expr,
    by_rows: str,
    by_batches: str,
    quantization: Sequence[Expr],
    of: SourceType,
) -> Expr:
    """Of operands of any rank: rows by one matrix, or matrices by as many others."""
    a, b = fixed_sizes(left), fixed_sizes(right)
    require(len(a) > 0 < len(b), "dimensions of the operands", (len(a), len(b)), "1 and more")
    rows, columns = ((1, *a) if len(a) == 1 else a), ((*b, 1) if len(b) == 1 else b)
    fits = rows[-1] == columns[-2]
    require(fits, "shapes of a product", f"{left.type} by {right.type}", "rows as long as columns")
    batch = np.broadcast_shapes(rows[:-2], columns[:-2])
    kept = (rows[-2],) if len(a) > 1 else (), (columns[-1],) if len(b) > 1 else ()
    shape = (*batch, *kept[0], *kept[1])
    left, right = site.reshaped(left, rows), site.reshaped(right, columns)
    if len(columns) == 2:
        flat = (math.prod(rows[:-1]), rows[-1])
        left, right = site.reshaped(left, flat), site.transposed(right, (1, 0))
        of = replace(of, shape=(flat[0], columns[1]))
        return site.reshaped(site.call(by_rows, left, right, *quantization, of=of), shape)
    count = math.prod(batch)
    left, right = (_in_batches(site, each, batch, count) for each in (left, right))
    turned, of = (
        site.transposed(right, (0, 2, 1)),
        replace(of, shape=(count, rows[-2], columns[-1])),
    )
    ways = {} if quantization else {"transpose_a": False, "transpose_b": True}
    return site.reshaped(site.call(by_batches, left, turned, *quantization, of=of, **ways), shape)


def _in_batches(site: Site, value: Expr, batch: Sequence[int], count: int) -> Expr:
    sizes = fixed_sizes(value)
    if sizes[:-2] != tuple(batch):
        of = replace(value.type, shape=(*batch, *sizes[-2:]))
        value = site.call("broadcast_to", value, of=of)
    return site.reshaped(value, (count, *sizes[-2:]))


@reads("BatchNormalization")
def _batch_norm(site: Site) -> Expr:
    """Of inference, as a factor and a term of each channel."""
    site.attr("momentum")
    training, spatial = site.attr("training_mode", 0), site.attr("spatial", 1)
    require(not training, "training_mode", training, "0: statistics that are constants")
    require(spatial == 1, "spatial", spatial, 1)
    data = site.expr(0)
    names = ("scale", "bias", "mean", "variance")
    scale, bias, mean, variance = (site.real(1 + n, name) for n, name in enumerate(names))
    factor = scale / np.sqrt(variance + np.float32(site.attr("epsilon")))
    along = (-1, *[1] * (len(data.type.shape) - 2))
    scaled = site.call("multiply", data, constant(factor.reshape(along), "float32"), of=data.type)
    term = (bias - mean * factor).reshape(along)
    return site.call("add", scaled, constant(term, "float32"), of=data.type)
