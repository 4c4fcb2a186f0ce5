"""A float .onnx file with the quantizer's pairs in it: ONNX Runtime, OpenVINO and tinyai run it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import tinyai
from benchmarks.digits.data import load_split
from benchmarks.float_networks import sqnr
from tests.support.paths import DIGITS, MODELS
from tests.support.random_onnx import run
from tinyai import QuantConfig
from tinyai.checking.onnxruntime import OnnxRuntimeOracle
from tinyai.checking.peers import in_openvino
from tinyai.errors import OptionError
from tinyai.frontends.onnx import quantized as writer
from tinyai.frontends.whole import network_of
from tinyai.ir import Array
from tinyai.reference import run_graph
from tinyai.source import Call, Constant, post_order

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pairs") / "digits.onnx"
    shown = [{"image": image} for image in load_split().train.images[:64]]
    tinyai.quantize_file(DIGITS, shown).save(file)
    return file


def test_onnx_runtime_s_kernels_and_tinyai_make_the_same_values(digits: Path) -> None:
    model = tinyai.Model(digits)
    images = load_split().held_out.images[:50, None]
    in_integers = OnnxRuntimeOracle(digits, ["image"]).results([(image,) for image in images])
    for image, (wanted,) in zip(images, in_integers, strict=True):
        np.testing.assert_array_equal(model(image)[0], wanted)


def test_openvino_runs_it_too(digits: Path) -> None:
    compiled = in_openvino(openvino.Core(), digits, {})
    images = load_split().held_out.images[:50]
    found = [np.asarray(compiled([image[None]])[0]) for image in images]
    wanted = [run(onnx.load(DIGITS), {"image": image[None]})[0] for image in images]
    assert sqnr(wanted, found) > 25


def test_nodes_and_values_keep_their_names_and_layers_have_integers(digits: Path) -> None:
    source, made = onnx.load(DIGITS), onnx.load(digits)
    onnx.checker.check_model(made, full_check=True)
    pairs = ("QuantizeLinear", "DequantizeLinear")
    kept = {(n.op_type, n.name) for n in made.graph.node if n.op_type not in pairs}
    wanted = {(n.op_type, n.name) for n in source.graph.node}
    assert kept == {each for each in wanted if each[0] != "BatchNormalization"}
    for end in ("input", "output"):
        assert [e.name for e in getattr(made.graph, end)] == [
            e.name for e in getattr(source.graph, end)
        ]
    constants = {each.name: numpy_helper.to_array(each) for each in made.graph.initializer}
    makers = {node.output[0]: node for node in made.graph.node}
    layers = [node for node in made.graph.node if node.op_type in ("Conv", "Gemm")]
    assert len(layers) == 10
    for layer in layers:
        data, weight, bias = (makers[name] for name in layer.input)
        assert data.op_type == "DequantizeLinear"
        steps, scales = (constants[name] for name in weight.input[:2])
        assert steps.dtype == np.int8
        assert scales.shape == (steps.shape[0],)
        sums, of_sums = (constants[name] for name in bias.input[:2])
        assert sums.dtype == np.int32
        np.testing.assert_array_equal(of_sums, constants[data.input[1]] * scales)


# --- Models of a few nodes -----------------------------------------------------------------------


def node(kind: str, *inputs: str, to: str, **attrs: Any) -> NodeProto:
    return helper.make_node(kind, inputs, to.split(), name=f"of_{to}", **attrs)


SHAPES: dict[str, tuple[int, ...]] = {
    "image": (1, 4, 8, 8),
    "rows": (2, 6),
    "batch": (1, 3, 6),
    "w": (4, 4, 3, 3),
    "w1": (4, 1, 3, 3),
    "m": (6, 5),
    "t": (5, 6),
    "v": (5,),
    "c": (4,),
    "k": (1, 4, 1, 1),
    "positive": (4,),
    "full": (1, 4, 8, 8),
}
INPUTS = ("image", "rows", "batch")
NORM = ("c", "c", "c", "positive")
CASES: dict[str, list[NodeProto]] = {
    "MatMul and Add of rows": [
        node("MatMul", "rows", "m", to="p"),
        node("Add", "p", "v", to="y"),
    ],
    "MatMul and Add of batches": [
        node("MatMul", "batch", "m", to="p"),
        node("Add", "v", "p", to="y"),
    ],
    "a number behind a product": [
        node("MatMul", "rows", "m", to="p"),
        node("Add", "one", "p", to="y"),
    ],
    "numbers of rows behind a product": [
        node("MatMul", "rows", "square", to="p"),
        node("Add", "p", "two", to="y"),
    ],
    "Gemm with a factor": [node("Gemm", "rows", "m", "v", to="y", beta=2.0)],
    "Gemm turned": [node("Gemm", "rows", "t", "v", to="y", transB=1)],
    "transposed convolution": [node("ConvTranspose", "image", "w", to="y", strides=[2, 2])],
    "norm after a layer": [
        node("Conv", "image", "w", "c", to="p"),
        node("BatchNormalization", "p", *NORM, to="q"),
        node("Relu", "q", to="y"),
    ],
    "norm without a layer": [
        node("MaxPool", "image", to="p", kernel_shape=[2, 2]),
        node("BatchNormalization", "p", *NORM, to="y"),
    ],
    "norm of a value with two readers": [
        node("Conv", "image", "w", to="p", pads=[1] * 4),
        node("BatchNormalization", "p", *NORM, to="q"),
        node("Add", "p", "q", to="y"),
    ],
    "sum and product with constants": [
        node("Add", "image", "full", to="p"),
        node("Mul", "p", "full", to="y"),
    ],
    "factors of channels after a layer": [
        node("Conv", "image", "w1", to="p", group=4),
        node("Mul", "p", "k", to="q"),
        node("Add", "q", "k", to="y"),
    ],
    "outputs on the way": [
        node("Conv", "image", "w", to="y1", pads=[1] * 4),
        node("Relu", "y1", to="y2"),
        node("Conv", "y2", "w", to="y"),
    ],
    "a value under two names": [
        node("Conv", "image", "w", to="p", pads=[1] * 4),
        node("Identity", "p", to="q"),
        node("Add", "p", "q", to="r"),
        node("Conv", "q", "w", to="s", pads=[1] * 4),
        node("Add", "r", "s", to="y"),
    ],
    "parts": [
        node("Split", "image", to="p q", axis=1),
        node("Sigmoid", "p", to="r"),
        node("Concat", "q", "r", to="s", axis=1),
        node("HardSigmoid", "s", to="g"),
        node("Mul", "s", "g", to="y"),
    ],
    "a line within bounds behind a layer": [
        node("Conv", "image", "w", "c", to="p", pads=[1] * 4),
        node("HardSigmoid", "p", to="g"),
        node("Mul", "image", "g", to="y"),
    ],
    "names between a layer and what belongs to it": [
        node("Conv", "image", "w", to="p", pads=[1] * 4),
        node("Identity", "p", to="q"),
        node("HardSigmoid", "q", to="y", alpha=0.25, beta=0.4),
    ],
    "a norm behind a name": [
        node("Conv", "image", "w", to="p"),
        node("Identity", "p", to="q"),
        node("BatchNormalization", "q", *NORM, to="y"),
    ],
    "shares of few": [
        node("MatMul", "rows", "m", to="p"),
        node("Mul", "p", "small", to="q"),
        node("Softmax", "q", to="y"),
    ],
    "names that pairs have": [
        node("Conv", "image", "w", to="image_scale", pads=[1] * 4),
        node("Conv", "image_scale", "w", to="image_DequantizeLinear_Output", pads=[1] * 4),
        node("Add", "image_scale", "image_DequantizeLinear_Output", to="y"),
    ],
    "the result of a layer under another name": [
        node("Conv", "image", "w", "c", to="p"),
        node("Identity", "p", to="y"),
    ],
    "numbers along the last of four dimensions": [
        node("Mul", "image", "eight", to="p"),
        node("Conv", "p", "w", to="y"),
    ],
    "a norm of sequences": [
        node("Sigmoid", "batch", to="p"),
        node("BatchNormalization", "p", "three", "three", "three", "three", to="y"),
    ],
    "a norm of features": [
        node("MatMul", "rows", "m", to="p"),
        node("Sigmoid", "p", to="q"),
        node("BatchNormalization", "q", "five", "five", "five", "five", to="r"),
        node("Relu", "r", to="y"),
    ],
    "a line within bounds behind batches": [
        node("MatMul", "batch", "m", to="p"),
        node("HardSigmoid", "p", to="y"),
    ],
    "bounds behind a product of batches": [
        node("MatMul", "batch", "m", to="p"),
        node("Relu", "p", to="y"),
    ],
    "a norm behind a dropout": [
        node("ConvTranspose", "image", "w", to="p"),
        node("Dropout", "p", to="q"),
        node("BatchNormalization", "q", *NORM, to="y"),
    ],
    "along one dimension": [
        node("Reshape", "image", "flat", to="p"),
        node("ConvTranspose", "p", "w2", to="y", strides=[2]),
    ],
}


def written(folder: Path, nodes: Sequence[NodeProto], opset: int = 13) -> Path:
    rng = np.random.default_rng(1)
    constants = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in {**SHAPES, "w2": (4, 3, 3)}.items()
        if name not in INPUTS
    }
    constants["positive"] = np.abs(constants["positive"]) + np.float32(0.5)
    constants["small"] = np.float32(0.1)
    constants["flat"] = np.array([1, 4, 64], np.int64)
    constants["ends"], constants["axes"] = (np.array(v, np.int64) for v in ([1, 2], [-1]))
    constants["twice"] = np.array([2, 2], np.float32)
    constants["one"], constants["two"] = np.float32(0.7), np.array([[3], [-2]], np.float32)
    constants["square"] = rng.normal(size=(6, 2)).astype(np.float32)
    constants["sizes"] = np.array([11], np.int64)
    for name, size in (("three", 3), ("five", 5), ("eight", 8)):
        constants[name] = np.linspace(0.5, 2, size, dtype=np.float32)
    read = [name for each in nodes for name in each.input]
    made = [name for each in nodes for name in each.output]
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, kind, SHAPES[n]) for n in INPUTS if n in read],
        [helper.make_tensor_value_info(n, kind, None) for n in made if n.startswith("y")],
        [numpy_helper.from_array(constants[n], n) for n in constants if n in read],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), folder / "model.onnx")
    return folder / "model.onnx"


def samples_of(file: Path, count: int = 8) -> list[dict[str, Array]]:
    names = [each.name for each in onnx.load(file).graph.input]
    return [{n: RNG.normal(size=SHAPES[n]).astype(np.float32) for n in names} for _ in range(count)]


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_the_file_is_as_near_to_the_floats_as_the_report_says(name: str, tmp_path: Path) -> None:
    file = written(tmp_path, CASES[name])
    samples = samples_of(file)
    quantized = tinyai.quantize_file(file, samples)
    quantized.save(tmp_path / "int8.onnx")
    proto = onnx.load(tmp_path / "int8.onnx")
    onnx.checker.check_model(proto, full_check=True)
    kept = {each.name for each in proto.graph.node}
    assert {n.name for n in CASES[name] if n.op_type in ("Conv", "Add", "Gemm")} - kept <= {
        "of_y",  # a bias of the MatMul before, or of the layer
    }
    floats = [run(onnx.load(file), sample) for sample in samples]
    made = [run(proto, sample) for sample in samples]
    ours = [tinyai.Model(tmp_path / "int8.onnx").run(sample) for sample in samples]
    network = network_of(quantized.model, "in_memory", "onnx")
    for sample, results in zip(samples, ours, strict=True):
        in_memory = run_graph(network.graph, [sample[port.name] for port in network.inputs])
        for result, wanted in zip(in_memory, results, strict=True):
            np.testing.assert_array_equal(result, wanted)
    assert not quantized.report.left
    for place, row in enumerate(quantized.report.outputs):
        signal, *others = ([each[place] for each in all_] for all_ in (floats, made, ours))
        for other in others:
            assert row.sqnr is not None
            assert sqnr(signal, other) > row.sqnr - 1


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Pad", "p", "ends", "", "axes", to="q")],
        [node("Resize", "p", "", "twice", to="q", axes=[2, -1], mode="linear")],
        [node("Resize", "p", "", "", "sizes", to="q", axes=[3], mode="linear")],
    ],
    ids=["Pad", "scales", "sizes"],
)
def test_some_axes_between_layers_are_written_as_all(
    nodes: Sequence[NodeProto], tmp_path: Path
) -> None:
    """Of which ONNX Runtime 1.32 takes the wrong ones, or none."""
    first = node("Conv", "image", "w", to="p", pads=[1] * 4)
    file = written(tmp_path, [first, *nodes, node("Conv", "q", "w", to="y")], opset=18)
    samples = samples_of(file)
    quantized = tinyai.quantize_file(file, samples)
    quantized.save(tmp_path / "int8.onnx")
    (changed,) = (e for e in onnx.load(tmp_path / "int8.onnx").graph.node if e.name == "of_q")
    assert not [each for each in changed.attribute if each.name == "axes"]
    both = (onnx.load(each) for each in (file, tmp_path / "int8.onnx"))
    signal, made = ([run(of, each, plain=False)[0] for each in samples] for of in both)
    assert abs(sqnr(signal, made) - (quantized.report.sqnr or 0)) < 1


def test_averages_with_dilations_of_one_load(tmp_path: Path) -> None:
    """Opset 19 has them; ONNX Runtime's average of integers does not."""
    pool = node("AveragePool", "p", to="y", kernel_shape=[2, 2], dilations=[1, 1])
    file = written(tmp_path, [node("Conv", "image", "w", to="p"), pool], opset=19)
    tinyai.quantize_file(file, samples_of(file)).save(tmp_path / "int8.onnx")
    (result,) = run(onnx.load(tmp_path / "int8.onnx"), samples_of(file)[0], plain=False)
    assert result.shape == (1, 4, 5, 5)


