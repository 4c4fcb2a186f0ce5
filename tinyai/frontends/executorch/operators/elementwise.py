"""Operators that work element by element, or on all elements along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tinyai.frontends.executorch.operators.rows import OTHER, READERS, rank_of, reads, require_float
from tinyai.frontends.executorch.reader import Read, Site
from tinyai.frontends.moves import reshaped
from tinyai.source import Expr, require
from tinyai.vocabulary import constant

aten = torch.ops.aten


def _operand(site: Site, name: str) -> Expr:
    """An operand, numbers as float32."""
    given = site.args[name]
    if isinstance(given, bool | int | float):
        return constant(given, "float32")
    return site.value(name)


def _binary(operator: str) -> Read:
    def read(site: Site) -> Expr:
        require_float(site)
        alpha = site.args.get("alpha", 1)
        require(alpha == 1, "alpha", alpha, 1)
        mode = site.args.get("rounding_mode")
        require(mode is None, "rounding_mode", mode, None)
        return site.call(operator, _operand(site, "self"), _operand(site, "other"))

    return read


def _unary(operator: str) -> Read:
    def read(site: Site) -> Expr:
        require_float(site)
        return site.call(operator, site.value("self"))

    return read


for _aten, _ours in (
    *(("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("div", "divide")),
    *(("maximum", "maximum"), ("minimum", "minimum")),
):
    reads(_aten)(_binary(_ours))
for _aten in ("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "abs", "floor", "ceil"):
    reads(_aten)(_unary(_aten))
reads("erf")(_unary("erf"))
reads("neg")(_unary("negative"))


def _bounded(site: Site, low: Any, high: Any) -> Expr:
    numbers = all(each is None or isinstance(each, int | float) for each in (low, high))
    require(numbers, "bounds", (low, high), "numbers")
    value = site.value("self")
    if low is not None and high is not None:
        return site.call("clip", value, low=float(low), high=float(high))
    for bound, operator in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            value = site.call(operator, value, constant(bound, "float32"))
    return value


@reads("clamp", "clip")
def _clamp(site: Site) -> Expr:
    return _bounded(site, site.args["min"], site.args["max"])


@reads("clamp_min")
def _clamp_min(site: Site) -> Expr:
    return _bounded(site, site.args["min"], None)


@reads("clamp_max")
def _clamp_max(site: Site) -> Expr:
    return _bounded(site, None, site.args["max"])


@reads("hardtanh")
def _hardtanh(site: Site) -> Expr:
    return _bounded(site, site.args["min_val"], site.args["max_val"])


@reads("relu6")
def _relu6(site: Site) -> Expr:
    return _bounded(site, 0, 6)


@reads("leaky_relu")
def _leaky_relu(site: Site) -> Expr:
    return site.call("leaky_relu", site.value("self"), alpha=float(site.args["negative_slope"]))


@reads("prelu", "_prelu_kernel", whole=[aten.prelu.default])
def _prelu(site: Site) -> Expr:
    return site.call("prelu", site.value("self"), site.value("weight"), axis=min(1, rank_of(site)))


@reads("gelu", as_one="function")
def _gelu(site: Site) -> Expr:
    """x * (1 + erf(x / sqrt 2)) / 2, or what torch computes by tanh."""
    if site.args["approximate"] != "none":
        return READERS[OTHER](site)
    value = site.value("self")
    inner = site.call("multiply", value, constant(math.sqrt(0.5), "float32"))
    one = site.call("add", site.call("erf", inner), constant(1, "float32"))
    return site.call("multiply", site.call("multiply", value, constant(0.5, "float32")), one)


@reads("hardsigmoid", whole=[aten.hardsigmoid.default], as_one="function")
def _gate(site: Site) -> Expr:
    """relu6(x + 3) / 6."""
    moved = site.call("add", site.value("self"), constant(3, "float32"))
    bounded = site.call("clip", moved, low=0.0, high=6.0)
    return site.call("multiply", bounded, constant(1 / 6, "float32"))


@reads("hardswish", whole=[aten.hardswish.default], as_one="function")
def _hardswish(site: Site) -> Expr:
    return site.call("multiply", site.value("self"), _gate(site))


@reads("silu", whole=[aten.silu.default], as_one="function")
def _silu(site: Site) -> Expr:
    value = site.value("self")
    return site.call("multiply", value, site.call("sigmoid", value))


@reads("softmax", "_softmax")
def _softmax(site: Site) -> Expr:
    return site.call("softmax", site.value("self"), axis=int(site.args["dim"]))


@reads("log_softmax", "_log_softmax")
def _log_softmax(site: Site) -> Expr:
    return site.call("log_softmax", site.value("self"), axis=int(site.args["dim"]))


@reads("layer_norm", whole=[aten.layer_norm.default])
def _layer_norm(site: Site) -> Expr:
    """Of the last dimensions, together."""
    value, sizes = site.value("input"), site.type.shape
    normed = tuple(site.args["normalized_shape"])
    kept = sizes[: len(sizes) - len(normed)]
    numbers = (
        constant(np.broadcast_to(site.known_or(name, absent), normed).reshape(-1), "float32")
        for name, absent in (("weight", 1), ("bias", 0))
    )
    flat = reshaped(site.call, value, (*kept, math.prod(normed)))
    attrs = {"axis": len(kept), "epsilon": float(site.args["eps"])}
    made = site.call("layer_norm", flat, *numbers, of=flat.type, **attrs)
    return reshaped(site.call, made, sizes)
