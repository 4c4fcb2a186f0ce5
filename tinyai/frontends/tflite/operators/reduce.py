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
from tinyai.frontends.tflite.reader import Read, Site
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


def _summing(operator: str) -> Read:
    def read(site: Site) -> Expr:
        attrs: Attributes = {
            "axis": _axes(site),
            "keepdims": bool(site.options("KeepDims")),
            "exclude": False,
        }
        require(bool(attrs["axis"]), "axes", "none", "at least one")
        if not site.is_quantized():
            return site.call(operator, site.value(0), **attrs)
        data, wide = site.tensor(0), site.typed(site.shape, "int32")
        total = site.call(operator, _wide(site), of=wide, **attrs)
        counted = math.prod(data.shape) // math.prod(site.shape) if operator == "sum" else 1
        return to_scale(site, total, data.scale, data.zero_point * counted)

    return read


for _kind in ("MEAN", "SUM"):
    reads(_kind, options="ReducerOptions", inputs=2)(_summing(_kind.lower()))


def _extreme(operator: str) -> Read:
    def read(site: Site) -> Expr:
        axes, keep = _axes(site), bool(site.options("KeepDims"))
        require(bool(axes), "axes", "none", "at least one")
        if site.is_quantized():
            site.require_same_scale()
        return site.call(operator, site.value(0), axis=axes, keepdims=keep, exclude=False)

    return read


for _kind in ("MAX", "MIN"):
    reads(f"REDUCE_{_kind}", options="ReducerOptions", inputs=2)(_extreme(_kind.lower()))


def _place(operator: str) -> Read:
    """The place of the first of the largest, or of the smallest, along one axis."""

    def read(site: Site) -> Expr:
        axes = _axes(site)
        require(len(axes) == 1, "axes", axes, "one")
        site.options("OutputType")  # which the result says too
        attrs: Attributes = {"axis": axes, "keepdims": False, "exclude": False}
        return site.call(operator, site.value(0), **attrs, select_last_index=False)

    return read


for _kind in ("MAX", "MIN"):
    reads(f"ARG_{_kind}", options=f"Arg{_kind.title()}Options", inputs=2)(
        _place(f"arg{_kind.lower()}")
    )
