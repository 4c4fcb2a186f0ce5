"""Convolutions and products of matrices."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tinyai.frontends.executorch.operators.rows import ints, reads
from tinyai.frontends.executorch.reader import Site
from tinyai.source import Expr, SourceType, require
from tinyai.vocabulary import constant


@reads("convolution")
def _any_convolution(site: Site) -> Expr:
    return _convolution(site, transposed=bool(site.args["transposed"]))


@reads("conv1d", "conv2d")
def _plain_convolution(site: Site) -> Expr:
    return _convolution(site)


@reads("conv_transpose2d")
def _transposed_convolution(site: Site) -> Expr:
    return _convolution(site, transposed=True)


def _convolution(site: Site, *, transposed: bool = False) -> Expr:
    data, weight = site.value("input"), site.value("weight")
    rank = len(weight.type.shape) - 2
    require(rank in (1, 2), "dimensions of a convolution", rank, "1 or 2")
    batched = len(data.type.shape) == rank + 2
    require(batched, "dimensions of the data", len(data.type.shape), rank + 2)
    require(not transposed or rank == 2, "dimensions of a transposed convolution", rank, 2)
    spatial = "HW"[-rank:]
    dilation = ints(site.args["dilation"], rank)
    attrs: dict[str, Any] = {
        "strides": ints(site.args["stride"], rank),
        "padding": _padding(site, weight, dilation),
        "dilation": dilation,
        "groups": int(site.args["groups"]),
        "layout": f"NC{spatial}",
        "weight_layout": f"{'IO' if transposed else 'OI'}{spatial}",
        "out_layout": "",
    }
    operator = f"conv{rank}d"
    if transposed:
        operator = "conv2d_transpose"
        attrs["output_padding"] = ints(site.args["output_padding"], rank)
    return _biased(site, site.call(operator, data, weight, **attrs), 1)


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
    """As its statistics are. In training torch folds it into the layer before."""
    mean, variance, weight, bias = (
        site.known(name) for name in ("running_mean", "running_var", "weight", "bias")
    )
    known = mean is not None and variance is not None
    require(known, "statistics of a batch norm", "computed at run time", "known ones")
    assert mean is not None
    assert variance is not None
    factor = (1 if weight is None else weight) / np.sqrt(variance + site.args["eps"])
    term = (0 if bias is None else bias) - mean * factor
    along = (-1, *[1] * (len(site.type.shape) - 2))
    by = constant(np.reshape(factor, along), "float32")
    scaled = site.call("multiply", site.value("input"), by)
    return site.call("bias_add", scaled, constant(term, "float32"), axis=1)


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
    operands = site.value("self"), site.value("mat2")
    return site.call("batch_matmul", *operands, transpose_a=False, transpose_b=False)
