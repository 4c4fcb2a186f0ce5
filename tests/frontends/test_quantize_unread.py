"""Float .onnx files with operators that tinyai does not read: ONNX Runtime runs these, before and
after the quantization, and the rest gets its pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import tinyai
from tests.support.random_onnx import run
from tinyai.checking.onnxruntime import OnnxRuntimeOracle, exact_session
from tinyai.errors import BoundaryError, ModelError
from tinyai.frontends.onnx.load import read_whole
from tinyai.frontends.onnx.unread import in_opset, names_around, names_read, renamed
from tinyai.ir import Array
from tinyai.quantizer.report import output_row

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
RNG = np.random.default_rng(0)
SAMPLES = [{"x": RNG.normal(size=(1, 4, 8, 8)).astype(np.float32)} for _ in range(6)]
WEIGHTS = {
    "w": RNG.normal(size=(6, 4, 3, 3)) / 6,
    "fc": RNG.normal(size=(6, 5)),
    "zero": np.zeros(()),
    "gates": RNG.normal(size=(1, 12, 6)) / 3,
    "again": RNG.normal(size=(1, 12, 3)) / 3,
}


def node(kind: str, reads: str, makes: str, **attrs: object) -> NodeProto:
    return helper.make_node(kind, reads.split(), makes.split(), name=makes.split()[0], **attrs)


def model(
    nodes: Sequence[NodeProto], shape: Sequence[int], opset: int = 13, **constants: Array
) -> onnx.ModelProto:
    """A convolution of ``x`` that makes ``h`` [1, 6, 6, 6], and nodes that make ``y``."""
    known = {name: value.astype(np.float32) for name, value in WEIGHTS.items()} | constants
    graph = helper.make_graph(
        [node("Conv", "x w", "c"), node("Relu", "c", "h"), *nodes],
        "net",
        [helper.make_tensor_value_info("x", FLOAT, (1, 4, 8, 8))],
        [helper.make_tensor_value_info("y", FLOAT, shape)],
        [numpy_helper.from_array(value, name) for name, value in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def powers() -> onnx.ModelProto:
    """Roots of the sums of squares of whole images."""
    nodes = [
        node("GlobalLpPool", "h", "lengths"),
        node("Flatten", "lengths", "flat"),
        node("MatMul", "flat fc", "y"),
    ]
    return model(nodes, (1, 5))


def recurrent() -> onnx.ModelProto:
    """Of an LSTM that is not spelled out, for it has bounds, the state alone is read; its first
    result has no name."""
    sizes = {"sequence": np.array([36, 1, 6], np.int64)}
    nodes = [
        node("Reshape", "h sequence", "steps"),
        helper.make_node(
            "LSTM", ["steps", "gates", "again"], ["", "y"], "lstm", hidden_size=3, clip=9.0
        ),
    ]
    return model(nodes, (1, 1, 3), 14, **sizes)


def reductions() -> onnx.ModelProto:
    """Operators that another opset spells in another way: axes are an attribute here."""
    nodes = [
        node("Sigmoid", "h", "shares"),
        node("ReduceProd", "shares", "products", axes=[3], keepdims=0),
        node("MatMul", "products fc", "y"),
    ]
    return model(nodes, (1, 6, 5))


def branches(opset: int = 13) -> onnx.ModelProto:
    """Graphs inside of a node read a value around them, and a constant."""
    axes = {"axes": [1]} if opset < 18 else {}
    one, other = (
        helper.make_graph(
            [
                node("Mul", "h fc_part", f"{way}.product"),
                node("ReduceL1", f"{way}.product", way, keepdims=1, **axes),
            ],
            way,
            [],
            [helper.make_tensor_value_info(way, FLOAT, (1, 1, 6, 6))],
        )
        for way in ("then", "else")
    )
    nodes = [
        node("ReduceMax", "h", "largest", keepdims=0),
        node("Greater", "largest zero", "is_large"),
        node("If", "is_large", "y", then_branch=one, else_branch=other),
    ]
    part = {"fc_part": np.full((1, 6, 1, 1), 0.5, np.float32)}
    return model(nodes, (1, 1, 6, 6), opset, **part)


CASES = {"powers": powers, "recurrent": recurrent, "reductions": reductions, "branches": branches}


def results(file: Path, inputs: Mapping[str, Array]) -> list[Array]:
    session = exact_session(file, keeps_int8=False)
    return [np.asarray(each) for each in session.run(None, dict(inputs))]


@pytest.mark.parametrize("name", CASES)
def test_the_rest_gets_pairs_and_onnx_runtime_runs_all(name: str, tmp_path: Path) -> None:
    source, made = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    onnx.save(CASES[name](), source)
    quantized = tinyai.quantize_file(source, SAMPLES)
    quantized.save(made)
    assert [row.operator for row in quantized.report.layers][:2] == ["input", "Conv"]
    assert any(
        "operator" in str(each) or "attribute" in str(each) for each in quantized.report.left
    )
    floats, integers = ([results(file, each) for each in SAMPLES] for file in (source, made))
    (row,) = quantized.report.outputs
    found = output_row("", [each[0] for each in floats], [each[0] for each in integers])
    assert row.sqnr is not None
    assert found.sqnr is not None
    assert found.sqnr > 20
    assert abs(found.sqnr - row.sqnr) < 1.5  # ONNX Runtime's own kernels round in another way


def test_for_a_compiler_an_operator_that_is_not_read_ends_it_before_samples_run(
    tmp_path: Path,
) -> None:
    onnx.save(powers(), tmp_path / "float.onnx")
    with pytest.raises(BoundaryError, match="GlobalLpPool 'lengths': operator") as caught:
        tinyai.quantize_file(tmp_path / "float.onnx", [], whole=True)
    assert [row.operator for row in caught.value.report.host] == ["GlobalLpPool"]


def test_a_file_of_an_older_opset_becomes_one_with_pairs(tmp_path: Path) -> None:
    source = tmp_path / "old.onnx"
    nodes = [
        node("ReduceSum", "h", "sums", axes=[2, 3], keepdims=0),
        node("MatMul", "sums fc", "y"),
    ]
    onnx.save(model(nodes, (1, 5), 11), source)
    quantized = tinyai.quantize_file(source, SAMPLES)
    quantized.save(tmp_path / "int8.onnx")
    written = onnx.load(tmp_path / "int8.onnx")
    assert written.opset_import[0].version == 13
    network = tinyai.Model(tinyai.compile(tmp_path / "int8.onnx", tmp_path / "net.so"))
    for sample in SAMPLES:
        (wanted,) = run(written, sample)
        np.testing.assert_array_equal(network(sample["x"])[0], wanted)


def test_a_file_that_onnx_does_not_convert_is_told_before_any_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
        raise RuntimeError("no adapter")

    monkeypatch.setattr(onnx.version_converter, "convert_version", fails)
    onnx.save(model([node("Softmax", "h", "y")], (1, 6, 6, 6), 9), tmp_path / "old.onnx")
    with pytest.raises(ModelError, match="opset 9, which onnx does not convert to 13: no adapter"):
        tinyai.quantize_file(tmp_path / "old.onnx", SAMPLES)


def test_a_softmax_keeps_its_scale_through_moves(tmp_path: Path) -> None:
    """By another one ONNX Runtime's integers of two classes are infinite."""
    nodes = [
        node("GlobalAveragePool", "h", "means"),
        node("Flatten", "means", "flat"),
        node("MatMul", "flat two", "logits"),
        node("Softmax", "logits", "shares", axis=1),
        node("Identity", "shares", "y"),
    ]
    two = (RNG.normal(size=(6, 2)) / 9).astype(np.float32)
    onnx.save(model(nodes, (1, 2), two=two), tmp_path / "float.onnx")
    quantized = tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES)
    assert quantized.report.layers[-1].scale == 1 / 256
    quantized.save(tmp_path / "int8.onnx")
    tinyai.compile(tmp_path / "int8.onnx", tmp_path / "net.so")


