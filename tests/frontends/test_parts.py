"""``explain`` of a file of which not all is taken: the regions that a host could call, and why the
rest stays outside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tests.support.onnx_models import Model, quantized
from tests.support.random_onnx import random_onnx, write
from tests.support.random_tflite import Value, Writer
from tinyai.cli import main
from tinyai.frontends.files import explain_file
from tinyai.partition.reasons import NEIGHBOURS
from tinyai.report import Report
from tinyai.target import Target

HOSTS = "RANDOM_STANDARD_NORMAL"  # which no code of ours will ever compute


def sum_of(w: Writer, one: Value, other: Value) -> Value:
    result = w.value(one.shape)
    w.add("ADD", [one.index, other.index], [result.index], "Add", fusedActivationFunction=1)
    return result


def diamond() -> bytes:
    """A sum, an operator of the host that reads it, and a sum of both: two regions, for the first
    sum is needed before the host's operator and the second after it."""
    w = Writer(np.random.default_rng(1))
    x = w.value([1, 4, 4, 8])
    first = sum_of(w, x, w.constant([1, 4, 4, 8]))
    strange = w.value([1, 4, 4, 8])
    w.add(HOSTS, [first.index], [strange.index])
    last = sum_of(w, first, strange)
    w.graph.inputs, w.graph.outputs = [x.index], [last.index]
    return w.content()


def written(folder: Path, content: bytes, suffix: str = ".tflite") -> Path:
    file = folder / f"net{suffix}"
    file.write_bytes(content)
    return file


def test_an_operator_of_the_host_divides_a_file(tmp_path: Path) -> None:
    report = tinyai.explain(written(tmp_path, diamond()), isa="scalar")
    (row,) = report.host
    assert (row.operator, row.reason.clause, row.boundary_bytes) == (HOSTS, "operator", 256)
    assert [region.symbol for region in report.regions] == ["net_0", "net_1"]
    assert [dict(region.operators) for region in report.regions] == [{"ADD": 1}] * 2
    assert report.regions[0].weight_bytes > 0
    assert "2 regions (0 MACs); on the host 1 operator that computes" in str(report)


def test_the_command_tells_the_same_and_strict_ends_with_1(tmp_path: Path) -> None:
    file = written(tmp_path, diamond())
    words = ["explain", str(file), "--isa", "scalar", "--json"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0
    assert Report.from_json(done.stdout) == Report(
        *vars(tinyai.explain(file, isa="scalar")).values()
    )
    assert CliRunner().invoke(main, [*words, "--strict"]).exit_code == 1


def test_an_operator_that_became_several_calls_stays_out_as_a_whole(tmp_path: Path) -> None:
    """The clamp of a sum would be left in a region of its own."""
    w = Writer(np.random.default_rng(2))
    x = w.value([1, 300])
    low, high = w.value([1, 300]), w.value([1, 300])
    w.add("RELU", [x.index], [low.index])
    strange = w.value([1, 300], 1e30)
    w.add("ADD", [x.index, strange.index], [high.index], "Add", fusedActivationFunction=1)
    w.add(HOSTS, [x.index], [strange.index])
    w.graph.operators = [w.graph.operators[each] for each in (0, 2, 1)]
    w.graph.inputs, w.graph.outputs = [x.index], [low.index, high.index]
    report = tinyai.explain(written(tmp_path, w.content()), isa="scalar")
    names = [row.operator for row in report.host]
    assert len(names) == len(set(names))
    inside = [name for region in report.regions for name, _ in region.operators]
    assert not set(inside) & set(names)


def test_the_row_of_an_operator_has_its_own_result_and_work(tmp_path: Path) -> None:
    """Not those of the transposition of its weights."""
    nodes = (
        helper.make_node("MatMul", ["x", "one"], ["a"]),
        helper.make_node("Abs", ["a"], ["b"]),  # of floats, which no product reads
        helper.make_node("MatMul", ["b", "two"], ["y"]),
    )
    rng = np.random.default_rng(0)
    weights = {"one": (rng.normal(size=(25, 20)), None), "two": (rng.normal(size=(20, 11)), 1)}
    proto, _ = quantized(Model(nodes, {"x": (34, 25)}, weights=weights), "int8")
    report = tinyai.explain(written(tmp_path, proto.SerializeToString(), ".onnx"))
    rows = {row.name: (row.operator, row.type, row.macs) for row in report.host}
    assert rows["a"] == ("MatMul", "float32[34,20]", 34 * 25 * 20)
    assert rows["y"] == ("MatMul", "float32[34,11]", 34 * 20 * 11)
    assert sum(row.macs or 0 for row in report.host) == 24_480


def pairs_around(middle: str) -> bytes:
    """An ONNX file: a ReLU, an operator, a ReLU, with pairs between them."""
    nodes, value = [], "x"
    scale, zero = (numpy_helper.from_array(np.array(v, t), n) for n, v, t in CONSTANTS)
    for number, kind in enumerate(("", "Relu", middle, "Relu")):
        if kind:
            nodes.append(helper.make_node(kind, [value], [f"{kind}{number}"], f"{kind}{number}"))
            value = f"{kind}{number}"
        for pair in ("QuantizeLinear", "DequantizeLinear"):
            name = f"{pair}{number}"
            nodes.append(helper.make_node(pair, [value, "scale", "zero"], [name], name))
            value = name
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8))] for name in ("x", value)
    ]
    graph = helper.make_graph(nodes, "net", *ends, [scale, zero])
    opsets = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


