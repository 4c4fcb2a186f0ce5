"""One small float ONNX model for each operator that ``integers_from_qdq`` knows."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, helper

from tests.support.onnx_models import Array, Model

IMAGE = {"x": (1, 4, 9, 8)}
PAIR = {"x": (1, 4, 5, 3), "z": (1, 4, 5, 3)}


def normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def node(kind: str, inputs: str, output: str = "y", **attrs: Any) -> NodeProto:
    """An ONNX node; names of inputs and outputs are split at spaces, "-" stands for none."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(
        kind, names, output.split(), name=f"{kind.lower()}_{output.split()[0]}", **attrs
    )


def integers(*values: int) -> Array:
    return np.array(values, np.int64)


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def single(
    kind: str, names: str = "x", shape: tuple[int, ...] = (1, 4, 9, 8), **more: Any
) -> Model:
    """A model of one node; ``more`` holds fields of the model and the node's attributes."""
    fields = {k: more.pop(k) for k in ("weights", "biases", "plain", "same_scale") if k in more}
    given = more.pop("inputs", {"x": shape})
    return Model((node(kind, names, **more),), given, **fields)


def convolution(
    weights: tuple[int, ...], *, axis: int | None, bias: bool = True, relu: Any = None, **attrs: Any
) -> Model:
    """A Conv with Relu or Clip after it, if ``relu`` is a name."""
    name = "c" if relu else "y"
    nodes = [node("Conv", "x w b" if bias else "x w", name, **attrs)]
    if relu:
        nodes.append(node(relu, "c low high" if relu == "Clip" else "c"))
    biases = {"b": (normal(weights[0], seed=2), "x", "w")} if bias else {}
    plain = {"low": np.float32(0.1), "high": np.float32(1.5)} if relu == "Clip" else {}
    return Model(
        tuple(nodes), IMAGE, weights={"w": (normal(*weights), axis)}, biases=biases, plain=plain
    )


def one_dimension(*nodes: NodeProto, axis: int | None = 0) -> Model:
    """A convolution along one dimension, and what follows."""
    return Model(
        nodes,
        {"x": (1, 4, 9)},
        weights={"w": (normal(6, 4, 3), axis)},
        biases={"b": (normal(6, seed=2), "x", "w")},
    )


def volumes(*nodes: NodeProto) -> Model:
    """A convolution along three dimensions, and what follows."""
    return Model(
        nodes,
        {"x": (2, 4, 3, 5, 6)},
        weights={"w": (normal(6, 4, 3, 2, 3), 0)},
        biases={"b": (normal(6, seed=2), "x", "w")},
    )