def test_a_softmax_of_one_value_is_quantized_at_the_end(tmp_path: Path) -> None:
    nodes = [
        node("ReduceMax", "h", "top", axes=[1], keepdims=1),
        node("Softmax", "top", "y", axis=1),
    ]
    onnx.save(model(nodes, (1, 1, 6, 6)), tmp_path / "float.onnx")
    quantized = tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES)
    assert not quantized.report.left
    assert quantized.report.outputs[0].largest_error == 0


def test_products_of_two_values_are_written_with_pairs(tmp_path: Path) -> None:
    """A transposition between a value and the product, as in attention."""
    nodes = [
        node("Transpose", "h", "turned", perm=[0, 1, 3, 2]),
        node("MatMul", "h turned", "y"),
    ]
    onnx.save(model(nodes, (1, 6, 6, 6)), tmp_path / "float.onnx")
    tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES).save(tmp_path / "int8.onnx")
    network = tinyai.Model(tinyai.compile(tmp_path / "int8.onnx", tmp_path / "net.so"))
    (wanted,) = run(onnx.load(tmp_path / "int8.onnx"), SAMPLES[0])
    np.testing.assert_array_equal(network(SAMPLES[0]["x"])[0], wanted)


def resized(**attrs: object) -> NodeProto:
    return helper.make_node("Resize", ["h", "", "", "size"], ["y"], "y", mode="linear", **attrs)


