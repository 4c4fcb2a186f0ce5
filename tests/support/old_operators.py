"""Operators as ONNX had them in each opset before 13, whose meaning or form changed since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tinyai.ir import Array

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def whole(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


IMAGE = floats(2, 3, 4, 6)


@dataclass(frozen=True, eq=False)
class Old:
    """A model of one operator; ``inputs`` are its first operands, ``constants`` the others. Where
    ONNX Runtime does not have it any more, ``result`` is what ONNX says of it."""

    operator: str
    opset: int
    inputs: tuple[Array, ...]
    constants: tuple[Array, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    result: Array | None = None

    def __str__(self) -> str:
        return f"{self.operator} of opset {self.opset} {self.attributes}"

    def model(self) -> onnx.ModelProto:
        names = [f"x{number}" for number in range(len(self.inputs))]
        held = {f"c{number}": value for number, value in enumerate(self.constants)}
        results = [f"y{number}" for number in range(self.outputs)]
        node = helper.make_node(self.operator, [*names, *held], results, "node", **self.attributes)
        graph = helper.make_graph(
            [node],
            "graph",
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
                for name, value in zip(names, self.inputs, strict=True)
            ],
            [onnx.ValueInfoProto(name=name) for name in results],
            [numpy_helper.from_array(value, name) for name, value in held.items()],
        )
        opset = helper.make_opsetid("", self.opset)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=4)
        model = onnx.shape_inference.infer_shapes(model)
        for output in model.graph.output:
            if not output.type.WhichOneof("value"):
                output.type.tensor_type.elem_type = TensorProto.FLOAT
        return model

    def in_a_branch(self) -> onnx.ModelProto:
        """The same inside of an If, whose condition ``c`` is one more input."""
        model = self.model()
        (node,), results = model.graph.node, [each.name for each in model.graph.output]
        branch = helper.make_graph([node], "branch", [], model.graph.output)
        for number, value in enumerate(branch.output):
            branch.node[0].output[number] = value.name = f"inner{number}"
        chosen = helper.make_node("If", ["c"], results, then_branch=branch, else_branch=branch)
        node.CopyFrom(chosen)
        model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
        return model

    def feed(self) -> dict[str, Array]:
        return {f"x{number}": value for number, value in enumerate(self.inputs)}


def old_operators() -> Iterator[Old]:
    yield from _softmaxes()
    yield from _resizes()
    yield from _broadcasts()
    yield from _of_attributes()
    yield from _windows()
    yield from _recurrent()


def _softmaxes() -> Iterator[Old]:
    for operator in ("Softmax", "LogSoftmax", "Hardmax"):
        for opset in (1, 4, 7, 11, 12):
            yield Old(operator, opset, (IMAGE,))
            for axis in range(4 if opset < 11 else -1):
                yield Old(operator, opset, (IMAGE,), (), {"axis": axis})
            if opset >= 11:
                yield Old(operator, opset, (IMAGE,), (), {"axis": -2})


def _resizes() -> Iterator[Old]:
    for mode in ("nearest", "linear"):
        for opset in (7, 8):
            scales = {"scales": [1.0, 1.0, 2.0, 2.0]}
            yield Old("Upsample", opset, (IMAGE,), (), {**scales, "mode": mode})
        for scale in ((2, 2), (0.5, 0.5), (1.5, 1.7), (0.6, 0.7), (1, 0.5)):
            scales = np.array([1, 1, *scale], np.float32)
            if min(scale) >= 1:
                yield Old("Upsample", 9, (IMAGE,), (scales,), {"mode": mode})
            yield Old("Resize", 10, (IMAGE,), (scales,), {"mode": mode})


def _broadcasts() -> Iterator[Old]:
    second = {"broadcast": 1, "axis": 1}
    for operator, of in (
        ("Add", np.add),
        ("Sub", np.subtract),
        ("Mul", np.multiply),
        ("Div", np.divide),
    ):
        for other, how, shape in (
            (floats(3), second, (3, 1, 1)),
            (floats(4, 6), {"broadcast": 1}, (4, 6)),
            (floats(3, 4), second, (3, 4, 1)),
            (IMAGE, {}, IMAGE.shape),
        ):
            result = of(IMAGE, other.reshape(shape))
            for opset in (1, 6):
                yield Old(operator, opset, (IMAGE, other), (), how, result=result)
        yield Old(operator, 7, (IMAGE, floats(4, 1)))
    bases, exponents, slopes = np.abs(IMAGE), floats(3), floats(3)
    powers = bases ** exponents.reshape(3, 1, 1)
    yield Old("Pow", 1, (bases, exponents), (), second, result=powers)
    leaky = np.where(IMAGE < 0, IMAGE * slopes.reshape(3, 1, 1), IMAGE)
    data, weights, bias = floats(2, 4), floats(4, 5), floats(5)
    product = data @ weights + bias
    for opset in (1, 6):
        yield Old("PRelu", opset, (IMAGE, slopes), result=leaky)
        yield Old("Gemm", opset, (data,), (weights, bias), {"broadcast": 1}, result=product)
    for operator in ("Sum", "Mean", "Max", "Min"):
        yield Old(operator, 6, (IMAGE, IMAGE, IMAGE))
        yield Old(operator, 8, (IMAGE, floats(6), floats(4, 1)))


def _of_attributes() -> Iterator[Old]:
    """What became operands since, or went."""
    moments = (floats(3), floats(3), floats(3), np.abs(floats(3)))
    scale, bias, mean, variance = (each.reshape(3, 1, 1) for each in moments)
    normal = (IMAGE - mean) / np.sqrt(variance + 0.1) * scale + bias
    attributes = {"is_test": 1, "epsilon": 0.1}
    for opset in (1, 6):
        bounds = {"min": -0.5, "max": 0.4}
        yield Old("Clip", opset, (IMAGE,), (), bounds, result=IMAGE.clip(-0.5, 0.4))
        yield Old("Dropout", opset, (IMAGE,), (), {"is_test": 1}, result=IMAGE)
        yield Old("BatchNormalization", opset, (IMAGE,), moments, attributes, result=normal)
    for attributes in ({"max": 0.4}, {}):
        yield Old("Clip", 10, (IMAGE,), (), attributes)
    for mode in ("constant", "reflect", "edge"):
        pads = {"pads": [0, 0, 1, 2, 0, 0, 0, 1], "mode": mode}
        yield Old("Pad", 2, (IMAGE,), (), pads)
    yield Old("Pad", 2, (IMAGE,), (), {"pads": [0, 0, -1, 2, 0, 0, 0, -1], "value": 0.5})
    yield Old("Slice", 1, (IMAGE,), (), {"starts": [0, -2], "ends": [1, -1]})
    yield Old("Slice", 9, (IMAGE,), (), {"starts": [1, 0], "ends": [3, 100], "axes": [2, 3]})
    for operator in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2"):
        yield Old(operator, 1, (IMAGE,), (), {"axes": [1, 3]})
        yield Old(operator, 1, (IMAGE,), (), {"axes": [1], "keepdims": 0})
        yield Old(operator, 11, (IMAGE,), (), {"axes": [-1]})
        yield Old(operator, 11, (IMAGE,))
    for opset in (1, 11):
        yield Old("Squeeze", opset, (floats(2, 1, 3, 1),), (), {"axes": [1, 3]})
        yield Old("Unsqueeze", opset, (IMAGE,), (), {"axes": [0, 3]})
    yield Old("Split", 2, (IMAGE,), (), {"axis": 3, "split": [2, 4]}, outputs=2)
    yield Old("Split", 11, (IMAGE,), (), {"axis": 3}, outputs=2)
    yield Old("Reshape", 1, (IMAGE,), (), {"shape": [2, -1]})
    yield Old("Concat", 1, (IMAGE, IMAGE))
    yield Old("Flatten", 1, (IMAGE,), (), {"axis": 2})
    yield Old("TopK", 10, (IMAGE,), (whole(2),), outputs=2)
    yield Old("DepthToSpace", 1, (floats(1, 8, 2, 3),), (), {"blocksize": 2})
    yield Old("Gather", 1, (IMAGE,), (whole(0, 2),), {"axis": 1})


def _windows() -> Iterator[Old]:
    window = {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [0, 1, 1, 0]}
    for operator in ("MaxPool", "AveragePool"):
        for opset in (1, 8, 10):
            yield Old(operator, opset, (IMAGE,), (), window)
        ceil = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
        yield Old(operator, 10, (IMAGE,), (), ceil)
    padded = {"kernel_shape": [2, 3], "pads": [0, 1, 1, 0], "count_include_pad": 1}
    yield Old("AveragePool", 7, (IMAGE,), (), padded)
    larger = {"strides": [2, 2], "output_shape": [9, 13]}
    yield Old("ConvTranspose", 1, (IMAGE,), (floats(3, 4, 3, 3),), larger)


def _recurrent() -> Iterator[Old]:
    for operator, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        of = (floats(1, 4 * gates, 3), floats(1, 4 * gates, 4), floats(1, 8 * gates))
        yield Old(operator, 7, (floats(5, 2, 3),), of, {"hidden_size": 4}, outputs=2)