CONSTANTS = (("scale", 0.1, "float32"), ("zero", 3, "int8"))


def test_pairs_beside_an_operator_of_the_host_go_with_it(tmp_path: Path) -> None:
    report = tinyai.explain(written(tmp_path, pairs_around("Hardmax"), ".onnx"), isa="scalar")
    assert {row.operator for row in report.computing} >= {"Hardmax"}
    beside = [row.operator for row in report.host if row.reason.clause == NEIGHBOURS]
    assert {*beside} <= {"QuantizeLinear", "DequantizeLinear"}
    assert beside
    assert len(report.regions) == 2
    assert "Quantize" not in "".join(row.operator for row in report.shown)


def test_a_float_file_has_no_regions(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], "relu")
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 8))] for n in "xy"]
    graph = helper.make_graph([node], "net", *ends)
    opsets = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    report = tinyai.explain(written(tmp_path, model.SerializeToString(), ".onnx"))
    assert (len(report.host), report.regions) == (1, ())


def test_a_float_file_tells_what_the_quantizer_would_leave_and_the_rest_in_one_row(
    tmp_path: Path,
) -> None:
    """A recurrent operator is read as the quantizer does, spelled out."""
    rng = np.random.default_rng(0)
    ends = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)]
        for n, s in (("x", (3, 1, 8)), ("y", (1, 6)))
    ]
    nodes = [
        helper.make_node("GRU", ["x", "w", "r"], ["", "last"], "gru", hidden_size=4),
        helper.make_node("Squeeze", ["last", "axis"], ["flat"], "flat"),
        helper.make_node("Hardmax", ["flat"], ["hard"], "hard"),
        helper.make_node("MatMul", ["hard", "dense"], ["sums"], "dense"),
        helper.make_node("Relu", ["sums"], ["y"], "relu"),
    ]
    shapes = {"w": (1, 12, 8), "r": (1, 12, 4), "dense": (4, 6)}
    constants = {name: rng.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    constants["axis"] = np.array([0], np.int64)
    known = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "net", *ends, known)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    report = tinyai.explain(written(tmp_path, model.SerializeToString(), ".onnx"))
    quantizable, left = report.shown
    assert quantizable.operator.endswith(" operators")
    assert "1 MatMul" in quantizable.name
    assert "quantize the model first" in quantizable.hint
    assert (left.operator, left.name, left.reason.clause) == ("Hardmax", "hard", "operator")
    assert "GRU" not in str(report)


def test_random_files_are_divided_wherever_they_are_refused(tmp_path: Path) -> None:
    refused = 0
    for seed in range(60):
        file = tmp_path / "net.onnx"
        write(file, model := random_onnx(seed), is_open=False)
        report = explain_file(file, Target(isa="scalar", rounding="onnx"))
        refused += bool(report.computing)
        names = {node.name for node in onnx.load(file).graph.node}
        assert {row.name for row in report.computing} <= names | {*model.inputs}
    assert refused > 0
