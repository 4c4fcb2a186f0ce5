"""ONNX files that importers misread: each spells an operator in a way that is easily overlooked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.support.random_onnx import CONTRIB
from tinyai.ir import Array

Made = Callable[[], tuple[ModelProto, dict[str, Array]]]


def model_of(
    op: str,
    shape: tuple[int, ...],
    *constants: Any,
    opset: int = 13,
    domain: str = "",
    outputs: int = 1,
    **attrs: Any,
) -> tuple[ModelProto, dict[str, Array]]:
    """x of floats, which is dequantized, or of integers for QOperators; the first result, which is
    quantized. A constant that is None is left out."""
    rng = np.random.default_rng(5)
    quantized = op.startswith("QLinear")
    stored = rng.integers(0, 255, shape, "uint8", endpoint=True)
    initializers: dict[str, Array] = {}
    names = []
    for place, each in enumerate(constants):
        names.append("" if each is None else f"c{place}")
        if each is not None:
            initializers[f"c{place}"] = np.asarray(each)
    initializers |= {"s": np.float32(0.02), "z": np.uint8(120), "t": np.float32(0.025)}
    results = [f"y{place}" for place in range(outputs)]
    if quantized:
        nodes = [
            helper.make_node(op, ["x", "s", "z", *names], results, "it", domain=domain, **attrs)
        ]
    else:
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"], "dequantize"),
            helper.make_node(op, ["f", *names], results, "it", domain=domain, **attrs),
            helper.make_node("QuantizeLinear", ["y0", "t", "z"], ["q"], "quantize"),
        ]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in initializers.items()],
    )
    domains = [helper.make_opsetid("", opset), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8), {"x": stored}


def f32(number: float) -> Array:
    return np.asarray(number, np.float32)


def i64(*numbers: int) -> Array:
    return np.asarray(numbers, np.int64)


Y = (f32(0.03), np.uint8(110))
IMAGE, FEW = (1, 4, 7, 9), (2, 8, 7, 2)  # of the latter few values are along an edge
CASES: dict[str, Made] = {
    "a lower bound alone": lambda: model_of("Clip", IMAGE, f32(-0.5)),
    "an upper bound alone": lambda: model_of("Clip", IMAGE, None, f32(0.5)),
    "an upper bound of opset 10": lambda: model_of("Clip", IMAGE, opset=10, max=0.5),
    "axes of a sum": lambda: model_of("ReduceSum", FEW, i64(-1, 0), keepdims=1),
    "axes of a mean": lambda: model_of("ReduceMean", FEW, i64(0, 3), opset=18),
    "axes of a maximum": lambda: model_of("ReduceMax", FEW, i64(-1, 0), opset=18, keepdims=0),
    "no axes, which is nothing": lambda: model_of(
        "ReduceMean", IMAGE, opset=18, noop_with_empty_axes=1
    ),
    "ceil mode that drops a window": lambda: model_of(
        "MaxPool", IMAGE, kernel_shape=[2, 2], strides=[3, 3], ceil_mode=1, pads=[0, 0, 1, 0]
    ),
    "ceil mode that keeps one": lambda: model_of(
        "AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1
    ),
    "auto_pad of a pooling": lambda: model_of(
        "MaxPool", IMAGE, kernel_shape=[2, 3], strides=[2, 2], auto_pad="SAME_LOWER"
    ),
    "a slope by default": lambda: model_of("QLinearLeakyRelu", IMAGE, *Y, domain=CONTRIB),
    "a negative axis and index": lambda: model_of("Gather", IMAGE, i64(-1, 0, -3), axis=-2),
    "many places of volumes": lambda: model_of(
        "Gather", (2, 3, 4, 9, 5), i64(*[8, 1, 1, 0, -4, 2, 2, 7] * 9), axis=3
    ),
    "a rounded size": lambda: model_of(
        "Resize", IMAGE, None, np.float32([1, 1, 1.5, 0.7]), mode="nearest"
    ),
    "ceiling of opset 10": lambda: model_of(
        "Resize", IMAGE, np.float32([1, 1, 0.5, 0.4]), opset=10, mode="nearest"
    ),
    "whole factors, rounded up": lambda: model_of(
        *("Resize", IMAGE, None, np.float32([1, 1, 3, 2])),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="ceil",
    ),
    "axes of a resizing": lambda: model_of(
        "Resize", IMAGE, None, np.float32([2, 3]), opset=18, axes=[3, 2], nearest_mode="floor"
    ),
    "one column between aligned corners": lambda: model_of(
        *("Resize", IMAGE, None, np.float32([1, 1, 2, 1 / 9])),
        coordinate_transformation_mode="align_corners",
        nearest_mode="floor",
    ),
    "softmax of the rest": lambda: model_of(
        *("QLinearSoftmax", (2, 3, 4, 5), f32(1 / 256), np.uint8(0)),
        domain=CONTRIB,
        opset=12,
        axis=2,
    ),
    "softmax by default": lambda: model_of(
        "QLinearSoftmax", (2, 3, 5), f32(1 / 256), np.uint8(0), domain=CONTRIB, opset=12
    ),
    "an average of channels last": lambda: model_of(
        "QLinearGlobalAveragePool", (2, 3, 3, 30), *Y, domain=CONTRIB, channels_last=1
    ),
    "windows of channels last": lambda: model_of(
        *("QLinearAveragePool", (1, 7, 9, 4), *Y),
        domain=CONTRIB,
        channels_last=1,
        kernel_shape=[2, 3],
        strides=[2, 1],
    ),
    "several negative new axes": lambda: model_of("Unsqueeze", (4, 30), i64(-1, -3)),
    "a new axis at the end, of opset 10": lambda: model_of(
        "Unsqueeze", (4, 30), opset=10, axes=[-1]
    ),
    "the last axis squeezed, of opset 10": lambda: model_of(
        "Squeeze", (4, 30, 1), opset=10, axes=[-1]
    ),
    "several new axes of opset 11": lambda: model_of("Unsqueeze", (4, 30), opset=11, axes=[-4, 1]),
    "axes of pads": lambda: model_of("Pad", IMAGE, i64(1, 2, 0, 1), f32(0.5), i64(-1, 1), opset=18),
    "negative pads": lambda: model_of("Pad", IMAGE, i64(0, 0, -1, 2, 0, 1, 2, -3), f32(0.3)),
    "uneven parts": lambda: model_of("Split", IMAGE, opset=18, outputs=3, axis=-2, num_outputs=3),
    "a transposed convolution of opset 10": lambda: model_of(
        *("ConvTranspose", IMAGE, f32(np.random.default_rng(0).normal(0, 0.2, (4, 3, 3, 2)))),
        opset=10,
        strides=[2, 3],
        auto_pad="SAME_UPPER",
    ),
    "a list of one scale": lambda: model_of("Relu", IMAGE),
}


def made(case: str) -> tuple[ModelProto, dict[str, Array]]:
    """The file of a case, and inputs for it."""
    proto, inputs = CASES[case]()
    opset_attribute(case, proto)
    as_list(case, proto)
    return proto, inputs


def opset_attribute(case: str, proto: ModelProto) -> None:
    """QLinearSoftmax has an attribute of the name of our argument."""
    if case.startswith("softmax"):
        proto.opset_import[0].version = 13
        proto.graph.node[0].attribute.append(helper.make_attribute("opset", 12))


def as_list(case: str, proto: ModelProto) -> None:
    if case == "a list of one scale":
        for tensor in proto.graph.initializer:
            tensor.dims.append(1)


REFUSED: dict[str, tuple[Made, str]] = {
    "pads of dilated windows": (
        lambda: model_of(
            "MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 2], auto_pad="SAME_UPPER"
        ),
        "auto_pad SAME_UPPER and dilations",
    ),
    "windows far from one another": (
        lambda: model_of(
            "AveragePool", IMAGE, kernel_shape=[1, 1], strides=[3, 5], auto_pad="SAME_UPPER"
        ),
        "auto_pad SAME_UPPER, strides [3, 5] far beyond the windows",
    ),
    "an operator of one's own": (lambda: model_of("Relu", IMAGE, domain="mine"), "domain 'mine'"),
    "an attribute of another opset": (
        lambda: model_of("ReduceMean", IMAGE, opset=18, axes=[1]),
        "the attribute 'axes'",
    ),
    "statistics of the batch": (
        lambda: model_of(
            *("BatchNormalization", IMAGE, *(np.ones(4, np.float32) for _ in range(4))),
            opset=15,
            training_mode=1,
        ),
        "training_mode 1",
    ),
    "a resizing that smooths": (
        lambda: model_of(
            *("Resize", IMAGE, None, np.float32([1, 1, 0.5, 0.5])),
            opset=18,
            mode="linear",
            antialias=1,
        ),
        "antialias 1",
    ),
    "a rounded size between rows": (
        lambda: model_of("Resize", IMAGE, None, np.float32([1, 1, 1.5, 0.7]), mode="linear"),
        "scales that give whole sizes",
    ),
}
