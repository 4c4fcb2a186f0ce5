"""One float network for the quantizers of torch and of files, and the grids that both choose: two
convolutions, the second depthwise with a hard-swish behind it, their sum, its mean and a dense
layer. Each environment builds it of the same numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

Array = npt.NDArray[np.float32]

SHAPE = (1, 3, 8, 8)


def _drawn(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


WEIGHTS = {
    "conv": (_drawn(0, 4, 3, 3, 3), _drawn(1, 4)),
    "depthwise": (_drawn(6, 4, 1, 3, 3), _drawn(7, 4)),
    "dense": (_drawn(4, 5, 4), _drawn(5, 5)),
}
SAMPLES = [_drawn(10 + number, *SHAPE) for number in range(4)]

# By the extremes of the samples, in order: scale and zero point of the input, the first convolution
# with its ReLU, the second, the hard-swish, the sum, the mean, the dense layer.
GRIDS = (
    (0.0235273391, 3),
    (0.0548709333, -128),
    (0.2844911516, -8),
    (0.1520547867, -126),
    (0.1790189296, -126),
    (0.0531119443, -128),
    (0.1513080001, 38),
)


def as_file() -> onnx.ModelProto:
    """The network of an input ``x``, with the names of its layers."""
    constants = [
        onnx.numpy_helper.from_array(value, f"{layer}.{number}")
        for layer, values in WEIGHTS.items()
        for number, value in enumerate(values)
    ]
    nodes = [
        helper.make_node("Conv", ["x", "conv.0", "conv.1"], ["sums"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["sums"], ["first"]),
        helper.make_node(
            "Conv", ["first", "depthwise.0", "depthwise.1"], ["b"], pads=[1, 1, 1, 1], group=4
        ),
        helper.make_node("HardSwish", ["b"], ["second"]),
        helper.make_node("Add", ["first", "second"], ["both"]),
        helper.make_node("GlobalAveragePool", ["both"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "dense.0", "dense.1"], ["y"], transB=1),
    ]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", SHAPE), ("y", (1, 5)))
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
