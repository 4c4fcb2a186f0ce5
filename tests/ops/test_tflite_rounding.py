"""Each operator under ``rounding="tflite"`` gives the integers of LiteRT's reference kernels, or
stays on the host with a reason.

The graph runs by its numpy references here; that compiled C equals them is proven elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tvm import relay

import tinyai
from tests.support.oracle import Array
from tests.support.prequantized import LiteRT, from_tflite
from tests.support.relay_nets import module
from tests.support.tflite_models import Tensor, one_operator
from tinyai.frontends.relay import partition_for_tinyai, regions
from tinyai.frontends.relay.source import graph_from_region
from tinyai.passes import optimize
from tinyai.reference import run_graph

SHAPE = (1, 4, 8, 8)  # 256 elements: every int8 once
TRIALS = 6


@dataclass(frozen=True)
class Case:
    """An operator of TFLite's. ``output`` is the one quantization that TFLite allows;
    ``same_scale`` where input and output share theirs."""

    kind: str
    inputs: int = 1
    shape: tuple[int, ...] = SHAPE
    options: str = ""
    values: tuple[tuple[str, Any], ...] = ()
    indices: tuple[int, ...] = ()
    output: tuple[float, int] | None = None
    same_scale: bool = False

    def file(self, rng: np.random.Generator) -> bytes:
        """With random quantizations."""
        scales = np.exp(rng.uniform(-5, -1, self.inputs + 1))
        zeros = rng.integers(-60, 60, self.inputs + 1)
        if self.same_scale:
            scales[:], zeros[:] = scales[0], zeros[0]
        if self.output:
            scales[-1], zeros[-1] = self.output
        options = getattr(schema, f"{self.options}OptionsT")() if self.options else None
        for name, value in self.values:
            assert hasattr(options, name)
            setattr(options, name, value)
        shapes = [SHAPE] * self.inputs + [self.shape]
        tensors = [
            Tensor(shape, float(scale), int(zero))
            for shape, scale, zero in zip(shapes, scales, zeros, strict=True)
        ]
        return one_operator(self.kind, tensors[:-1], tensors[-1], options, self.indices)


POOL = (("strideW", 2), ("strideH", 2), ("filterWidth", 3), ("filterHeight", 3))
CASES = {
    "add": Case("ADD", 2, options="Add"),
    "subtract": Case("SUB", 2, options="Sub"),
    "multiply": Case("MUL", 2, options="Mul"),
    "avg_pool": Case("AVERAGE_POOL_2D", 1, (1, 2, 4, 8), "Pool2D", POOL, same_scale=True),
    "max_pool": Case("MAX_POOL_2D", 1, (1, 2, 4, 8), "Pool2D", POOL, same_scale=True),
    "maximum": Case("MAXIMUM", 2, options="MaximumMinimum", same_scale=True),
    "relu": Case("RELU"),
    "relu6": Case("RELU6"),
    "relu_n1_to_1": Case("RELU_N1_TO_1"),
    "relu6_same_scale": Case("RELU6", same_scale=True),
    "quantize": Case("QUANTIZE", options="Quantize"),
    "softmax": Case("SOFTMAX", options="Softmax", values=(("beta", 1.0),), output=(1 / 256, -128)),
    "sigmoid": Case("LOGISTIC", output=(1 / 256, -128)),
    "tanh": Case("TANH", output=(1 / 128, 0)),
    "leaky_relu": Case("LEAKY_RELU", options="LeakyRelu", values=(("alpha", 0.3),)),
    "leaky_relu_steep": Case("LEAKY_RELU", options="LeakyRelu", values=(("alpha", -1.5),)),
    "leaky_relu_flat": Case("LEAKY_RELU", options="LeakyRelu", values=(("alpha", 0.0),)),
    "hard_swish": Case("HARD_SWISH", options="HardSwish"),
    "mean": Case("MEAN", 1, (1, 8), "Reducer", indices=(1, 2)),
    "mean_kept": Case("MEAN", 1, (1, 1, 8, 8), "Reducer", (("keepDims", True),), (1,)),
    "mean_same_scale": Case("MEAN", 1, (1, 8), "Reducer", indices=(1, 2), same_scale=True),
    "resize": Case(
        "RESIZE_NEAREST_NEIGHBOR",
        1,
        (1, 8, 16, 8),
        "ResizeNearestNeighbor",
        indices=(8, 16),
        same_scale=True,
    ),
}


def every_value(rng: np.random.Generator) -> Array:
    """All int8 in random order."""
    return rng.permutation(np.arange(-128, 128)).astype(np.int8).reshape(SHAPE)


def computed(content: bytes, inputs: dict[str, Array]) -> Array:
    """The file's one region, run by its references."""
    mod = partition_for_tinyai(from_tflite(content), strict=True, rounding="tflite")
    (region,) = regions(mod).values()
    graph = optimize(graph_from_region(region))
    return run_graph(graph, [inputs[argument.name_hint] for argument in mod["main"].body.args])[0]


@pytest.mark.parametrize("name", CASES)
def test_an_operator_equals_litert(name: str) -> None:
    case = CASES[name]
    rng = np.random.default_rng(len(name))
    for _ in range(TRIALS):
        content = case.file(rng)
        inputs = {f"x{number}": every_value(rng) for number in range(case.inputs)}
        (expected,) = LiteRT(content)(*inputs.values())
        np.testing.assert_array_equal(computed(content, inputs), expected)


