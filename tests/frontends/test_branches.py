"""An If whose condition a file and its shapes decide is the branch that is taken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tests.support.onnx_models import run_onnx
from tinyai.errors import BoundaryError
from tinyai.frontends.files import read_file
from tinyai.frontends.whole import network_of
from tinyai.reference import run_graph
from tinyai.source import Call, post_order

RNG = np.random.default_rng(0)
WIDTH = 8
SAMPLES = [{"x": RNG.normal(size=(2, WIDTH)).astype(np.float32)} for _ in range(6)]


def dense(name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32), name)


def branch(
    nodes: Sequence[onnx.NodeProto], results: Sequence[str], *constants: onnx.TensorProto
) -> onnx.GraphProto:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in results]
    return helper.make_graph(list(nodes), "branch", [], ends, list(constants))


def chosen(condition: str, results: Sequence[str], name: str, inner: str) -> onnx.NodeProto:
    """An If, both of whose branches read ``around``; what they make is named as in any other. The
    first one gives a sum too."""
    multiplied = helper.make_node("MatMul", ["around", "weight"], ["made"], f"{name}/product")
    bounded = helper.make_node(inner, ["made"], ["bounded"], f"{name}/{inner}")
    added = helper.make_node("Add", ["bounded", "around"], ["sum"], f"{name}/sum")
    other = helper.make_node("Neg", ["around"], ["made"], f"{name}/Neg")
    same = helper.make_node("Identity", ["around"], ["sum"], f"{name}/same")
    left = ["bounded", "sum"][: len(results)]
    right = ["made", "sum"][: len(results)]
    return helper.make_node(
        "If",
        [condition],
        results,
        name,
        then_branch=branch([multiplied, bounded, added], left, dense("weight")),
        else_branch=branch([other, same], right),
    )


def model(*, nested: bool = False) -> onnx.ModelProto:
    """Two that the number of dimensions decides, one each way, or the second inside of the first;
    ``weight``, ``made`` and ``sum`` are names of each."""
    first = chosen("is_two", ["one", "both"], "first", "Relu")
    second = chosen("is_two", ["y"], "second", "Sigmoid")
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], "shape"),
        helper.make_node("Size", ["shape"], ["rank"], "rank"),
        helper.make_node("Equal", ["rank", "two"], ["is_two"], "equal"),
        helper.make_node("Not", ["is_two"], ["is_none"], "not"),
        helper.make_node("Identity", ["x"], ["around"], "around"),
    ]
    if nested:
        inside = branch([second], ["y"])
        same = helper.make_node("Identity", ["x"], ["made"])
        nodes += [
            helper.make_node(
                "If",
                ["is_none"],
                ["y"],
                "outer",
                then_branch=branch([same], ["made"]),
                else_branch=inside,
            )
        ]
        inside.node.insert(0, first)
        inside.node[1].input[0] = "is_two"
    else:
        third = chosen("is_none", ["z"], "third", "Relu")
        total = helper.make_node("Sum", ["one", "both", "s", "z"], ["y"], "total")
        second.output[0] = "s"
        nodes += [first, second, third, total]
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, WIDTH))] for n in "xy"]
    two = numpy_helper.from_array(np.array(2, np.int64), "two")
    graph = helper.make_graph(nodes, "net", *ends, [two])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("nested", [False, True])
def test_the_branch_that_is_taken_is_quantized_and_equals_onnx_runtime(
    nested: bool, tmp_path: Path
) -> None:
    source, made = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    onnx.save(model(nested=nested), source)
    (floats,) = run_onnx(onnx.load(source), SAMPLES[0])
    quantized = tinyai.quantize_file(source, SAMPLES)
    assert not [each for each in quantized.report.left if each.operator == "If"]
    quantized.save(made)
    assert not [node for node in onnx.load(made).graph.node if node.op_type == "If"]
    graph = network_of(read_file(made), "net", "onnx").graph
    for sample in SAMPLES:
        (wanted,) = run_onnx(onnx.load(made), sample)
        (found,) = run_graph(graph, [sample["x"]])
        np.testing.assert_array_equal(found, wanted)
    (first,) = run_graph(graph, [SAMPLES[0]["x"]])
    assert np.abs(first - floats).max() < 0.05 * np.abs(floats).max()


def test_layers_inside_of_a_branch_keep_their_names(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "net.onnx")
    calls = [e for e in post_order(read_file(tmp_path / "net.onnx").result) if isinstance(e, Call)]
    names = {call.name for call in calls}
    assert {"first/product", "second/product", "third/Neg"} <= names
    assert not {"first/Neg", "third/product"} & names


def test_a_condition_of_run_time_is_refused_with_the_reason(tmp_path: Path) -> None:
    proto = model()
    proto.graph.input.append(helper.make_tensor_value_info("which", TensorProto.BOOL, ()))
    proto.graph.node[5].input[0] = "which"
    onnx.save(proto, tmp_path / "net.onnx")
    with pytest.raises(BoundaryError) as error:
        tinyai.quantize_file(
            tmp_path / "net.onnx", [{**s, "which": np.array(True)} for s in SAMPLES], whole=True
        )
    assert error.value.found == "If 'first': operator: If with a condition of run time"
    assert error.value.allowed == "a condition that is known from the file and its shapes"
