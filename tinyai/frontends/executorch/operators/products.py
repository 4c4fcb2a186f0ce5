"""Convolutions and products of matrices."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tinyai.frontends.executorch.operators.rows import first_of, ints, reads
from tinyai.frontends.executorch.reader import Site
from tinyai.ir import Array
from tinyai.qdq.accumulators import ACCUMULATORS
from tinyai.qdq.operands import is_call
from tinyai.source import Expr, SourceType, require
from tinyai.vocabulary import constant


@reads("convolution")
def _any_convolution(site: Site) -> Expr:
    return _convolution(site, transposed=bool(site.args["transposed"]))


@reads("conv1d", "conv2d", "conv3d")
def _plain_convolution(site: Site) -> Expr:
    return _convolution(site)


@reads("conv_transpose1d", "conv_transpose2d")
def _transposed_convolution(site: Site) -> Expr:
    return _convolution(site, transposed=True)


def _convolution(site: Site, *, transposed: bool = False) -> Expr:
    data, weight = site.value("input"), site.value("weight")
    rank = len(weight.type.shape) - 2
    known = (1, 2) if transposed else (1, 2, 3)
    require(rank in known, "dimensions of a convolution", rank, f"1 to {len(known)}")
    batched = len(data.type.shape) == rank + 2
    require(batched, "dimensions of the data", len(data.type.shape), rank + 2)
    dilation = ints(site.args["dilation"], rank)
    attrs: dict[str, Any] = {
        "strides": ints(site.args["stride"], rank),
        "padding": _padding(site, weight, dilation),
        "dilation": dilation,
        "groups": int(site.args["groups"]),
        "out_layout": "",
    }
    if not transposed:
        spatial = "DHW"[-rank:]
        attrs |= {"layout": f"NC{spatial}", "weight_layout": f"OI{spatial}"}
        return _biased(site, site.call(f"conv{rank}d", data, weight, **attrs), 1)
    attrs["output_padding"] = ints(site.args["output_padding"], rank)
    of = site.type
    if rank == 1:  # the vocabulary has two dimensions: the height is 1
        data, weight = (site.call("reshape", x, of=_higher(x.type)) for x in (data, weight))
        of = _higher(of)
        for name, plain in (("strides", 1), ("dilation", 1), ("output_padding", 0)):
            attrs[name] = (plain, *attrs[name])
        attrs["padding"] = tuple(n for each in attrs["padding"] for n in (0, each))
    attrs |= {"layout": "NCHW", "weight_layout": "IOHW"}
    value = _biased(site, site.call("conv2d_transpose", data, weight, of=of, **attrs), 1)
    return value if of == site.type else site.call("reshape", value)


def _higher(of: SourceType) -> SourceType:
    return replace(of, shape=(*of.shape[:-1], 1, of.shape[-1]))


def _padding(site: Site, weight: Expr, dilation: tuple[int, ...]) -> tuple[int, ...]:
    """Before each dimension, then after each."""
    given = site.args["padding"]
    if not isinstance(given, str):
        return ints(given, len(dilation)) * 2
    sizes = weight.type.shape[2:]
    added = [
        (int(size or 0) - 1) * step if given == "same" else 0
        for size, step in zip(sizes, dilation, strict=True)
    ]
    return (*(each // 2 for each in added), *(each - each // 2 for each in added))


def _biased(site: Site, value: Expr, axis: int) -> Expr:
    if site.args["bias"] is None:
        return value
    return site.call("bias_add", value, site.value("bias"), of=value.type, axis=axis)


@reads("batch_norm")
def _batch_norm(site: Site) -> Expr:
    """As its statistics are. In training torch folds it into the layer before, if that is one."""
    data, layer = site.value("input"), site.node.all_input_nodes[0]
    if not is_call(data, *ACCUMULATORS) or len(layer.users) > 1:
        return _by_channel(site, data, site.type)
    factor, term = _normalization(site)
    along = (-1, *[1] * (len(site.type.shape) - 2))
    scaled = site.call("multiply", data, constant(np.reshape(factor, along), "float32"))
    return site.call("bias_add", scaled, constant(term, "float32"), axis=1)


@reads("_native_batch_norm_legit_no_training")
def _native_batch_norm(site: Site) -> Expr:
    return first_of(site, _by_channel(site, site.value("input"), site.types[0]))


def _normalization(site: Site) -> tuple[Array, Array]:
    """What a batch norm multiplies each channel by, and adds then."""
    mean, variance = site.known("running_mean"), site.known("running_var")
    known = mean is not None and variance is not None
    require(known, "statistics of a batch norm", "computed at run time", "known ones")
    assert mean is not None
    assert variance is not None
    factor = site.known_or("weight", 1) / np.sqrt(variance + site.args["eps"])
    term = site.known_or("bias", 0) - mean * factor
    finite = bool(np.isfinite([factor, term]).all())
    require(finite, "statistics of a batch norm", "infinite, or no numbers", "finite ones")
    return factor, term


def _by_channel(site: Site, data: Expr, result: SourceType) -> Expr:
    """A batch norm that follows no layer: a depthwise convolution of one tap, whose weights are
    127 steps of their channel's scale.

    A channel that is almost nothing beside the largest has fewer, so that its term is not too many.
    """
    factor, term = _normalization(site)
    least = np.abs(factor).max(initial=0) / 1024
    scale = np.maximum(np.abs(factor), least or 1) / 127
    steps = constant(np.rint(factor / scale).reshape(-1, 1, 1, 1), "int8")
    grids = constant(scale, "float32"), constant(np.zeros(len(scale)), "int32")
    weight = site.call("dequantize", steps, *grids, of=replace(steps.type, dtype="float32"), axis=0)

    batch, channels, *rest = data.type.shape
    plane = rest if len(rest) == 2 else (1, math.prod(int(dim or 0) for dim in rest))
    flat = replace(data.type, shape=(batch, channels, *plane))
    if flat != data.type:
        data = site.call("reshape", data, of=flat)
    one_tap: dict[str, Any] = {
        **dict.fromkeys(("strides", "dilation"), (1, 1)),
        "padding": (0, 0, 0, 0),
        "layout": "NCHW",
        "weight_layout": "OIHW",
        "out_layout": "",
    }
    value = site.call("conv2d", data, weight, of=flat, groups=channels, **one_tap)
    value = site.call("bias_add", value, constant(term, "float32"), of=flat, axis=1)
    return value if flat == result else site.call("reshape", value, of=result)


@reads("linear", whole=[torch.ops.aten.linear.default])
def _linear(site: Site) -> Expr:
    return _by_rows(site, site.value("input"), site.value("weight"), biased=True)


def _by_rows(site: Site, data: Expr, weight: Expr, *, biased: bool = False) -> Expr:
    """Data in any number of dimensions as rows, by rows of weights."""
    units = weight.type.shape[0]
    rows = SourceType((math.prod(site.shape[:-1]), data.type.shape[-1]), data.type.dtype)
    if data.type != rows:
        data = site.call("reshape", data, of=rows)
    flat = SourceType((rows.shape[0], units), "float32")
    value: Expr = site.call("dense", data, weight, of=flat)
    if biased:
        value = _biased(site, value, 1)
    return value if flat == site.type else site.call("reshape", value)


@reads("addmm")
def _addmm(site: Site) -> Expr:
    plain = site.args["beta"] == 1 == site.args["alpha"]
    require(plain, "factors of addmm", (site.args["beta"], site.args["alpha"]), "1 and 1")
    bias = site.value("self")
    product = _by_rows(site, site.value("mat1"), _turned(site, site.value("mat2")))
    if len(bias.type.shape) == 1 and bias.type.shape == product.type.shape[-1:]:
        return site.call("bias_add", product, bias, axis=1)
    return site.call("add", product, bias)


def _turned(site: Site, columns: Expr) -> Expr:
    """Rows of weights, which the vocabulary has, of columns, which torch has."""
    turned = replace(columns.type, shape=columns.type.shape[::-1])
    return site.call("transpose", columns, of=turned, axes=(1, 0))


@reads("mm")
def _mm(site: Site) -> Expr:
    return _by_rows(site, site.value("self"), _turned(site, site.value("mat2")))


@reads("bmm")
def _bmm(site: Site) -> Expr:
    return _by_batches(site, site.value("self"), site.value("mat2"))


@reads("matmul")
def _matmul(site: Site) -> Expr:
    left, right = site.value("self"), site.value("other")
    (*batch, _, _), rank = left.type.shape, len(right.type.shape)
    if rank == 2:
        return _by_rows(site, left, _turned(site, right))
    same = rank > 2 and [*right.type.shape[:-2]] == batch
    require(same, "shapes of a product", f"{left.type} by {right.type}", "as many matrices")
    return _by_batches(site, left, right)


def _by_batches(site: Site, left: Expr, right: Expr) -> Expr:
    """Products of matrices in any number of dimensions as one row of them."""

    def in_a_row(of: SourceType) -> SourceType:
        count = math.prod(int(dim or 0) for dim in of.shape[:-2])
        return replace(of, shape=(count, *of.shape[-2:]))

    left, right = (
        x if in_a_row(x.type) == x.type else site.call("reshape", x, of=in_a_row(x.type))
        for x in (left, right)
    )
    of = in_a_row(site.type)
    product = site.call("batch_matmul", left, right, of=of, transpose_a=False, transpose_b=False)
    return product if of == site.type else site.call("reshape", product)