SIZE = np.array([1, 6, 13, 9], np.int64)
# What readers read, and the model of floats has in a form of its own.
READ = {
    "centres": (resized(), SIZE),
    "corners": (resized(coordinate_transformation_mode="align_corners"), SIZE),
    "largest": (node("ArgMax", "h", "y", axis=1, keepdims=0), np.array([1, 6, 6])),
    "least": (node("ArgMin", "h", "y", axis=3, select_last_index=1), np.array([1, 6, 6, 1])),
}


@pytest.mark.parametrize("name", READ)
def test_images_are_resized_and_places_found_of_quantized_values(name: str, tmp_path: Path) -> None:
    operator, shape = READ[name]
    made = model([operator], shape.tolist(), size=SIZE)
    made.graph.output[0].type.tensor_type.elem_type = INT64 if "Arg" in operator.op_type else FLOAT
    onnx.save(made, tmp_path / "float.onnx")
    quantized = tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES)
    assert not quantized.report.left
    quantized.save(tmp_path / "int8.onnx")
    network = tinyai.Model(tinyai.compile(tmp_path / "int8.onnx", tmp_path / "net.so"))
    for sample in SAMPLES:
        (wanted,) = run(onnx.load(tmp_path / "int8.onnx"), sample)
        np.testing.assert_array_equal(network(sample["x"])[0], wanted)


def test_values_beside_constants_and_matrices_of_biases_are_quantized(tmp_path: Path) -> None:
    """A constant is joined to the channels of a value; a bias differs from row to row."""
    nodes = [
        node("Flatten", "h", "rows"),
        node("MatMul", "rows long", "two"),
        node("Concat", "two more", "six", axis=1),
        node("Relu", "six", "positive"),
        node("Gemm", "positive square matrix", "y"),
    ]
    constants = {
        "long": RNG.normal(size=(216, 2)) / 9,
        "more": np.array([[3.0, 0.1, 0.2, 5.0]]),
        "square": RNG.normal(size=(6, 5)),
        "matrix": RNG.normal(size=(1, 5)) * 1e6,
    }
    floats = {name: value.astype(np.float32) for name, value in constants.items()}
    onnx.save(model(nodes, (1, 5), **floats), tmp_path / "float.onnx")
    report = tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES).report
    assert report.sqnr is not None
    assert report.sqnr > 40


