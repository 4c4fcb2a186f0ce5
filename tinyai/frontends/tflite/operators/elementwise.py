"""Operators of two tensors element by element, ReLUs, and what goes from one type to another."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tinyai.frontends.tflite.operators.rows import reads
from tinyai.frontends.tflite.operators.scaled import (
    activated,
    bounded,
    by_element,
    pair,
    to_scale,
)
from tinyai.frontends.tflite.reader import Site
from tinyai.source import Constant, Expr, SourceType, require
from tinyai.vocabulary import constant

_PLAIN = ("int32", "int64")


_BINARY = {"ADD": "add", "SUB": "subtract", "MUL": "multiply"}


@reads("ADD", options="AddOptions", inputs=2)
@reads("SUB", options="SubOptions", inputs=2)
@reads("MUL", options="MulOptions", inputs=2)
def _binary(site: Site) -> Expr:
    site.require_broadcast()
    operator, operands = _BINARY[site.kind], (site.value(0), site.value(1))
    if site.kind in ("ADD", "SUB"):
        site.options("PotScaleInt16")  # of int16 alone
    if site.output.dtype in _PLAIN or not site.is_quantized(0, 1):  # plain ones are shapes
        return activated(site, site.call(operator, *operands))
    scales = *pair(site.tensor(0)), *pair(site.tensor(1)), *pair(site.output)
    return activated(site, site.call(f"quantized_{operator}", *operands, *scales))


@reads("ADD_N", options="AddNOptions", inputs=range(2, 1000))
def _sum(site: Site) -> Expr:
    """From the first on."""
    places = range(len(site.inputs))
    shapes = [site.tensor(place).shape for place in places]
    require({*shapes} == {site.shape}, "shapes of the operands", shapes, [*site.shape])
    require(
        not site.is_quantized(*places), "type", site.output.dtype, "float32, as TFLite's kernel"
    )
    value = site.value(0)
    for place in places[1:]:
        value = site.call("add", value, site.value(place))
    return value


@reads("SQUARED_DIFFERENCE", options="SquaredDifferenceOptions", inputs=2)
def _squared_difference(site: Site) -> Expr:
    """Of integers both sides, 7 places up, at twice the larger scale; their squared difference at
    the output's."""
    site.require_broadcast()
    if not site.is_quantized(0, 1):
        difference = site.call("subtract", site.value(0), site.value(1))
        return site.call("multiply", difference, difference)
    wide, output = site.typed(site.shape, "int32"), site.output
    scales = [site.tensor(place).scale for place in (0, 1)]
    twice = 2 * float(max(scales))
    ratio = twice * twice / float(np.float32(2**14) * output.scale)
    require(ratio < 1, "ratio of the scales", ratio, "below 1, as TFLite's kernel has it")
    left, right = (
        _raised(site, place, 7, float(scale) / twice) for place, scale in enumerate(scales)
    )
    difference = site.call("subtract", left, right, of=wide)
    square = site.call("multiply", difference, difference, of=wide)
    result = site.call("rescale", square, of=wide, ratio=ratio)
    result = site.call("add", result, constant(output.zero_point, "int32"), of=wide)
    ends = np.iinfo(output.dtype)
    result = site.call("clip", result, of=wide, low=float(ends.min), high=float(ends.max))
    return site.call("cast", result, dtype=output.dtype)


def _raised(site: Site, place: int, places: int, ratio: float) -> Expr:
    """An input less its zero point, as int32, so many places up and times ``ratio``."""
    value = site.value(place)
    of = replace(value.type, dtype="int32")
    value = site.call("cast", value, of=of, dtype="int32")
    zero = constant(site.tensor(place).zero_point, "int32")
    value = site.call("subtract", value, zero, of=of)
    value = site.call("left_shift", value, constant(places, "int32"), of=of)
    return site.call("rescale", value, of=of, ratio=ratio)


@reads("MAXIMUM", "MINIMUM", options="MaximumMinimumOptions", inputs=2)
def _picked(site: Site) -> Expr:
    site.require_broadcast()
    site.require_same_scale(0, 1)
    return site.call(site.kind.lower(), site.value(0), site.value(1))


