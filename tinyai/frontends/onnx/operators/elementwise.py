"""Operators that work element by element, or on all elements along an axis."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from tinyai.frontends.onnx.facts import dtype_of
from tinyai.frontends.onnx.operators.rows import reads, reads_contrib
from tinyai.frontends.onnx.reader import Site, Spelled, broadcast, evaluated, fixed_sizes
from tinyai.ir import Array
from tinyai.ops.normalize import l2_factor
from tinyai.source import Expr, SourceType, require
from tinyai.vocabulary import constant


def _number(value: float) -> Expr:
    return constant(value, "float32")


def combined(site: Site, operator: str, left: Expr, right: Expr, dtype: str = "") -> Expr:
    """Of operands that broadcast; ``dtype`` is the result's, where it is another one."""
    shape = broadcast(site, left, right)
    return site.call(operator, left, right, of=SourceType(shape, dtype or left.type.dtype))


_SEVERAL = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "Sum": "add",
    "Max": "maximum",
    "Min": "minimum",
}


@reads(*_SEVERAL)
def _several(site: Site) -> Expr:
    operator = _SEVERAL[site.node.op_type]
    return reduce(lambda left, right: combined(site, operator, left, right), site.exprs())


@reads(*("Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Abs", "Floor", "Ceil", "Erf", "Neg"))
def _unary(site: Site) -> Expr:
    name = site.node.op_type.lower()
    return site.call("negative" if name == "neg" else name, site.expr(0), of=site.expr(0).type)


@reads("Clip")
def _clip(site: Site) -> Expr:
    value = site.expr(0)
    ends: list[Any] = [site.attr(name) for name in ("min", "max")]
    for place in (0, 1):
        if site.has(1 + place):
            known = site.known(1 + place)
            ends[place] = site.expr(1 + place) if known is None else float(known.reshape(()))
    for place, operator in enumerate(("maximum", "minimum")):
        if isinstance(ends[place], Expr):
            value, ends[place] = combined(site, operator, value, ends[place]), None
    if ends == [None, None]:
        return value
    floats = value.type.dtype.startswith("float")
    limits: Any = np.finfo("float32") if floats else np.iinfo(value.type.dtype)
    low, high = (
        float(end if end is not None else limit)
        for end, limit in zip(ends, (limits.min, limits.max), strict=True)
    )
    return site.call("clip", value, of=value.type, low=low, high=high)


@reads("LeakyRelu")
def _leaky_relu(site: Site) -> Expr:
    value = site.expr(0)
    return site.call("leaky_relu", value, of=value.type, alpha=float(site.attr("alpha")))


@reads("PRelu")
def _prelu(site: Site) -> Expr:
    """With a slope for all, or for each element along one dimension."""
    value, slope = site.expr(0), site.real(1, "slope")
    rank = len(value.type.shape)
    if slope.size == 1:
        return site.call("leaky_relu", value, of=value.type, alpha=float(slope.reshape(())))
    sizes = (*[1] * (rank - slope.ndim), *slope.shape)
    along = [axis for axis, size in enumerate(sizes) if size > 1]
    fits = len(along) == 1 and len(sizes) == rank and value.type.shape[along[0]] == slope.size
    require(fits, "slopes", slope.shape, f"one, or along a dimension of {value.type}")
    slopes = constant(slope.reshape(-1), "float32")
    return site.call("prelu", value, slopes, of=value.type, axis=along[0])


@reads("HardSigmoid")
def _gate(site: Site) -> Expr:
    return _gated(site, float(site.attr("alpha")), float(site.attr("beta")))


@reads("HardSwish")
def _hard_swish(site: Site) -> Expr:
    value = site.expr(0)
    return site.call("multiply", value, _gated(site, 1 / 6, 0.5), of=value.type)


def _gated(site: Site, factor: float, term: float) -> Expr:
    """A line, within 0 and 1."""
    value = site.expr(0)
    line = site.call("multiply", value, _number(factor), of=value.type)
    line = site.call("add", line, _number(term), of=value.type)
    return site.call("clip", line, of=value.type, low=0.0, high=1.0)


@reads("Gelu")
@reads_contrib("Gelu")
def _gelu(site: Site) -> Expr:
    """x * (1 + erf(x / sqrt 2)) / 2, or what tanh makes of it."""
    if site.attr("approximate", "none") != "none":
        return _function(site)
    value = site.expr(0)
    inner = site.call("multiply", value, _number(math.sqrt(0.5)), of=value.type)
    one = site.call("add", site.call("erf", inner, of=value.type), _number(1), of=value.type)
    half = site.call("multiply", value, _number(0.5), of=value.type)
    return site.call("multiply", half, one, of=value.type)


@reads("Swish")
@reads_contrib("QuickGelu", alpha=1.702)
def _swish(site: Site) -> Expr:
    """x * sigmoid(alpha * x)."""
    value, alpha = site.expr(0), float(site.attr("alpha"))
    inner = value
    if alpha != 1:
        inner = site.call("multiply", value, _number(alpha), of=value.type)
    gate = site.call("sigmoid", inner, of=value.type)
    return site.call("multiply", value, gate, of=value.type)