@pytest.mark.parametrize("opset", [13, 21, 23])
def test_constants_beside_values_are_quantized(opset: int, tmp_path: Path) -> None:
    """In a sum, a product and a concatenation, there ten times as large as the values."""
    nodes = [
        node("Add", "h plane", "sum"),
        node("Mul", "sum gate", "product"),
        node("Concat", "product large", "joined", axis=1),
        node("MaxPool", "joined", "y", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    shapes = {"plane": (1, 6, 6, 6), "gate": (1, 6, 1, 1), "large": (1, 6, 6, 6)}
    constants = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    constants["large"] *= 30
    onnx.save(model(nodes, (1, 12, 3, 3), opset, **constants), tmp_path / "float.onnx")
    quantized = tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES)
    assert quantized.report.sqnr is not None
    assert quantized.report.sqnr > 40
    quantized.save(tmp_path / "int8.onnx")
    networks = [
        tinyai.Model(tinyai.compile(made, tmp_path / f"{number}.so"))
        for number, made in enumerate((quantized.model, tmp_path / "int8.onnx"))
    ]
    for sample in SAMPLES:
        (wanted,) = results(tmp_path / "int8.onnx", sample)
        for network in networks:
            np.testing.assert_array_equal(network(sample["x"])[0], wanted)


def test_files_of_newer_opsets_load_with_onnx_runtime_s_own_settings(tmp_path: Path) -> None:
    """Of int8 it would make pairs of two types, for sums of three dimensions and around moves."""
    nodes = [
        node("Reshape", "h rows", "several"),
        node("MatMul", "several square", "products"),
        node("Add", "products offset", "sums"),
        node("Reshape", "sums size", "y"),
    ]
    constants = {
        "rows": np.array([1, 36, 6], np.int64),
        "size": np.array([6, 36], np.int64),
        "square": RNG.normal(size=(6, 6)).astype(np.float32),
        "offset": RNG.normal(size=6).astype(np.float32),
    }
    onnx.save(model(nodes, (6, 36), 21, **constants), tmp_path / "float.onnx")
    tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES).save(tmp_path / "int8.onnx")
    network = tinyai.Model(tinyai.compile(tmp_path / "int8.onnx", tmp_path / "net.so"))
    for sample in SAMPLES:
        (wanted,) = results(tmp_path / "int8.onnx", sample)
        np.testing.assert_array_equal(network(sample["x"])[0], wanted)


# --- Nodes under other names ---------------------------------------------------------------------


def branch_node() -> NodeProto:
    return branches().graph.node[-1]


def test_what_a_node_reads_is_read_inside_of_it_too() -> None:
    assert names_read(branch_node()) == ["is_large", "h", "fc_part"]
    assert {*names_around(branch_node())} == {"h", "fc_part"}


def test_names_inside_of_a_node_are_apart_from_those_around_it() -> None:
    made = renamed(branch_node(), {"h": "value7", "y": "value8"}, "value9.")
    assert (made.input[0], made.output[0]) == ("is_large", "value8")
    inside = made.attribute[0].g
    assert [list(each.input) for each in inside.node] == [
        ["value7", "fc_part"],
        ["value9.else.product"],
    ]
    assert inside.output[0].name == "value9.else"


def test_graphs_inside_of_a_node_are_of_the_new_opset() -> None:
    graph = in_opset(branch_node(), 13, 21, [])
    inside = graph.node[0].attribute[0].g
    new = {each.name for each in inside.initializer} | {o for n in inside.node for o in n.output}
    (reduction,) = (each for each in inside.node if each.op_type == "ReduceL1")
    assert not [each for each in reduction.attribute if each.name == "axes"]
    assert reduction.input[1] in new


def test_a_product_behind_an_operator_that_is_not_read_has_a_pair_for_its_data(
    tmp_path: Path,
) -> None:
    """As behind the norms of transformers."""
    nodes = [
        node("Reshape", "h steps", "sequence"),
        node("LayerNormalization", "sequence ones", "normed", axis=-1),
        node("MatMul", "normed fc", "y"),
    ]
    more = {"steps": np.array([1, 36, 6], np.int64), "ones": np.ones(6, np.float32)}
    onnx.save(model(nodes, (1, 36, 5), 17, **more), tmp_path / "float.onnx")
    quantized = tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES)
    quantized.save(tmp_path / "int8.onnx")
    written = onnx.load(tmp_path / "int8.onnx").graph.node
    makers = {name: each.op_type for each in written for name in each.output}
    (product,) = (each for each in written if each.op_type == "MatMul")
    assert [makers[name] for name in product.input] == ["DequantizeLinear"] * 2