def test_pairs_of_16_bits_are_of_a_domain_of_their_own(tmp_path: Path) -> None:
    file = written(tmp_path, CASES["outputs on the way"])
    samples = samples_of(file)
    quantized = tinyai.quantize_file(file, samples, QuantConfig(int16_layers=("of_y",)))
    quantized.save(tmp_path / "int8.onnx")
    proto = onnx.load(tmp_path / "int8.onnx")
    wide = {each.domain for each in proto.graph.node if each.op_type == "QuantizeLinear"}
    assert wide == {"", "com.microsoft"}
    signal = [run(onnx.load(file), sample)[-1] for sample in samples]
    assert sqnr(signal, [run(proto, sample)[-1] for sample in samples]) > 35


def test_weights_and_biases_that_samples_change_are_written(tmp_path: Path) -> None:
    file = written(tmp_path, CASES["norm after a layer"])
    samples, stored = samples_of(file, 16), []
    for config in (QuantConfig(), QuantConfig(rounding="nearest", correct_bias=False)):
        quantized = tinyai.quantize_file(file, samples, config, compared=16)
        quantized.save(tmp_path / "int8.onnx")
        proto = onnx.load(tmp_path / "int8.onnx")
        constants = {n.name: numpy_helper.to_array(n) for n in proto.graph.initializer}
        stored.append([constants["w_quantized"], constants["c_quantized"]])
        (weight,) = (
            each["data"].value
            for each in post_order(quantized.model.result)
            if isinstance(each, Call) and each.op == "dequantize"
            if isinstance(each["data"], Constant)
        )
        np.testing.assert_array_equal(constants["w_quantized"], weight)
        made = [run(proto, sample)[0] for sample in samples]
        floats = [run(onnx.load(file), sample)[0] for sample in samples]
        assert sqnr(floats, made) > (quantized.report.sqnr or 0) - 0.5
    assert not any(np.array_equal(*both) for both in zip(*stored, strict=True))


