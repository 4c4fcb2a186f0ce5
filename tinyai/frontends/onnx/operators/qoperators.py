"""Operators on integers of ``com.microsoft``, which ONNX Runtime computes in floats: between a
dequantize and a quantize."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tinyai.frontends.onnx.operators.elementwise import combined, softmax
from tinyai.frontends.onnx.operators.pooling import of_whole_images, pooled
from tinyai.frontends.onnx.operators.rows import pair_of, reads_contrib, scale_of, zero_of
from tinyai.frontends.onnx.reader import Site, fixed_sizes
from tinyai.qdq.operands import tuple_of
from tinyai.source import Expr, require
from tinyai.vocabulary import constant


def _floats(site: Site, place: int) -> Expr:
    """An operand with its scale and zero point behind it, as floats."""
    data = site.expr(place)
    pair = pair_of(site, place + 1, data.type.dtype)
    return site.call("dequantize", data, *pair, of=replace(data.type, dtype="float32"), axis=-1)


def _integers(site: Site, value: Expr, place: int) -> Expr:
    """The result, whose scale is in this place; of the dtype of its zero point, else the data's."""
    dtype = site.facts.dtype(site.operand(place + 1)) or site.expr(0).type.dtype
    of = replace(value.type, dtype=dtype)
    return site.call("quantize", value, *pair_of(site, place), of=of, axis=-1)


@reads_contrib("QLinearAdd", "QLinearMul")
def _binary(site: Site) -> Expr:
    operator = "add" if site.node.op_type == "QLinearAdd" else "multiply"
    return _integers(site, combined(site, operator, _floats(site, 0), _floats(site, 3)), 6)


@reads_contrib("QLinearLeakyRelu", alpha=0.01)
def _leaky_relu(site: Site) -> Expr:
    value = _floats(site, 0)
    made = site.call("leaky_relu", value, of=value.type, alpha=float(site.attr("alpha")))
    return _integers(site, made, 3)


@reads_contrib("QLinearSigmoid")
def _sigmoid(site: Site) -> Expr:
    value = _floats(site, 0)
    return _integers(site, site.call("sigmoid", value, of=value.type), 3)


@reads_contrib("QLinearSoftmax", axis=-1, opset=0)
def _softmax(site: Site) -> Expr:
    made = softmax(site, _floats(site, 0), "softmax", int(site.attr("opset")))
    return _integers(site, made, 3)


@reads_contrib(
    "QLinearAveragePool",
    auto_pad="NOTSET",
    ceil_mode=0,
    channels_last=0,
    count_include_pad=0,
)
def _average_pool(site: Site) -> Expr:
    last = bool(site.attr("channels_last"))
    return _integers(site, pooled(site, _floats(site, 0), "avg_pool", channels_last=last), 3)


@reads_contrib("QLinearGlobalAveragePool", channels_last=0)
def _global_average_pool(site: Site) -> Expr:
    last = bool(site.attr("channels_last"))
    made = of_whole_images(site, _floats(site, 0), "avg", channels_last=last)
    return _integers(site, made, 3)


@reads_contrib("QLinearConcat")
def _concat(site: Site) -> Expr:
    places = range(2, len(site.node.input), 3)
    parts = [site.expr(place) for place in places]
    scales = [scale_of(site, place + 1) for place in places]
    zeros = [zero_of(site, place + 2, site.expr(place).type.dtype) for place in places]
    sizes, axis = [fixed_sizes(part) for part in parts], site.attr("axis")
    require(axis is not None and bool(sizes), "parts and axis", (len(sizes), axis), "some and one")
    along = int(axis) % len(sizes[0])
    shape = list(sizes[0])
    shape[along] = sum(each[along] for each in sizes)
    of = replace(parts[0].type, shape=tuple(shape))
    tuples = (tuple_of(*each) for each in (parts, scales, zeros))
    return site.call("quantized_concatenate", *tuples, *pair_of(site, 0), of=of, axis=along)


@reads_contrib("QLinearWhere")
def _where(site: Site) -> Expr:
    """By a constant condition: each side on the result's grid, where it is not taken times 0."""
    condition = site.value(0, "condition")
    sides = []
    for place, taken in ((1, condition), (4, ~condition)):
        side = _integers_at(site, place)
        shape = np.broadcast_shapes(fixed_sizes(side), condition.shape)
        wide = site.call("cast", side, of=replace(side.type, dtype="int32"), dtype="int32")
        factor = constant(taken.astype(np.int32))
        of = replace(wide.type, shape=shape)
        sides.append(site.call("multiply", wide, factor, of=of))
    shape = np.broadcast_shapes(*(fixed_sizes(side) for side in sides))
    total = site.call("add", *sides, of=replace(sides[0].type, shape=shape))
    dtype = site.facts.dtype(site.operand(8))
    return site.call("cast", total, of=replace(total.type, dtype=dtype), dtype=dtype)


def _integers_at(site: Site, place: int) -> Expr:
    return _integers(site, _floats(site, place), 7)