def test_a_softmax_of_one_value_between_quantized_ones_is_not_made_integers(
    tmp_path: Path,
) -> None:
    """Those of ONNX Runtime are 0."""
    nodes = [
        node("GlobalAveragePool", "h", "means"),
        node("Softmax", "means", "ones", axis=2),
        node("Concat", "ones means", "y", axis=1),
    ]
    onnx.save(model(nodes, (1, 12, 1, 1)), tmp_path / "float.onnx")
    tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES).save(tmp_path / "int8.onnx")
    (result,) = results(tmp_path / "int8.onnx", SAMPLES[0])
    np.testing.assert_allclose(result[0, :6], 1, atol=0.02)


# Nodes that make y, and the values before it that have pairs.
SEVERAL: dict[str, tuple[list[NodeProto], str]] = {
    "sum_of_tensors": ([node("Sum", "h k plane", "y")], "h k"),
    "sum_of_constants_first": ([node("Sum", "plane number h k", "y")], "h k"),
    "largest_of_three": ([node("Max", "plane h k", "y")], "h k"),
    "smallest_of_two": ([node("Min", "h k", "y")], "h k"),
    "largest_of_constants": ([node("Max", "h plane", "y")], "h"),
    "a_sum_is_a_bias": ([node("Conv", "h square", "c2"), node("Sum", "c2 channels", "y")], "h"),
    "an_addition_is_a_bias": (
        [node("Conv", "h square", "c2"), node("Add", "c2 channels", "y")],
        "h",
    ),
    "numbers_are_a_bias": ([node("Conv", "h square", "c2"), node("Sum", "number c2", "y")], "h"),
    "a_sum_of_two_is_none": (
        [node("Conv", "h square", "c2"), node("Sum", "c2 channels plane", "y")],
        "h c2",
    ),
    "rows_apart_are_none": ([node("MatMul", "h matrix", "m"), node("Add", "m plane", "y")], "h m"),
    "a_function_before": ([node("Sigmoid", "h", "s"), node("Sum", "s number k", "y")], "h s k"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SEVERAL)
def test_a_node_of_several_values_is_rounded_once(name: str, tmp_path: Path) -> None:
    """In memory, in the file, and in ONNX Runtime."""
    nodes, pairs = SEVERAL[name]
    constants = {
        "plane": RNG.normal(size=(1, 6, 6, 6)),
        "channels": RNG.normal(size=(6, 1, 1)),
        "number": np.array([0.3]),
        "square": RNG.normal(size=(6, 6, 1, 1)),
        "matrix": RNG.normal(size=(6, 6)),
    }
    floats = {each: value.astype(np.float32) for each, value in constants.items()}
    average = node("AveragePool", "h", "k", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    made = [average, *nodes]
    onnx.save(model(made, (1, 6, 6, 6), 13, **floats), tmp_path / "float.onnx")
    quantized = tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES)
    assert not quantized.report.left
    quantized.save(tmp_path / "int8.onnx")
    written = onnx.load(tmp_path / "int8.onnx").graph.node
    rounded = [each.name.split("_")[0] for each in written if each.op_type == "QuantizeLinear"]
    assert {*rounded} == {"x", *pairs.split(), "y"}
    of_file, of_memory = (
        tinyai.Model(tinyai.compile(made, tmp_path / f"{number}.so"))
        for number, made in enumerate((tmp_path / "int8.onnx", quantized.model))
    )
    theirs = OnnxRuntimeOracle(tmp_path / "int8.onnx", ["x"])  # with averages of int8
    given = [(sample["x"],) for sample in SAMPLES]
    for (x,), (wanted,) in zip(given, theirs.results(given), strict=True):
        for network in (of_file, of_memory):
            np.testing.assert_array_equal(network(x)[0], wanted)


def test_a_sum_behind_a_layer_that_stays_float_reads_a_pair(tmp_path: Path) -> None:
    nodes = [node("Conv", "h square", "c2"), node("Sum", "c2 channels h", "y")]
    constants = {"square": RNG.normal(size=(6, 6, 1, 1)), "channels": RNG.normal(size=(6, 1, 1))}
    floats = {each: value.astype(np.float32) for each, value in constants.items()}
    onnx.save(model(nodes, (1, 6, 6, 6), 13, **floats), tmp_path / "float.onnx")
    config = tinyai.QuantConfig(float_layers=("c2",))
    quantized = tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES, config)
    quantized.save(tmp_path / "int8.onnx")
    (total,) = (n for n in onnx.load(tmp_path / "int8.onnx").graph.node if n.op_type == "Sum")
    assert all("DequantizeLinear" in name for name in total.input), total.input


