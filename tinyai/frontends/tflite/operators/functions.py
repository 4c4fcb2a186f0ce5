"""Functions of one value, and softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyai.frontends.tflite.operators.rows import reads
from tinyai.frontends.tflite.operators.scaled import (
    NONE,
    by_element,
    float_type,
    of_floats,
    pair,
)
from tinyai.frontends.tflite.reader import Site
from tinyai.ir import Array
from tinyai.ops.functions import FRAMEWORK_FUNCTIONS, FUNCTIONS
from tinyai.ops.normalize import LEAST_SQUARES, l2_factor
from tinyai.ops.scales import fixed_point
from tinyai.ops.steps import FixedPointMultiply
from tinyai.source import Expr, require
from tinyai.vocabulary import constant


@reads("LOGISTIC", "TANH")
@by_element
def _function(site: Site) -> Expr:
    """A function of the vocabulary, of floats or as TFLite's kernel of int8 has it."""
    operator = "tanh" if site.kind == "TANH" else "sigmoid"
    return of_floats(site, lambda x: site.call(operator, x, of=float_type(site)))


@reads("FLOOR", "CEIL", "SQRT")
@reads("NEG", options="NegOptions")
@reads("SQUARE", options="SquareOptions")
@by_element
def _of_floats_alone(site: Site) -> Expr:
    require(not site.is_quantized(), "type", site.output.dtype, "float32, as TFLite's kernel")
    value = site.value(0)
    if site.kind == "SQUARE":
        return site.call("multiply", value, value)
    return site.call("negative" if site.kind == "NEG" else site.kind.lower(), value)


@reads("SOFTMAX", options="SoftmaxOptions")
@by_element
def _softmax(site: Site) -> Expr:
    """Along the last dimension, of values times beta."""
    beta, quantized = np.float32(site.options("Beta")), site.is_quantized()
    value, axis = site.value(0), len(site.shape) - 1
    if quantized:
        tensor = site.tensor(0)
        scale = np.float64(beta) * np.float64(tensor.scale)
        exact = scale == np.float32(scale) and scale > 0
        require(bool(exact), "beta", float(beta), "1, or a power of 2")
        scales = constant(scale, "float32"), constant(tensor.zero_point, "int32")
        value = site.call("dequantize", value, *scales, of=float_type(site), axis=-1)
    elif beta != 1:
        value = site.call("multiply", value, constant(beta))
    result = site.call("softmax", value, of=float_type(site), axis=axis)
    return site.call("quantize", result, *pair(site.output), axis=-1) if quantized else result


@reads("LOG_SOFTMAX", options="LogSoftmaxOptions")
@by_element
def _log_softmax(site: Site) -> Expr:
    axis = len(site.shape) - 1
    return of_floats(site, lambda x: site.call("log_softmax", x, of=float_type(site), axis=axis))


@reads("L2_NORMALIZATION", options="L2NormOptions")
@by_element
def _l2_norm(site: Site) -> Expr:
    """Along the last dimension. With an epsilon zeros stay zeros."""
    activation, axis = site.options("FusedActivationFunction"), len(site.shape) - 1
    require(activation == NONE, "fused activation", activation, "none, as TFLite's kernel")
    require(len(site.shape) > 0, "dimensions", len(site.shape), "one or more")
    count = site.shape[axis]
    numbers, epsilon = (constant(l2_factor(count)), constant(0, "float32")), LEAST_SQUARES / count

    def function(x: Expr) -> Expr:
        return site.call("rms_norm", x, *numbers, of=float_type(site), axis=axis, epsilon=epsilon)

    return of_floats(site, function)


@reads("HARD_SWISH", options="HardSwishOptions")
@by_element
def _hard_swish(site: Site) -> Expr:
    """x * relu6(x + 3) / 6."""

    def function(x: Expr) -> Expr:
        of = float_type(site)
        moved = site.call("add", x, constant(3, "float32"), of=of)
        gate = site.call("clip", moved, of=of, low=0.0, high=6.0)
        product = site.call("multiply", x, gate, of=of)
        return site.call("divide", product, constant(6, "float32"), of=of)

    return of_floats(site, function)


@reads("LEAKY_RELU", options="LeakyReluOptions")
@by_element
def _leaky_relu(site: Site) -> Expr:
    alpha = float(site.options("Alpha"))
    return of_floats(site, lambda x: site.call("leaky_relu", x, of=float_type(site), alpha=alpha))


# --- Tables of int8 ------------------------------------------------------------------------------
# TFLite's kernels fill them with a function of floats: ``x * scale`` and ``1 / scale`` in float32,
# halves away from zero. Each was compared with LiteRT.

_ONE, _HALF = np.float32(1), np.float32(0.5)


def _elu(x: Array) -> Array:
    return np.where(x < 0, np.expm1(x.astype(np.float64)), x).astype(np.float32)


def _gelu(x: Array) -> Array:
    return np.asarray(_HALF * x * (_ONE + FUNCTIONS["erf"](x * np.float32(0.5**0.5))))


