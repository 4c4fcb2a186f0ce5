"""Functions of an .onnx file's own: read as what they are made of, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import FunctionProto, NodeProto, TensorProto, helper, numpy_helper

import tinyai
from tinyai.errors import ModelError

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
RELU = helper.make_node("Relu", ["a"], ["b"])


def function(
    name: str, nodes: Sequence[NodeProto], inputs: Sequence[str] = ("a",), opset: int = 17
) -> FunctionProto:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, [*inputs], ["b"], [*nodes], opsets)


def call(name: str, data: str = "a", result: str = "b", *more: str) -> NodeProto:
    return helper.make_node(name, [data, *more], [result], name=f"{name} of {data}", domain="own")


def written(folder: Path, node: NodeProto, functions: Sequence[FunctionProto] = ()) -> Path:
    """A product, ``node`` from "c" to "r", and pairs around both."""
    rng = np.random.default_rng(0)
    constants = {
        "s": np.float32(0.05),
        "z": np.int8(3),
        "w": rng.integers(-128, 128, (6, 5)).astype(np.int8),
        "t": np.float32(0.1),
        "o": np.int8(-5),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["wd"]),
        helper.make_node("MatMul", ["xd", "wd"], ["c"]),
        node,
        helper.make_node("QuantizeLinear", ["r", "t", "o"], ["rq"]),
        helper.make_node("DequantizeLinear", ["rq", "t", "o"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 6))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 5))
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=OPSETS, functions=functions)
    model.ir_version = 8
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


@pytest.mark.parametrize(
    "functions",
    [
        [function("F", [RELU])],
        [function("F", [call("G")]), function("G", [RELU])],
    ],
    ids=["alone", "nested"],
)
def test_a_function_is_what_it_is_made_of(
    functions: Sequence[FunctionProto], tmp_path: Path
) -> None:
    plain = tinyai.network_of(written(tmp_path, helper.make_node("Relu", ["c"], ["r"])))
    file = written(tmp_path, call("F", "c", "r"), functions)
    found = tinyai.network_of(file)
    assert [(n.op, n.epilogue) for n in found.graph.nodes] == [
        (n.op, n.epilogue) for n in plain.graph.nodes
    ]
    assert tinyai.check(file, samples=5).equal


@pytest.mark.parametrize(
    ("node", "functions", "said"),
    [
        (call("F", "c", "r"), [function("F", [call("F")])], "'F' that calls itself"),
        (
            call("F", "c", "r"),
            [function("F", [call("G")]), function("G", [call("F")])],
            "'F' that calls itself",
        ),
        (call("F", "c", "r", "c"), [function("F", [RELU])], "'F' with 2 inputs"),
        (call("F", "c", "r"), [function("F", [RELU], opset=13)], "a function of the file's own"),
        (call("F", "c", "r"), [function("F", [])], "reads 'r', which nothing before it makes"),
        (
            call("F0", "c", "r"),
            [
                *(
                    function(f"F{n}", [call(f"F{n + 1}", "a", "m"), call(f"F{n + 1}", "m", "b")])
                    for n in range(40)
                ),
                function("F40", [RELU]),
            ],
            "functions of more than 200000 operators",
        ),
        (
            call("F0", "c", "r"),
            [
                *(
                    function(f"F{n}", [call(f"F{n + 1}", "a", "m"), call(f"F{n + 1}", "m", "b")])
                    for n in range(40)
                ),
                function("F40", []),
            ],
            "functions of more than 200000 operators",
        ),
    ],
    ids=["recursion", "in turns", "inputs", "of another opset", "empty", "many", "many of nothing"],
)
def test_a_function_that_is_none_is_refused(
    node: NodeProto, functions: Sequence[FunctionProto], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError) as caught:
        tinyai.network_of(written(tmp_path, node, functions))
    assert said in str(caught.value)