def transposed(axis: int | None, *, group: int = 1, **attrs: Any) -> Model:
    weights = normal(4, 6 // group, 3, 2)
    if axis is None or group == 1:
        biases = {"b": (normal(6, seed=2), "x", "w")}
        return Model(
            (node("ConvTranspose", "x w b", group=group, **attrs),),
            IMAGE,
            weights={"w": (weights, axis)},
            biases=biases,
        )
    return Model(
        (node("ConvTranspose", "x w", group=group, **attrs),), IMAGE, weights={"w": (weights, axis)}
    )


def gemm(axis: int | None, **attrs: Any) -> Model:
    shape = (5, 8) if attrs.get("transB") else (8, 5)
    return Model(
        (node("Gemm", "x w b", **attrs),),
        {"x": (3, 8)},
        weights={"w": (normal(*shape), axis)},
        biases={"b": (normal(5, seed=2), "x", "w")},
    )


def binary(kind: str, *shapes: tuple[int, ...]) -> Model:
    return Model((node(kind, "x z"),), dict(zip("xz", shapes, strict=True)) if shapes else PAIR)


def with_constant(kind: str, inputs: str) -> Model:
    return Model((node(kind, inputs),), IMAGE, weights={"c": (normal(4, 1, 1), None)})


SCALES = floats(1, 1, 2, 2)
PADS = integers(0, 0, 1, 2, 0, 0, 0, 1)
NEAREST = {"mode": "nearest", "nearest_mode": "floor"}

# Models of which no float operator may stay.
INTEGERS: dict[str, Model] = {
    "conv": convolution((6, 4, 3, 3), axis=0),
    "conv_per_tensor": convolution((6, 4, 3, 3), axis=None, bias=False),
    "conv_relu_pads": convolution(
        (6, 4, 3, 2), axis=0, relu="Relu", pads=[1, 0, 2, 1], strides=[2, 1]
    ),
    "conv_clip_dilated": convolution((6, 4, 2, 3), axis=0, relu="Clip", dilations=[2, 2]),
    "conv_depthwise": convolution((4, 1, 3, 3), axis=0, group=4, pads=[1, 1, 1, 1]),
    "conv_multiplier": convolution((8, 1, 3, 3), axis=0, group=4),
    "conv_grouped": convolution((6, 2, 3, 3), axis=0, group=2, pads=[1, 1, 1, 1]),
    "conv_auto_pad": convolution((6, 4, 3, 3), axis=0, auto_pad="SAME_UPPER", strides=[2, 2]),
    "conv_float_bias": Model(
        (node("Conv", "x w b"),),
        IMAGE,
        weights={"w": (normal(6, 4, 3, 3), 0)},
        plain={"b": normal(6, seed=2)},
    ),
    "conv_add_bias": Model(
        (
            node("Conv", "x w", "c"),
            node("Unsqueeze", "b axes", "b3"),
            node("Add", "b3 c", "a"),
            node("Relu", "a"),
        ),
        IMAGE,
        weights={"w": (normal(6, 4, 3, 3), 0)},
        biases={"b": (normal(6, seed=2), "x", "w")},
        plain={"axes": integers(1, 2)},
    ),
    "conv_after_pad": Model(
        (node("Pad", "x pads", "p"), node("Conv", "p w")),
        IMAGE,
        weights={"w": (normal(6, 4, 3, 3), 0)},
        plain={"pads": PADS},
    ),
    "conv1d": one_dimension(node("Conv", "x w b", pads=[1, 2], strides=[2])),
    "conv1d_relu": one_dimension(
        node("Conv", "x w b", "c", dilations=[2]), node("Relu", "c"), axis=None
    ),
    "conv1d_add_bias": Model(
        (node("Conv", "x w", "c"), node("Add", "c b")),
        {"x": (2, 4, 9)},
        weights={"w": (normal(6, 4, 3), 0)},
        plain={"b": normal(6, 1, seed=2)},
    ),
    "conv1d_add_positions": Model(
        (node("Conv", "x w", "c"), node("Add", "b c")),
        {"x": (2, 4, 9)},
        weights={"w": (normal(6, 4, 3), 0)},
        plain={"b": normal(6, 7, seed=2)},
    ),
    "conv1d_depthwise": Model(
        (node("Conv", "x w", group=4, pads=[1, 1]),),
        {"x": (1, 4, 9)},
        weights={"w": (normal(4, 1, 3), 0)},
    ),
    "conv1d_max_pool": one_dimension(
        node("Conv", "x w b", "c"), node("MaxPool", "c", kernel_shape=[3], pads=[1, 0])
    ),
    "conv3d": volumes(node("Conv", "x w b", pads=[1, 0, 1, 0, 1, 1], strides=[2, 1, 1])),
    "conv3d_relu_max_pool": volumes(
        node("Conv", "x w b", "c", dilations=[1, 2, 1], pads=[1] * 6),
        node("Relu", "c", "r"),
        node("MaxPool", "r", kernel_shape=[2, 2, 3], strides=[2, 2, 1], pads=[1, 0, 1, 0, 0, 1]),
    ),
    "conv3d_transpose": Model(
        (node("ConvTranspose", "x w b", strides=[2, 2, 1], pads=[0, 1, 0, 0, 0, 1]),),
        {"x": (2, 4, 3, 5, 4)},
        weights={"w": (normal(4, 6, 2, 3, 2), 1)},
        biases={"b": (normal(6, seed=2), "x", "w")},
    ),
    "conv3d_depthwise_add_bias": Model(
        (node("Conv", "x w", "c", group=4, pads=[1] * 6), node("Add", "c b")),
        {"x": (2, 4, 3, 5, 4)},
        weights={"w": (normal(8, 1, 3, 3, 3), 0)},
        plain={"b": normal(1, 8, 1, 1, 1, seed=2)},
    ),
    "max_pool_1d": single("MaxPool", shape=(1, 4, 9), kernel_shape=[2], strides=[2]),
    "avg_pool_1d": single("AveragePool", shape=(1, 4, 9), kernel_shape=[3], pads=[1, 1]),
    "avg_pool_1d_pads_counted": single(
        "AveragePool", shape=(1, 4, 9), kernel_shape=[3], pads=[2, 1], count_include_pad=1
    ),
    "global_max_pool_1d": single("GlobalMaxPool", shape=(1, 4, 9)),
    "global_avg_pool_1d": single("GlobalAveragePool", shape=(1, 4, 9)),
    "conv_transpose": transposed(1, strides=[2, 2]),
    "conv_transpose_per_tensor": transposed(None, strides=[2, 1], pads=[1, 0, 0, 1]),
    "conv_transpose_output_padding": transposed(1, strides=[2, 2], output_padding=[1, 0]),
    "gemm": gemm(0, transB=1),
    "gemm_plain": gemm(1),
    "gemm_alpha": gemm(None, alpha=0.5, transB=1),
    "matmul": single("MatMul", "x w", inputs={"x": (3, 8)}, weights={"w": (normal(8, 5), 1)}),
    "matmul_3d_bias": Model(
        (node("MatMul", "x w", "m"), node("Add", "b m")),
        {"x": (2, 3, 8)},
        weights={"w": (normal(8, 5), 1)},
        plain={"b": normal(5, seed=2)},
    ),
    "matmul_scaled": Model(
        (node("MatMul", "x z", "m"), node("Div", "m d")),
        {"x": (2, 3, 8), "z": (2, 8, 4)},
        plain={"d": floats(8.0)},
    ),
    "matmul_of_two": Model((node("MatMul", "x z"),), {"x": (3, 8), "z": (8, 4)}),
    "matmul_batched_constant": single(
        "MatMul", "x w", inputs={"x": (2, 3, 8)}, weights={"w": (normal(2, 8, 5), None)}
    ),
    "add": binary("Add"),
    "add_relu": Model((node("Add", "x z", "a"), node("Relu", "a")), PAIR),
    "add_constant": with_constant("Add", "x c"),
    "subtract": binary("Sub"),
    "constant_subtract": with_constant("Sub", "c x"),
    "multiply": binary("Mul"),
    "multiply_broadcast": binary("Mul", (2, 4, 5, 3), (2, 4, 1, 1)),
    "multiply_constant": with_constant("Mul", "x c"),
    "square": single("Mul", "x x"),
    "concat": Model((node("Concat", "x z", axis=1),), {"x": (1, 4, 5, 3), "z": (1, 2, 5, 3)}),
    "concat_constant": single("Concat", "x c", axis=-1, weights={"c": (normal(1, 4, 9, 2), None)}),
    "max_pool": single("MaxPool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    "max_pool_relu": Model(
        (node("MaxPool", "x", "p", kernel_shape=[2, 2]), node("Relu", "p")), IMAGE
    ),
    "conv_max_pool": Model(
        (
            node("Conv", "x w", "c"),
            node("Relu", "c", "r"),
            node("MaxPool", "r", "p", kernel_shape=[2, 2], pads=[0, 1, 1, 0]),
            node("Flatten", "p"),
        ),
        IMAGE,
        weights={"w": (normal(6, 4, 3, 3), 0)},
    ),
    "global_max_pool": single("GlobalMaxPool"),
    "avg_pool": single("AveragePool", kernel_shape=[2, 3], strides=[2, 1]),
    "avg_pool_pads": single("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "avg_pool_pads_counted": single(
        "AveragePool", kernel_shape=[3, 3], pads=[1, 0, 2, 1], strides=[2, 2], count_include_pad=1
    ),
    "global_avg_pool": single("GlobalAveragePool"),
    "mean": single("ReduceMean", axes=[2, 3], keepdims=0),
    "sum": single("ReduceSum", "x a", keepdims=0, plain={"a": integers(2)}),
    "reshape": single("Reshape", "x s", plain={"s": integers(1, -1, 8)}),
    "transpose": single("Transpose", perm=[0, 2, 3, 1]),
    "squeeze": single("Squeeze", "x a", plain={"a": integers(0)}),
    "unsqueeze": single("Unsqueeze", "x a", plain={"a": integers(1)}),
    "flatten": single("Flatten", axis=1),
    "slice": single(
        "Slice", "x b e a", plain={"b": integers(1), "e": integers(7), "a": integers(2)}
    ),
    "gather": single("Gather", "x i", axis=1, plain={"i": integers(2, 0, 2)}),
    "split": Model((node("Split", "x", "p q", axis=1),), {"x": (1, 4, 5, 3)}, outputs=("p", "q")),
    "resize": single(
        "Resize",
        "x - s",
        coordinate_transformation_mode="asymmetric",
        **NEAREST,
        plain={"s": SCALES},
    ),
    "resize_half_pixel": single(
        "Resize",
        "x - s",
        coordinate_transformation_mode="half_pixel",
        mode="nearest",
        nearest_mode="round_prefer_ceil",
        plain={"s": floats(1, 1, 2, 3)},
    ),
    "depth_to_space": single("DepthToSpace", blocksize=2),
    "space_to_depth": single("SpaceToDepth", shape=(1, 4, 8, 6), blocksize=2),
    "pad": single("Pad", "x p v", plain={"p": PADS, "v": np.float32(0)}),
    "pad_inexact": single("Pad", "x p v", plain={"p": PADS, "v": np.float32(0.37)}),
    "identity": single("Identity"),
    "relu": single("Relu"),
    "relu_same_scale": single("Relu", same_scale=True),
    "reshape_same_scale": single("Reshape", "x s", plain={"s": integers(-1)}, same_scale=True),
    "clip": single("Clip", "x l h", plain={"l": np.float32(0), "h": np.float32(0.51)}),
    "maximum": single("Max", "x c", plain={"c": np.float32(0.2)}),
    "minimum": single("Min", "c x", plain={"c": floats(0.4)}),
    "max_same_scale": Model((node("Max", "x z"),), PAIR, same_scale=True),
    "min_same_scale_relu": Model(
        (node("Min", "z x", "m"), node("Relu", "m")), PAIR, same_scale=True
    ),
}

# Models of which float operators stay between dequantize and quantize: tables, and softmax.
TABLES: dict[str, Model] = {
    "sigmoid": single("Sigmoid"),
    "tanh": single("Tanh"),
    "leaky_relu": single("LeakyRelu", alpha=0.1),
    "prelu": single("PRelu", "x s", plain={"s": floats(0.2).reshape(1, 1, 1)}),
    "prelu_quantized": single("PRelu", "x s", weights={"s": (floats(0.2).reshape(1, 1, 1), None)}),
    "hard_swish": single("HardSwish"),
    "hard_sigmoid": single("HardSigmoid"),
    "exp": single("Exp"),
    "gelu": Model(
        (
            node("Div", "x root", "a"),
            node("Erf", "a", "e"),
            node("Add", "e one", "o"),
            node("Mul", "x o", "p"),
            node("Mul", "p half"),
        ),
        IMAGE,
        plain={"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)},
    ),
    "gelu_halved_first": Model(
        (
            node("Mul", "x half", "h"),
            node("Div", "x root", "a"),
            node("Erf", "a", "e"),
            node("Add", "e one", "o"),
            node("Mul", "h o"),
        ),
        IMAGE,
        plain={"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)},
    ),
    "gelu_contrib": single("Gelu", domain="com.microsoft"),
    "elu": single("Elu", alpha=0.8),
    "selu": single("Selu"),
    "softsign": single("Softsign"),
    "silu": Model((node("Sigmoid", "x", "s"), node("Mul", "x s")), IMAGE),
    "sqrt_of_square": Model((node("Mul", "x x", "s"), node("Sqrt", "s")), IMAGE),
    "add_number": single("Add", "x c", plain={"c": np.float32(0.3)}),
    "softmax": single("Softmax", shape=(3, 10), axis=1),
    "softmax_of_4d": single("Softmax", axis=1),
    "sigmoid_reshaped": Model(
        (node("Sigmoid", "x", "s"), node("Reshape", "s t")), IMAGE, plain={"t": integers(1, -1)}
    ),
    "tanh_after_slice": Model(
        (node("Slice", "x b e a", "s"), node("Tanh", "s")),
        IMAGE,
        plain={"b": integers(1), "e": integers(7), "a": integers(2)},
    ),
}

THREE = {"x": (2, 4, 5, 3), "z": (2, 4, 5, 3), "v": (4, 1, 1)}

# Models of which float operators stay between several dequantize and quantize.
BRANCHES: dict[str, Model] = {
    "sum_of_three": Model((node("Sum", "x z v"),), THREE),
    "sum_relu": Model((node("Sum", "x z v x", "s"), node("Relu", "s")), THREE),
    "sum_clip": Model(
        (node("Sum", "z x z", "s"), node("Clip", "s low high")),
        PAIR,
        plain={"low": np.float32(-0.1), "high": np.float32(1.5)},
    ),
    "max_of_two": binary("Max"),
    "max_of_three": Model((node("Max", "x z v"),), THREE),
    "min_clip": Model(
        (node("Min", "z x", "m"), node("Clip", "m low high")),
        PAIR,
        plain={"low": np.float32(-0.1), "high": np.float32(0.5)},
    ),
    "sum_reshaped": Model(
        (node("Sum", "x z x", "s"), node("Reshape", "s t")), PAIR, plain={"t": integers(1, -1)}
    ),
    "two_sums_of_the_same": Model(
        (node("Sum", "x z v"), node("Sum", "v x z", "q")), THREE, outputs=("y", "q")
    ),
    "product_and_sum": Model((node("Mul", "x v", "p"), node("Add", "p z")), THREE),
    "two_functions_of_one_value": Model(
        (node("Sigmoid", "x"), node("Tanh", "x", "q")), IMAGE, outputs=("y", "q")
    ),
}