@pytest.mark.parametrize("ratio", [7.5, 0.003, 1.37e-5, 1.2e-7, 7.77e-7, 1e-13])
def test_a_fully_connected_layer_of_any_ratio_equals_litert(ratio: float) -> None:
    """Its accumulators are on and beside the places where the product in double precision steps
    from one int8 to the next: they are its bias, where the input is 0."""
    scales = np.float32(0.05), np.float32(ratio * 0.0371 / 0.05), np.float32(0.0371)
    product = float(scales[0]) * float(scales[1]) / float(scales[2])
    for zero_point in (-128, 0, 5):
        steps = (np.arange(-130, 130) + 0.5) / product
        most = min(2**31 - 99, 2**30 / ratio)  # LiteRT's result is an int32 before its bounds
        near = np.rint(np.clip(steps, -most, most))[:, None] + np.arange(-2, 3)
        bias = np.unique(near).astype(np.int32)
        count = len(bias)
        inputs = [
            Tensor((1, 1), float(scales[0])),
            Tensor((count, 1), float(scales[1]), 0, np.ones((count, 1), np.int8)),
            Tensor((count,), float(scales[0] * scales[1]), 0, bias),
        ]
        output = Tensor((1, count), float(scales[2]), zero_point)
        content = one_operator("FULLY_CONNECTED", inputs, output, schema.FullyConnectedOptionsT())
        for value in (0, -1, 7):
            x = np.full((1, 1), value, np.int8)
            (expected,) = LiteRT(content)(x)
            np.testing.assert_array_equal(computed(content, {"x0": x}), expected)


# --- What has no proven formula -----------------------------------------------------------------


def quantization(scale: float = 0.1, zero_point: int = 3) -> tuple[relay.Expr, relay.Expr]:
    return relay.const(scale, "float32"), relay.const(zero_point, "int32")


def of_values(function) -> relay.Expr:
    """A float function between dequantize and quantize."""
    data = relay.var("x", shape=SHAPE, dtype="int8")
    inner = function(relay.qnn.op.dequantize(data, *quantization()))
    return relay.qnn.op.quantize(inner, *quantization(0.2, -7), out_dtype="int8")


def mean() -> relay.Expr:
    return relay.mean(relay.cast(relay.var("x", shape=SHAPE, dtype="int8"), "int32"), (1, 2))


def requantized(value: relay.Expr) -> relay.Expr:
    return relay.qnn.op.requantize(value, *quantization(), *quantization(0.2), out_dtype="int8")


def summed() -> relay.Expr:
    data = relay.cast(relay.var("x", shape=SHAPE, dtype="int8"), "int32")
    return requantized(relay.sum(data, (1, 2)))


def number(value: float) -> relay.Expr:
    return relay.const(value, "float32")


def hard_swish(x: relay.Expr, bound: float = 6.0) -> relay.Expr:
    return x * relay.clip(x + number(3), 0.0, bound) / number(6)


ALONE = {
    "exp": (lambda: of_values(relay.exp), "exp", "exp"),
    "log_softmax": (lambda: of_values(relay.nn.log_softmax), "nn.log_softmax", "nn.log_softmax"),
    "gated": (
        lambda: of_values(lambda x: x * relay.sigmoid(x)),
        "sigmoid",
        "multiply of sigmoid",
    ),
    "chain": (
        lambda: of_values(lambda x: relay.tanh(relay.sigmoid(x))),
        "tanh",
        "tanh of sigmoid",
    ),
    "chain_that_ends_in_one": (
        lambda: of_values(lambda x: relay.nn.leaky_relu(relay.sigmoid(x), 0.1)),
        "sigmoid",
        "nn.leaky_relu of sigmoid",
    ),
    "not_hard_swish": (
        lambda: of_values(lambda x: hard_swish(x, 5.0)),
        "clip",
        "divide of multiply of clip of add",
    ),
    "mean_alone": (mean, "mean", "one without a requantization of its own"),
    "mean_clipped": (
        lambda: requantized(relay.clip(mean(), -9, 9)),
        "mean",
        "one without a requantization of its own",
    ),
    "sum": (
        summed,
        "qnn.requantize",
        "SUM of integers, which LiteRT's own kernels compute in two ways",
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_litert_computes_in_another_way_stays_on_the_host(name: str) -> None:
    make, operator, found = ALONE[name]
    report = tinyai.explain(module(make()), rounding="tflite")
    (row,) = [row for row in report.host if row.operator == operator]
    assert row.reason.clause.startswith("TFLite's arithmetic of")
    assert row.reason.found == found
    assert "upward" in row.hint
    assert tinyai.explain(module(make())).computing == ()


def test_hard_swish_is_known_from_either_side() -> None:
    def swapped(x: relay.Expr) -> relay.Expr:
        return relay.clip(x + number(3), 0.0, 6.0) * x / number(6)

    report = tinyai.explain(module(of_values(swapped)), rounding="tflite")
    assert report.computing == ()


def test_a_relu_that_can_be_two_is_left() -> None:
    """From a scale on that takes 1.0 to the integer 0, all bounds of its ReLUs import the same."""
    content = one_operator("RELU6", [Tensor(SHAPE, 13.8, 45)], Tensor(SHAPE, 1.6, -58))
    report = tinyai.explain(from_tflite(content), rounding="tflite")
    (row,) = report.computing
    assert row.reason.found.startswith("one of the ReLUs")