def test_a_line_stays_with_its_layer_where_its_bounds_stay_in_float(tmp_path: Path) -> None:
    file = written(tmp_path, CASES["names between a layer and what belongs to it"])
    samples = samples_of(file)
    quantized = tinyai.quantize_file(file, samples, QuantConfig(float_layers=("of_y",)))
    quantized.save(tmp_path / "int8.onnx")
    proto = onnx.load(tmp_path / "int8.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert {"of_p_weight_quantized", "w_quantized"} & {e.name for e in proto.graph.initializer}
    signal, made = ([run(of, each)[0] for each in samples] for of in (onnx.load(file), proto))
    assert abs(sqnr(signal, made) - (quantized.report.sqnr or 0)) < 0.5


def test_a_layer_that_stays_in_float_is_as_it_was(tmp_path: Path) -> None:
    file = written(tmp_path, CASES["outputs on the way"])
    quantized = tinyai.quantize_file(file, samples_of(file), QuantConfig(float_layers=("of_y",)))
    quantized.save(tmp_path / "int8.onnx")
    last = onnx.load(tmp_path / "int8.onnx").graph.node[-1]
    assert (last.name, last.input[1]) == ("of_y", "w")


def test_the_factor_of_a_product_is_in_its_weights(tmp_path: Path) -> None:
    file = written(tmp_path, [node("Gemm", "rows", "m", to="y", alpha=0.5)])
    quantized = tinyai.quantize_file(file, samples_of(file))
    quantized.save(tmp_path / "int8.onnx")
    (product,) = (n for n in onnx.load(tmp_path / "int8.onnx").graph.node if n.op_type == "Gemm")
    assert not [each for each in product.attribute if each.name == "alpha"]
    assert quantized.report.sqnr is not None
    assert quantized.report.sqnr > 30


def test_a_layer_is_written_with_its_integers_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the writer does not know a step that was folded, as it once did not know this one."""
    file = written(tmp_path, CASES["a line within bounds behind a layer"])
    quantized = tinyai.quantize_file(file, samples_of(file))
    monkeypatch.setattr(writer, "_STEPS", ())
    with pytest.raises(OptionError, match="Conv 'of_p'"):
        quantized.save(tmp_path / "int8.onnx")


def test_a_tflite_file_has_no_place_for_pairs(tmp_path: Path) -> None:
    x = {"input_1": RNG.normal(size=(1, 640)).astype(np.float32)}
    quantized = tinyai.quantize_file(MODELS / "ad01_fp32.tflite", [x])
    with pytest.raises(OptionError, match=r"a \.tflite file"):
        quantized.save(tmp_path / "int8.onnx")