@pytest.mark.parametrize(
    "kind", ["Mean", "ReduceL1", "ReduceSumSquare", "MeanVarianceNormalization"]
)
def test_what_is_spelled_out_stays_as_it_is_behind_a_value_of_unknown_type(
    kind: str, tmp_path: Path
) -> None:
    pool = {"auto_pad": "SAME_LOWER", "kernel_shape": [2, 3], "ceil_mode": 1, "dilations": [1, 2]}
    made = model([node("MaxPool", "h", "m", **pool), node(kind, "m", "y")], ())
    made.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(made, tmp_path / "float.onnx")
    quantized = tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES)
    left = {each.operator: each.reason for each in quantized.report.left}
    assert left.keys() == {"MaxPool", kind}
    assert "unknown" in left[kind]
    quantized.save(tmp_path / "int8.onnx")
    (wanted,), (found,) = (
        run(each, SAMPLES[0]) for each in (made, onnx.load(tmp_path / "int8.onnx"))
    )
    assert output_row("", [wanted], [found]).sqnr > 20


def test_what_is_of_as_many_rows_as_a_sample_says_stays_in_float(tmp_path: Path) -> None:
    """As of the tokens of a kind in a sentence."""
    nodes = [
        node("NonZero", "h", "places"),
        node("Cast", "places", "numbers", to=TensorProto.FLOAT),
        node("Gemm", "numbers weights offsets", "layer", transA=1),
        node("Sigmoid", "layer", "shares"),
        node("ReduceSum", "shares", "total", keepdims=0),
        node("Mul", "h total", "y"),
    ]
    floats = {"weights": RNG.normal(size=(4, 3)), "offsets": RNG.normal(size=3)}
    made = model(nodes, (1, 6, 6, 6), 18, **{k: v.astype(np.float32) for k, v in floats.items()})
    onnx.save(made, tmp_path / "float.onnx")
    quantized = tinyai.quantize_file(tmp_path / "float.onnx", SAMPLES)
    left = [each.operator for each in quantized.report.left]
    assert left.count("Gemm") == left.count("Sigmoid") == 1
    quantized.save(tmp_path / "int8.onnx")
    (wanted,), (found,) = (
        run(each, SAMPLES[0]) for each in (made, onnx.load(tmp_path / "int8.onnx"))
    )
    assert output_row("", [wanted], [found]).sqnr > 20


@pytest.mark.parametrize("attrs", [{}, {"axis": 2}, {"axis": -1}])
def test_a_hardmax_of_an_older_opset_keeps_its_dimensions(
    attrs: dict[str, int], tmp_path: Path
) -> None:
    apart = {"y/0": np.zeros(1)}  # a name of the file's own
    made = model([node("Hardmax", "h", "y", **attrs)], (1, 6, 6, 6), 12, **apart)
    onnx.save(made, tmp_path / "float.onnx")
    newer = read_whole(tmp_path / "float.onnx", "", 13).proto
    assert newer.opset_import[0].version == 13
    for sample in SAMPLES:
        np.testing.assert_array_equal(run(newer, sample)[0], run(made, sample)[0])
