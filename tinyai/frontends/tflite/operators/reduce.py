"""Poolings, and what sums or picks along axes."""

from __future__ import annotations

import math
from dataclasses import replace

from tinyai.frontends.tflite.operators.rows import reads
from tinyai.frontends.tflite.operators.scaled import (
    Attributes,
    activated,
    axes_of,
    image_shape,
    to_scale,
    windows,
)
from tinyai.frontends.tflite.reader import Site
from tinyai.source import Expr, require


def _window(site: Site) -> Attributes:
    kernel = site.options("FilterHeight"), site.options("FilterWidth")
    strides = site.options("StrideH"), site.options("StrideW")
    require(min(kernel) > 0, "window", kernel, "1 by 1 and more")
    return {
        "kernel": kernel,
        "strides": strides,
        "padding": windows(site, image_shape(site.tensor(0))[1:3], kernel, strides),
        "dilation": (1, 1),
        "ceil_mode": False,
        "layout": "NHWC",
        "out_layout": "",
    }


@reads("MAX_POOL_2D", options="Pool2DOptions")
def _max_pool(site: Site) -> Expr:
    site.require_same_scale()
    return activated(site, site.call("max_pool2d", site.value(0), **_window(site)))


@reads("AVERAGE_POOL_2D", options="Pool2DOptions")
def _average_pool(site: Site) -> Expr:
    """Of integers an average that is rounded; what lies outside of the image does not count."""
    site.require_same_scale()
    attrs = _window(site) | {"count_include_pad": False}
    if not site.is_quantized():
        return activated(site, site.call("avg_pool2d", site.value(0), **attrs))
    average = site.call("avg_pool2d", _wide(site), of=site.typed(site.shape, "int32"), **attrs)
    return activated(site, site.call("cast", average, dtype=site.output.dtype))


def _wide(site: Site) -> Expr:
    value = site.value(0)
    return site.call("cast", value, of=replace(value.type, dtype="int32"), dtype="int32")


def _axes(site: Site) -> tuple[int, ...]:
    return axes_of(site.known(1, "axes"), len(site.tensor(0).shape))


def _reduced(site: Site) -> Attributes:
    axes = _axes(site)
    require(bool(axes), "axes", "none", "at least one")
    return {"axis": axes, "keepdims": bool(site.options("KeepDims")), "exclude": False}


@reads("MEAN", "SUM", options="ReducerOptions", inputs=2)
def _summing(site: Site) -> Expr:
    operator, attrs = site.kind.lower(), _reduced(site)
    if not site.is_quantized():
        return site.call(operator, site.value(0), **attrs)
    data, wide = site.tensor(0), site.typed(site.shape, "int32")
    total = site.call(operator, _wide(site), of=wide, **attrs)
    counted = math.prod(data.shape) // math.prod(site.shape) if operator == "sum" else 1
    return to_scale(site, total, data.scale, data.zero_point * counted)


@reads("REDUCE_MAX", "REDUCE_MIN", options="ReducerOptions", inputs=2)
def _extreme(site: Site) -> Expr:
    attrs = _reduced(site)
    if site.is_quantized():
        site.require_same_scale()
    return site.call(site.kind.removeprefix("REDUCE_").lower(), site.value(0), **attrs)


@reads("ARG_MAX", options="ArgMaxOptions", inputs=2)
@reads("ARG_MIN", options="ArgMinOptions", inputs=2)
def _place(site: Site) -> Expr:
    """The place of the first of the largest, or of the smallest, along one axis."""
    axes, operator = _axes(site), site.kind.replace("_", "").lower()
    require(len(axes) == 1, "axes", axes, "one")
    site.options("OutputType")  # which the result says too
    attrs: Attributes = {"axis": axes, "keepdims": False, "exclude": False}
    return site.call(operator, site.value(0), **attrs, select_last_index=False)
