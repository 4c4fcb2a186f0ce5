"""A scale that is no positive number is refused wherever it stands and whatever way it came."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relay

import tests.support.relay_nets as nets
import tinyai
from tinyai.frontends.relay.spelling import supported

BAD = {"zero": 0.0, "negative": -0.5, "infinite": np.inf, "no number": np.nan}
ZERO = relay.const(3, "int32")
DATA = nets.data((1, 6, 6, 4))
FLAT = nets.data((2, 4))
Scales = Callable[[str], relay.Expr]
qnn = relay.qnn.op


def weight(*shape: int) -> relay.Constant:
    return relay.const(nets.weights(0, shape))


def convolved(op: Callable[..., relay.Expr], order: str, s: Scales) -> relay.Expr:
    zero = relay.const(0, "int32")
    product = op(
        DATA,
        weight(3, 3, 4, 4),
        ZERO,
        zero,
        s("data"),
        s("weights"),
        kernel_size=(3, 3),
        channels=4,
        data_layout="NHWC",
        kernel_layout=order,
        out_dtype="int32",
    )
    return requantized(product, s)


def requantized(value: relay.Expr, s: Scales, **attrs: object) -> relay.Expr:
    return qnn.requantize(value, s("input"), ZERO, s("output"), ZERO, out_dtype="int8", **attrs)


def dense(s: Scales) -> relay.Expr:
    zero = relay.const(0, "int32")
    scales = s("data"), s("weights")
    return requantized(qnn.dense(FLAT, weight(5, 4), ZERO, zero, *scales, units=5), s)


def matmul(s: Scales) -> relay.Expr:
    sides = nets.data((1, 2, 4)), nets.data((1, 3, 4), name="other")
    zero = relay.const(0, "int32")
    return requantized(qnn.batch_matmul(*sides, zero, zero, s("data"), s("weights")), s)


def binary(op: Callable[..., relay.Expr]) -> Callable[[Scales], relay.Expr]:
    return lambda s: op(
        *(DATA, nets.data((1, 6, 6, 4), name="other")),
        *(s("left side"), ZERO, s("right side"), ZERO, s("output"), ZERO),
    )


def joined(s: Scales) -> relay.Expr:
    parts = relay.Tuple([s("a part"), relay.const(0.1)]), relay.Tuple([ZERO, ZERO])
    return qnn.concatenate(relay.Tuple([DATA, DATA]), *parts, s("output"), ZERO, axis=1)


def between(s: Scales) -> relay.Expr:
    return qnn.quantize(
        relay.sigmoid(qnn.dequantize(DATA, s("input"), ZERO)), s("output"), ZERO, out_dtype="int8"
    )


def qdq(s: Scales) -> relay.Expr:
    """As an ONNX file has it: floats between dequantize and quantize."""
    floats = qnn.dequantize(DATA, s("input"), ZERO)
    weights = qnn.dequantize(weight(3, 3, 4, 4), s("weights"), relay.const(0, "int32"))
    product = relay.nn.conv2d(
        floats,
        weights,
        kernel_size=(3, 3),
        channels=4,
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    return qnn.quantize(product, s("output"), ZERO, out_dtype="int8")


# Of each operator an expression, and what its scales are of.
EXPRESSIONS: dict[str, tuple[Callable[[Scales], relay.Expr], tuple[str, ...]]] = {
    "qnn.conv2d": (
        lambda s: convolved(qnn.conv2d, "HWIO", s),
        ("data", "weights", "input", "output"),
    ),
    "qnn.conv2d_transpose": (
        lambda s: convolved(qnn.conv2d_transpose, "HWOI", s),
        ("data", "weights", "input", "output"),
    ),
    "qnn.dense": (dense, ("data", "weights", "input", "output")),
    "qnn.batch_matmul": (matmul, ("data", "weights", "input", "output")),
    "qnn.requantize": (lambda s: requantized(DATA, s), ("input", "output")),
    **{
        f"qnn.{name}": (binary(op), ("left side", "right side", "output"))
        for name, op in (("add", qnn.add), ("subtract", qnn.subtract), ("mul", qnn.mul))
    },
    "qnn.concatenate": (joined, ("a part", "output")),
    "qnn.quantize": (between, ("output",)),
    "qnn.dequantize": (between, ("input",)),
    "QDQ": (qdq, ("input", "weights", "output")),
}


def test_every_operator_with_a_scale_is_here() -> None:
    assert {name for name in supported() if name.startswith("qnn.")} <= EXPRESSIONS.keys()


@pytest.mark.long
@pytest.mark.parametrize("rounding", ["upward", "tflite", "onnx"])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_scale_that_is_no_positive_number_is_refused(name: str, rounding: str) -> None:
    make, places = EXPRESSIONS[name]
    for place in places:
        for value in BAD.values():
            report = tinyai.explain(nets.module(make(one_bad(place, value))), rounding=rounding)
            reasons = {(row.reason.clause.split()[0], row.reason.found) for row in report.computing}
            # TFLite's arithmetic has no product of two values, whatever its scales.
            other = name == "qnn.batch_matmul" and rounding == "tflite"
            assert other or ("scale", str(np.float32(value))) in reasons, f"{place}\n{report}"


def one_bad(place: str, value: float) -> Scales:
    return lambda what: relay.const(np.float32(value if what == place else 0.1))


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_scale_among_many_is_refused(kind: str) -> None:
    scales = relay.const(np.array([0.1, BAD[kind], 0.2, 0.3], "float32"))
    mod = nets.module(
        qnn.requantize(DATA, scales, ZERO, relay.const(0.1), ZERO, axis=3, out_dtype="int8")
    )
    (row,) = tinyai.explain(mod).computing
    assert (row.reason.clause, row.reason.allowed) == ("scale of the input", "positive numbers")
    assert row.reason.found == str(np.float32(BAD[kind]))
