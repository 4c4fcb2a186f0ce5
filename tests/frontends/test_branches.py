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
from tinyai.errors import BoundaryError, OptionError
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


def asked() -> onnx.ModelProto:
    """A model whose first branch an input picks."""
    proto = model()
    proto.graph.input.append(helper.make_tensor_value_info("which", TensorProto.BOOL, ()))
    proto.graph.node[5].input[0] = "which"
    return proto


@pytest.mark.parametrize("which", ["true", "false"])
def test_an_input_that_always_has_one_value_picks_the_branch(which: str, tmp_path: Path) -> None:
    onnx.save(asked(), tmp_path / "net.onnx")
    given = f"x:2x{WIDTH} which={which}"
    quantized = tinyai.quantize_file(tmp_path / "net.onnx", SAMPLES, input_shapes=given)
    assert [end.name for end in quantized.model.inputs] == ["x"]
    quantized.save(tmp_path / "int8.onnx")
    assert tinyai.check(tmp_path / "int8.onnx").equal
    calls = [e for e in post_order(quantized.model.result) if isinstance(e, Call)]
    assert any(call.name == "first/product" for call in calls) == (which == "true")
    inputs = {**SAMPLES[0], "which": np.array(which == "true")}
    (wanted,) = run_onnx(onnx.load(tmp_path / "net.onnx"), inputs)
    (found,) = run_onnx(onnx.load(tmp_path / "int8.onnx"), SAMPLES[0])
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


def test_the_oracle_of_a_file_has_the_value_too(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["product"], "product"),
        helper.make_node("Relu", ["product"], ["y"], "relu"),
    ]
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, WIDTH))] for n in "xy"]
    graph = helper.make_graph(nodes, "net", *ends, [dense("weight")])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "net.onnx")
    tinyai.quantize_file(tmp_path / "net.onnx", SAMPLES).save(tmp_path / "int8.onnx")
    proto = onnx.load(tmp_path / "int8.onnx")
    (scale,) = (each for each in proto.graph.initializer if each.name == "x_scale")
    value = float(numpy_helper.to_array(scale))
    proto.graph.initializer.remove(scale)
    proto.graph.input.append(helper.make_tensor_value_info("x_scale", TensorProto.FLOAT, ()))
    onnx.save(proto, tmp_path / "open.onnx")
    assert tinyai.check(tmp_path / "open.onnx", input_shapes=f"x_scale={value}").equal


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ("which=2", "a number of its type, bool"),
        ("x=1e39", "a number of its type, float32"),
        ("witch=1", "inputs of the model: x, which"),
        ("which=1 which=0", "each name once"),
        ("x:2x8 which=yes", "name=16000 for an input that always has one value"),
    ],
)
def test_values_that_no_input_takes_are_errors(given: str, allowed: str, tmp_path: Path) -> None:
    onnx.save(asked(), tmp_path / "net.onnx")
    with pytest.raises(OptionError) as error:
        tinyai.explain(tmp_path / "net.onnx", input_shapes=given)
    assert allowed in str(error.value)


def test_a_condition_of_run_time_is_refused_with_the_reason(tmp_path: Path) -> None:
    onnx.save(asked(), tmp_path / "net.onnx")
    samples = [{**each, "which": np.array(True)} for each in SAMPLES]
    with pytest.raises(BoundaryError) as error:
        tinyai.quantize_file(tmp_path / "net.onnx", samples, whole=True)
    assert error.value.found == "If 'first': operator: If with a condition of run time"
    assert "--input-shapes NAME=VALUE" in error.value.allowed


def test_layers_behind_a_branch_that_nothing_decides_are_quantized(tmp_path: Path) -> None:
    """Its results have the types that both branches make."""
    proto, made = asked(), tmp_path / "int8.onnx"
    proto.graph.node[-1].output[0] = "total"
    proto.graph.node.append(helper.make_node("MatMul", ["total", "last"], ["y"], "last"))
    proto.graph.initializer.append(dense("last"))
    onnx.save(proto, tmp_path / "net.onnx")
    samples = [{**each, "which": np.array(n % 2 > 0)} for n, each in enumerate(SAMPLES)]

    quantized = tinyai.quantize_file(tmp_path / "net.onnx", samples)

    quantized.save(made)
    assert "last" not in {each.name for each in quantized.report.left}
    weights = {each.name: each.data_type for each in onnx.load(made).graph.initializer}
    assert weights["last_quantized"] == TensorProto.INT8
    for sample in samples:
        (wanted,) = run_onnx(proto, sample)
        (found,) = run_onnx(onnx.load(made), sample)
        assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


@pytest.mark.parametrize("opset", [13, 17])
def test_a_recurrent_node_inside_of_one_stays_with_it(opset: int, tmp_path: Path) -> None:
    """onnx's converter sees it with the types of what it reads."""
    weights = {"w": (WIDTH, WIDTH), "r": (1, 4 * WIDTH, WIDTH), "last": (WIDTH, WIDTH)}
    known = [
        numpy_helper.from_array((RNG.normal(size=size) / 3).astype(np.float32), name)
        for name, size in weights.items()
    ]
    known.append(numpy_helper.from_array(np.array([1]), "axis"))
    lstm = helper.make_node("LSTM", ["h", "r", "r"], ["steps"], "lstm", hidden_size=WIDTH)
    squeezed = helper.make_node("Squeeze", ["steps", "axis"], ["one"], "one")
    other = helper.make_node("Neg", ["h"], ["two"], "two")
    branches = {
        "then_branch": branch([lstm, squeezed], ["one"]),
        "else_branch": branch([other], ["two"]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "first"),
        helper.make_node("If", ["which"], ["made"], "choice", **branches),
        helper.make_node("MatMul", ["made", "last"], ["y"], "last"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, 1, WIDTH)) for name in "xy")
    which = helper.make_tensor_value_info("which", TensorProto.BOOL, ())
    graph = helper.make_graph(nodes, "net", [x, which], [y], known)
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "net.onnx")
    samples = [
        {"x": RNG.normal(size=(4, 1, WIDTH)).astype(np.float32), "which": np.array(n % 2 > 0)}
        for n in range(6)
    ]

    quantized = tinyai.quantize_file(tmp_path / "net.onnx", samples)

    quantized.save(tmp_path / "int8.onnx")
    noise = quantized.report.outputs[0].sqnr
    assert noise is not None
    assert noise > 20