def _gelu_by_tanh(x: Array) -> Array:
    steep = np.float32(np.sqrt(2 / np.pi))
    inner = steep * x * (_ONE + np.float32(0.044715) * x * x)
    return np.asarray(_HALF * x * (_ONE + FRAMEWORK_FUNCTIONS["tanhf"](inner)))


def _log(x: Array) -> Array:
    """The smallest of all integers where there is no logarithm."""
    with np.errstate(all="ignore"):
        return np.where(x > 0, FUNCTIONS["log"](x), np.float32(-1e30))


def _tabulated(site: Site, label: str, compute: Callable[[Array], Array]) -> Expr:
    """A function of floats by what it computes; of integers it becomes a table."""
    of = float_type(site)
    if site.is_quantized():
        data, ends = site.tensor(0), np.iinfo(site.tensor(0).dtype)
        steps = np.arange(ends.min, ends.max + 1) - data.zero_point
        results = compute(steps.astype(np.float32) * data.scale) / site.output.scale
        fits = bool((results < 2**30).all())  # TFLite's kernel casts these to int32
        require(fits, "results in steps of the scale", float(results.max()), "below 2**30")
    return of_floats(site, lambda x: site.call("function", x, of=of, label=label, compute=compute))


def _in_float64(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function whose results are those of float64, rounded to float32."""
    return lambda x: np.asarray(function(x.astype(np.float64)), np.float32)


_OF_FLOATS: dict[str, Callable[[Array], Array]] = {
    "cos": _in_float64(np.cos),
    "round": _in_float64(np.rint),  # halves to even
    "sign": _in_float64(np.sign),
    "sin": _in_float64(np.sin),
}


@reads("ROUND", "SIN")
@reads("COS", options="CosOptions")
@reads("SIGN", options="SignOptions")
@by_element
def _function_of_floats(site: Site) -> Expr:
    require(not site.is_quantized(), "type", site.output.dtype, "float32, as TFLite's kernel")
    name = site.kind.lower()
    return _tabulated(site, f"{name}(x)", _OF_FLOATS[name])


_TABLES: dict[str, Callable[[Array], Array]] = {
    "elu": _elu,
    "gelu": _gelu,
    "gelu_by_tanh": _gelu_by_tanh,
    "exp": FUNCTIONS["exp"],
    "log": _log,
}


@reads("ELU", "LOG")
@reads("EXP", options="ExpOptions")
@reads("GELU", options="GeluOptions")
@by_element
def _table(site: Site) -> Expr:
    by_tanh = site.kind == "GELU" and site.options("Approximate")
    name = "gelu_by_tanh" if by_tanh else site.kind.lower()
    return _tabulated(site, f"{name}(x)", _TABLES[name])


def _of_steps(site: Site, label: str, function: Callable[[Array], Array]) -> Expr:
    """A table that TFLite's kernel fills in integers: ``function`` of int32 steps above the zero
    point, in steps of the output's scale."""
    of, to = site.tensor(0).scale, site.output.scale

    def compute(x: Array) -> Array:
        return np.asarray(function(np.rint(x / of).astype(np.int32)) * to, np.float32)

    label = f"{label} from {of!r} to {to!r}"
    return of_floats(
        site,
        lambda x: site.call("function", x, of=float_type(site), label=label, compute=compute),
    )


def _fixed(site: Site, ratio: float, shift: int = 0) -> FixedPointMultiply:
    """A product in fixed point, less so many places."""
    multiplier, places = fixed_point(ratio)
    fits = -31 <= places - shift <= 30
    require(fits, "ratio of the scales", f"2**{places}", f"2**{shift - 31} .. 2**{shift + 30}")
    return FixedPointMultiply((multiplier,), (places - shift,), None, "twice")


@reads("ABS", options="AbsOptions")
@by_element
def _read_abs(site: Site) -> Expr:
    """Of integers a product in fixed point, but where the scales are the same."""
    if not site.is_quantized():
        return site.call("abs", site.value(0))
    of, to = site.tensor(0).scale, site.output.scale
    if of == to:
        return _of_steps(site, "abs(x)", np.abs)
    step = _fixed(site, float(of / to))
    return _of_steps(site, "abs(x)", lambda steps: step.reference(np.abs(steps), None))


@reads("RSQRT")
@by_element
def _read_rsqrt(site: Site) -> Expr:
    """Of integers 1 / sqrt with 20 bits behind the point; of 0 the largest integer."""
    if not site.is_quantized():
        return site.call("rsqrt", site.value(0))
    zero = site.tensor(0).zero_point
    require(zero == -128, "zero point of RSQRT's input", zero, "-128: there is no root below zero")
    ratio = 1 / float(np.sqrt(site.tensor(0).scale) * site.output.scale)
    step = _fixed(site, ratio, 20)

    def function(steps: Array) -> Array:
        roots = np.rint(2**20 / np.sqrt(np.maximum(steps, 1))).astype(np.int32)
        return np.where(steps > 0, step.reference(roots, None), 255)

    return _of_steps(site, "1 / sqrt(x)", function)
