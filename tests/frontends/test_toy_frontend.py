"""A second front end: a toy graph language with quantize/dequantize pairs, from text to C.

Nothing outside of this file knows it. Its text has one operator a line, as *name type operator
arguments*; numbers among the arguments are constants. It holds no arithmetic: pairs become
integers, and integers a graph, as they do for Relay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from tests.support.cases import assert_same
from tinyai.errors import UnsupportedError
from tinyai.ir import Array
from tinyai.lowering import graph_of, refusal_of_operator
from tinyai.qdq import FloatOperator, Rewriting
from tinyai.qdq.operands import float_calls
from tinyai.runtime.runner import Runner
from tinyai.source import Call, Expr, Rounding, SourceType
from tinyai.target import Target
from tinyai.vocabulary import call, constant

# --- The front end -----------------------------------------------------------------------------

WINDOW = {"strides": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1)}
LAYOUT = {"layout": "NHWC", "out_layout": ""}
POOLING = {"kernel": (2, 2), "strides": (2, 2), "padding": (0, 0, 0, 0), "dilation": (1, 1)}
VOCABULARY: dict[str, tuple[str, dict[str, object]]] = {
    "q": ("quantize", {"axis": -1}),
    "dq": ("dequantize", {"axis": -1}),
    "dqw": ("dequantize", {"axis": 0}),
    "conv": ("conv2d", {**WINDOW, **LAYOUT, "groups": 1, "weight_layout": "OHWI"}),
    "bias": ("bias_add", {"axis": -1}),
    "pool": ("max_pool2d", {**POOLING, **LAYOUT, "ceil_mode": False}),
    "mean": ("mean", {"axis": (1, 2), "keepdims": False, "exclude": False}),
    "dense": ("dense", {}),
    "relu": ("relu", {}),
    "abs": ("abs", {}),
    "add": ("add", {}),
    "exp": ("exp", {}),
}
ARITHMETIC = Rounding("onnx")  # round once, halves to even


def read(text: str, weights: Mapping[str, Array]) -> tuple[list[Expr], Expr]:
    """The inputs and the last value of a network."""
    values: dict[str, Expr] = {name: constant(value) for name, value in weights.items()}
    inputs: list[Expr] = []
    for line in text.strip().splitlines():
        name, of, operator, *args = line.split()
        dtype, dims = of.rstrip("]").split("[")
        kind = SourceType(tuple(map(int, dims.split(","))), dtype)
        if operator == "input":
            inputs.append(values.setdefault(name, Expr((kind,))))
            continue
        operands = [
            values[arg]
            if arg in values
            else constant(
                float(arg) if "." in arg else int(arg), "float32" if "." in arg else "int32"
            )
            for arg in args
        ]
        ours, attributes = VOCABULARY[operator]
        values[name] = call(ours, kind, *operands, name=name, **attributes)
    return inputs, values[name]


def compiled(text: str, weights: Mapping[str, Array], target: Target) -> Runner:
    inputs, result = read(text, weights)
    integers = Rewriting(result, ARITHMETIC).result
    return Runner(graph_of("toy", inputs, integers, ARITHMETIC), target)


# --- What its networks mean --------------------------------------------------------------------


def convolved(x: Array, weight: Array) -> Array:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.einsum("nhwcij,oijc->nhwo", windows, weight)


def quantized(x: Array, scale: Array, zero: Array) -> Array:
    return np.clip(np.rint(x / scale) + zero, -128, 127).astype(np.int8)


def dequantized(q: Array, scale: Array, zero: Array) -> Array:
    along = np.reshape(scale, (-1, *(1,) * (q.ndim - 1))) if np.ndim(scale) else scale
    return np.asarray((q.astype(np.float64) - zero) * along)


def pooled(x: Array) -> Array:
    n, h, w, c = x.shape
    return x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))


MEANING: dict[str, Callable[..., Array]] = {
    "q": quantized,
    "dq": dequantized,
    "dqw": dequantized,
    "conv": convolved,
    "bias": np.add,
    "pool": pooled,
    "mean": lambda x: x.mean(axis=(1, 2)),
    "dense": lambda x, weight: x @ weight.T,
    "relu": lambda x: np.maximum(x, 0),
    "abs": np.abs,
    "add": np.add,
}


def meant(text: str, weights: Mapping[str, Array], **inputs: Array) -> Array:
    """In float64, in which all of it is exact: scales are powers of two."""
    values: dict[str, Array] = {**weights, **inputs}
    for line in text.strip().splitlines():
        name, _, operator, *args = line.split()
        if operator != "input":
            operands = [values[arg] if arg in values else np.float64(arg) for arg in args]
            values[name] = MEANING[operator](*operands)
    return values[name]


# --- Networks ----------------------------------------------------------------------------------

NETWORK = """
x  int8[2,9,8,3]      input
xf float32[2,9,8,3]   dq    x 0.0625 3
w1 float32[20,3,3,3]  dqw   k1 s1 0
c1 float32[2,9,8,20]  conv  xf w1
b1 float32[2,9,8,20]  bias  c1 a1
r1 float32[2,9,8,20]  relu  b1
q1 int8[2,9,8,20]     q     r1 0.0625 -128
d1 float32[2,9,8,20]  dq    q1 0.0625 -128
w2 float32[20,3,3,20] dq    k2 0.015625 0
c2 float32[2,9,8,20]  conv  d1 w2
q2 int8[2,9,8,20]     q     c2 2.0 5
d2 float32[2,9,8,20]  dq    q2 2.0 5
s  float32[2,9,8,20]  add   d1 d2
q3 int8[2,9,8,20]     q     s  1.0 -7
d3 float32[2,9,8,20]  dq    q3 1.0 -7
m  float32[2,9,8,20]  abs   d3
q4 int8[2,9,8,20]     q     m  0.5 -128
d4 float32[2,9,8,20]  dq    q4 0.5 -128
p  float32[2,4,4,20]  pool  d4
q5 int8[2,4,4,20]     q     p  0.5 -128
d5 float32[2,4,4,20]  dq    q5 0.5 -128
g  float32[2,20]      mean  d5
q6 int8[2,20]         q     g  0.25 -128
d6 float32[2,20]      dq    q6 0.25 -128
w3 float32[7,20]      dq    k3 0.0078125 0
f  float32[2,7]       dense d6 w3
q7 int8[2,7]          q     f  1.0 10
"""
RNG = np.random.default_rng(5)


def small(*shape: int) -> Array:
    return RNG.integers(-40, 41, shape).astype(np.int8)


SCALES = np.float32(2.0) ** RNG.integers(-7, -4, 20).astype(np.float32)
WEIGHTS: dict[str, Array] = {
    "k1": small(20, 3, 3, 3),
    "k2": small(20, 3, 3, 20),
    "k3": small(7, 20),
    "s1": SCALES,
    # Whole steps of the sums.
    "a1": (RNG.integers(-3000, 3000, 20) * SCALES * np.float32(0.0625)).astype(np.float32),
}


@pytest.mark.parametrize("isa", ["scalar", "auto"])
def test_a_network_of_the_toy_language_reaches_c_and_computes_what_it_means(isa: str) -> None:
    image = RNG.integers(-128, 128, (2, 9, 8, 3)).astype(np.int8)
    expected = meant(NETWORK, WEIGHTS, x=image)
    assert np.unique(expected).size > 10
    runner = compiled(NETWORK, WEIGHTS, Target(isa=isa))
    assert_same(runner(image)[0], expected, "the C, and the network in float64")


def test_nothing_of_the_network_stays_float_but_the_function_of_single_values() -> None:
    _, result = read(NETWORK, WEIGHTS)
    integers = Rewriting(result, ARITHMETIC).result
    again = Rewriting(integers, ARITHMETIC)
    assert again.result is integers
    assert list(again.left()) == []
    floats = {call.op for call in float_calls(again.view.order)}
    assert floats == {"abs"}, "between a dequantize and a quantize of its own, to become a table"


FLOAT = """
x int8[2,4]    input
d float32[2,4] dq  x 0.5 0
e float32[2,4] exp d
y float32[2,4] abs e
"""


def test_what_cannot_be_an_integer_is_named_with_the_reason() -> None:
    inputs, result = read(FLOAT, {})
    left = list(Rewriting(result, ARITHMETIC).left())
    why = "its result is used as float32"
    assert left == [FloatOperator("e", "exp", why), FloatOperator("y", "abs", why)]
    assert isinstance(result, Call)
    refusal = refusal_of_operator(result, ARITHMETIC)
    assert refusal is not None
    assert refusal.clause == "dtype of abs"
    with pytest.raises(UnsupportedError, match="operator clip 'z' in region toy: bounds of clip"):
        graph_of(
            "toy",
            inputs,
            call("clip", inputs[0].type, inputs[0], name="z", low=3, high=1),
            ARITHMETIC,
        )