@reads(
    *("Celu", "Cos", "Elu", "Mish", "Pow", "Reciprocal", "Round", "Selu", "Shrink", "Sign", "Sin"),
    *("Softplus", "Softsign", "Tan", "ThresholdedRelu"),
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh"),
)
def _function(site: Site) -> Expr:
    """Any function of one value: onnx's reference implementation computes its table."""
    import onnx

    value, node, opset = site.expr(0), site.node, site.facts.opset
    numbers = {}
    for place in range(1, len(node.input)):
        known = site.value(place, f"operand {place}")
        require(known.size == 1, f"operand {place}", f"{known.size} numbers", "one number")
        numbers[site.operand(place)] = known
    if node.op_type == "Pow" and all(power == 2 for power in numbers.values()):
        return site.call("square", value, of=value.type)
    attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    for name in attrs:
        site.attr(name)
    said = [*(f"{k}={v}" for k, v in attrs.items()), *(repr(n.item()) for n in numbers.values())]

    def compute(values: Array) -> Array:
        operands = {node.input[0]: np.asarray(values, np.float32), **numbers}
        return evaluated(node, operands, opset)[0]

    label = f"{node.op_type}({', '.join(['x', *said])})"
    made = site.call("function", value, of=value.type, label=label, compute=compute)
    return replace(made, origin=Spelled(node, numbers))


@reads("Softmax")
def _softmax(site: Site) -> Expr:
    return softmax(site, site.expr(0), "softmax", site.facts.opset)


@reads("LogSoftmax")
def _log_softmax(site: Site) -> Expr:
    return softmax(site, site.expr(0), "log_softmax", site.facts.opset)


def _axis(site: Site, rank: int) -> int:
    """From the front."""
    axis = int(site.attr("axis"))
    require(-rank <= axis < rank, "axis", axis, f"one of {rank} dimensions")
    return axis % rank


def softmax(site: Site, value: Expr, operator: str, opset: int) -> Expr:
    """Along an axis; before opset 13 of all dimensions from the axis on, together."""
    sizes = fixed_sizes(value)
    axis = _axis(site, len(sizes))
    if opset >= 13 or axis == len(sizes) - 1:
        return site.call(operator, value, of=value.type, axis=axis)
    flat = site.reshaped(value, (math.prod(sizes[:axis]), math.prod(sizes[axis:])))
    return site.reshaped(site.call(operator, flat, of=flat.type, axis=1), sizes)


@reads("LayerNormalization", "RMSNormalization")
def _layer_norm(site: Site) -> Expr:
    """Of all dimensions from the axis on, together."""
    sizes = fixed_sizes(site.expr(0))
    axis = _axis(site, len(sizes))
    others = [name for name in site.node.output[1:] if name]
    require(not others, "results", f"also {', '.join(others)}", "the normalized values alone")
    stash = dtype_of(int(site.attr("stash_type")))
    require(stash == "float32", "stash_type", stash, "float32")
    gamma = site.real(1, "scale")
    beta = site.real(2, "bias") if site.has(2) else np.zeros(())
    try:
        numbers = [np.broadcast_to(each, sizes[axis:]).reshape(-1) for each in (gamma, beta)]
    except ValueError:
        whole = f"shapes that broadcast to {sizes[axis:]}"
        site.refuse(f"scale {gamma.shape}, bias {beta.shape}", whole)
    operator = "layer_norm" if site.node.op_type == "LayerNormalization" else "rms_norm"
    return _normed(site, operator, (*sizes[:axis], math.prod(sizes[axis:])), *numbers)


@reads("InstanceNormalization", "GroupNormalization")
def _group_norm(site: Site) -> Expr:
    """Of all places of a channel, or of a group of channels, together."""
    sizes = fixed_sizes(site.expr(0))
    require(len(sizes) >= 3, "rank of the input", len(sizes), "at least 3")
    batch, channels = sizes[:2]
    groups = int(site.attr("num_groups", channels))
    require(groups > 0 and channels % groups == 0, "groups", groups, f"a part of {channels}")
    if site.node.op_type == "GroupNormalization":
        stash = dtype_of(int(site.attr("stash_type", 1)))
        require(stash == "float32", "stash_type", stash, "float32")
    apart, places = channels // groups, math.prod(sizes[2:])
    numbers = []
    for place, what in ((1, "scale"), (2, "bias")):
        known = site.real(place, what)
        # Before opset 21 a GroupNormalization had one for each group.
        fits = known.shape in ((channels,), (groups,))
        require(fits, "numbers of channels", known.shape, f"({channels},)")
        each = np.repeat(known, channels // len(known)).reshape(groups, apart, 1)
        numbers.append(np.broadcast_to(each, (groups, apart, places)).reshape(groups, -1))
    if apart == 1:
        numbers = [each[:, :1] for each in numbers]
    return _normed(site, "layer_norm", (batch, groups, apart * places), *numbers)


# float32 has none that is much less.
_LEAST = 1e-37


@reads("LpNormalization")
def _lp_norm(site: Site) -> Expr:
    """Divided by the root of the sum of squares, which is an RMS norm but for a factor. With an
    epsilon zeros stay zeros."""
    value, power = site.expr(0), int(site.attr("p"))
    require(power == 2, "p", power, 2)
    sizes = fixed_sizes(value)
    axis = _axis(site, len(sizes))
    numbers = constant(l2_factor(sizes[axis])), constant(0, "float32")
    return site.call("rms_norm", value, *numbers, of=value.type, axis=axis, epsilon=_LEAST)


def _normed(site: Site, operator: str, flat: tuple[int, ...], gamma: Array, beta: Array) -> Expr:
    """A norm along the last dimension of the first operand in the shape ``flat``."""
    value = site.reshaped(site.expr(0), flat)
    numbers = (constant(each, "float32") for each in (gamma, beta))
    attrs = {"axis": len(flat) - 1, "epsilon": float(site.attr("epsilon"))}
    made = site.call(operator, value, *numbers, of=value.type, **attrs)
    return site.reshaped(made, fixed_sizes(site.expr(0)))
