"""Pairs: what quantizes and dequantizes."""

from __future__ import annotations

import numpy as np

from tinyai.frontends.executorch.operators.rows import reads
from tinyai.frontends.executorch.reader import QUANTIZATION, Site
from tinyai.qdq.operands import NARROW
from tinyai.source import Expr, require
from tinyai.vocabulary import constant


def _require_limits(site: Site) -> None:
    """A quantization ends where its dtype ends."""
    dtype = str(site.args["dtype"]).removeprefix("torch.")
    require(dtype in (*NARROW, "int16"), "dtype of the quantization", dtype, ", ".join(NARROW))
    info = np.iinfo(dtype)
    found = site.args["quant_min"], site.args["quant_max"]
    require(found == (info.min, info.max), "limits", found, (info.min, info.max))


def _scale_and_zero(site: Site) -> tuple[Expr, Expr]:
    pair = site.args["scale"], site.args["zero_point"]
    numbers = all(isinstance(each, int | float) for each in pair)
    require(numbers, "scale", "computed at run time", "a constant")
    return constant(pair[0], "float32"), constant(int(pair[1]), "int32")


@reads("quantize_per_tensor", namespace=QUANTIZATION)
def _quantize(site: Site) -> Expr:
    _require_limits(site)
    return site.call("quantize", site.value("input"), *_scale_and_zero(site), axis=-1)


@reads("dequantize_per_tensor", namespace=QUANTIZATION)
def _dequantize(site: Site) -> Expr:
    return site.call("dequantize", site.value("input"), *_scale_and_zero(site), axis=-1)


@reads("dequantize_per_channel", namespace=QUANTIZATION)
def _dequantize_per_channel(site: Site) -> Expr:
    zeros = site.value("zero_points") if site.args["zero_points"] is not None else constant(0)
    axis = int(site.args["axis"])
    return site.call("dequantize", site.value("input"), site.value("scales"), zeros, axis=axis)