@reads("DIV", options="DivOptions", inputs=2)
def _div(site: Site) -> Expr:
    site.require_broadcast()
    require(not site.is_quantized(0, 1), "type", site.output.dtype, "float32")
    return activated(site, site.call("divide", site.value(0), site.value(1)))


_RELUS = {
    "RELU": (0.0, math.inf),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}


@reads(*_RELUS)
@by_element
def _relu(site: Site) -> Expr:
    """At the output's scale, then bounded there."""
    value = rescaled(site, site.value(0)) if site.is_quantized() else site.value(0)
    return bounded(site, value, *_RELUS[site.kind])


def rescaled(site: Site, value: Expr) -> Expr:
    """The first input at the output's scale; the same where it has that."""
    of, to = site.tensor(0), site.output
    if (of.dtype, of.quant) == (to.dtype, to.quant):
        return value
    return to_scale(site, value, of.scale, of.zero_point)


@reads("PRELU", inputs=2)
def _prelu(site: Site) -> Expr:
    """Two products: of what is above zero by one, and of what is below by the slope. One of them is
    zero, so that they can be added."""
    if not site.is_quantized(0, 1):
        known = site.known(1, "slope")
        fits = known.shape != () and known.size == known.shape[-1]
        require(fits, "shape of the slope", known.shape, "one number a channel")
        axis = len(site.shape) - 1
        return site.call("prelu", site.value(0), constant(known.reshape(-1)), axis=axis)
    site.require_broadcast()
    data, slope, to = site.tensor(0), site.tensor(1), site.output
    value, zero = site.value(0), constant(data.zero_point, data.dtype)
    above = site.call("maximum", value, zero, of=value.type)
    below = site.call("minimum", value, zero, of=value.type)
    one = constant(1, data.dtype), constant(1.0, "float32"), constant(0, "int32")
    wide = SourceType(site.output.type.shape, "int32")
    parts = [
        site.call("quantized_multiply", part, by, *pair(data), *scales, *pair(to))
        for part, by, scales in ((above, one[0], one[1:]), (below, site.value(1), pair(slope)))
    ]
    left, right = (site.call("cast", part, of=wide, dtype="int32") for part in parts)
    total = site.call("add", left, right, of=wide)
    if to.zero_point:
        total = site.call("subtract", total, constant(to.zero_point, "int32"), of=wide)
    return site.call("cast", total, dtype=to.dtype)


@reads("QUANTIZE", options="QuantizeOptions")
@by_element
def _quantize(site: Site) -> Expr:
    value = site.value(0)
    require(site.output.is_quantized, "type", site.output.type, "integers with a scale")
    if site.tensor(0).is_quantized:
        return rescaled(site, value)
    require(value.type.dtype == "float32", "type", value.type.dtype, "float32, or integers")
    return site.call("quantize", value, *pair(site.output), axis=-1)


@reads("DEQUANTIZE", options="DequantizeOptions")
@by_element
def _dequantize(site: Site) -> Expr:
    value, tensor = site.value(0), site.tensor(0)
    require(site.output.dtype == "float32", "type", site.output.dtype, "float32")
    if tensor.dtype == "float16" and isinstance(value, Constant):
        return constant(value.value, "float32")
    require(tensor.is_quantized, "type", tensor.type, "integers with a scale")
    scales = tensor.along(tensor.axis)
    zeros = constant(tensor.zero_point, "int32")
    return site.call("dequantize", value, constant(scales), zeros, axis=tensor.axis)


@reads("DENSIFY", options="DensifyOptions")
def _densify(site: Site) -> Expr:
    """Constants are dense once they are read."""
    value = site.value(0)
    require(isinstance(value, Constant), "weights", "computed at run time", "a constant")
    return value


@reads("CAST", options="CastOptions")
@by_element
def _cast(site: Site) -> Expr:
    """The tensors say from what to what."""
    for field in ("InDataType", "OutDataType"):
        site.options(field)
    value, of = site.value(0), site.output.type
    return value if value.type == of else site.call("cast", value, dtype=of.dtype)
