"""Files of which another quantizer made only the products integers: the rest gets pairs, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import tinyai
from tests.support.onnx_models import run_onnx
from tests.support.quantized_files import quantized as equal_to_onnx_runtime
from tinyai.errors import BoundaryError, OptionError
from tinyai.frontends.attempt import QUANTIZE_THE_REST
from tinyai.frontends.files import read_file
from tinyai.frontends.whole import network_of
from tinyai.ir import Array
from tinyai.reference import run_graph

RNG = np.random.default_rng(0)
WIDTH, HIDDEN = 16, 24
X = (1, 7, WIDTH)
SAMPLES = [{"x": RNG.normal(size=X).astype(np.float32)} for _ in range(8)]


def block() -> onnx.ModelProto:
    """A layer of two dense ones with biases, a function between them, and a sum around them."""
    sizes = {"up": (WIDTH, HIDDEN), "up_bias": HIDDEN, "down": (HIDDEN, WIDTH), "down_bias": WIDTH}
    constants = {name: RNG.normal(size=size) / 4 for name, size in sizes.items()}
    nodes = [
        helper.make_node(kind, inputs, [result], f"{result}_{kind}")
        for kind, inputs, result in (
            ("MatMul", ["x", "up"], "sums"),
            ("Add", ["sums", "up_bias"], "line"),
            ("Sigmoid", ["line"], "gate"),
            ("Mul", ["line", "gate"], "hidden"),
            ("MatMul", ["hidden", "down"], "narrow"),
            ("Add", ["down_bias", "narrow"], "branch"),
            ("Add", ["x", "branch"], "y"),
        )
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, X)] for name in "xy"]
    known = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "block", *ends, known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Samples(CalibrationDataReader):
    def __init__(self, samples: list[dict[str, Array]]) -> None:
        self._rest = iter(samples)

    def get_next(self) -> dict[str, Array] | None:
        return next(self._rest, None)


def in_part(folder: Path, *, per_channel: bool, activation: QuantType) -> Path:
    """The block, of which ONNX Runtime's quantizer made the products integers."""
    floats, file = folder / "floats.onnx", folder / "part.onnx"
    onnx.save(block(), floats)
    quantize_static(
        floats,
        file,
        Samples(SAMPLES),
        QuantFormat.QDQ,
        ["MatMul"],
        per_channel,
        activation_type=activation,
        weight_type=QuantType.QInt8,
    )
    return file


def integers_of(file: Path) -> list[bytes]:
    """The weights of the two products, whichever way round."""
    graph = onnx.load(file).graph
    weights = [numpy_helper.to_array(each) for each in graph.initializer]
    return sorted(each.tobytes() for each in weights if each.dtype == np.int8 and each.ndim == 2)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("activation", [QuantType.QUInt8, QuantType.QInt8])
def test_the_rest_gets_pairs_and_what_has_them_keeps_its_integers(
    per_channel: bool, activation: QuantType, tmp_path: Path
) -> None:
    part, whole = (
        in_part(tmp_path, per_channel=per_channel, activation=activation),
        tmp_path / "w.onnx",
    )
    quantized = tinyai.quantize_file(part, SAMPLES)
    quantized.save(whole)
    assert integers_of(whole) == integers_of(part)
    graph = network_of(read_file(whole), "net", "onnx").graph
    for sample in SAMPLES:
        (wanted,) = run_onnx(onnx.load(whole), sample)
        (found,) = run_graph(graph, [sample["x"]])
        np.testing.assert_array_equal(found, wanted)
        (before,) = run_onnx(onnx.load(part), sample)
        assert np.abs(found - before).max() < 0.05 * np.abs(before).max()


def test_without_samples_the_error_and_the_report_say_to_quantize_the_rest(tmp_path: Path) -> None:
    file = in_part(tmp_path, per_channel=True, activation=QuantType.QUInt8)
    with pytest.raises(BoundaryError) as error:
        tinyai.compile(file, tmp_path / "net.so")
    assert error.value.hint == QUANTIZE_THE_REST
    report = tinyai.explain(file)
    floats = [row for row in report.host if row.operator in ("Add", "Mul")]
    assert floats
    assert {row.hint for row in floats} == {QUANTIZE_THE_REST}


def test_scales_of_run_time_are_refused_with_what_to_quantize_instead(tmp_path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    floats, file = tmp_path / "floats.onnx", tmp_path / "dynamic.onnx"
    onnx.save(block(), floats)
    quantize_dynamic(floats, file)
    for call in (tinyai.quantize_file, tinyai.calibrate_file):
        with pytest.raises(OptionError, match="dynamic quantization") as error:
            call(file, SAMPLES)
        assert error.value.hint == "the float model of which this one was made"


def test_weights_that_alone_stayed_float_become_integers(tmp_path: Path) -> None:
    file, made = tmp_path / "net.onnx", tmp_path / "int8.onnx"
    pairs = [
        helper.make_node(kind, [reads, f"{end}_scale", f"{end}_zero"], [makes], f"{end}_{kind}")
        for end in "xy"
        for kind, reads, makes in (
            ("QuantizeLinear", "x" if end == "x" else "sums", f"{end}_steps"),
            ("DequantizeLinear", f"{end}_steps", "y" if end == "y" else "data"),
        )
    ]
    nodes = [*pairs[:2], helper.make_node("MatMul", ["data", "w"], ["sums"], "product"), *pairs[2:]]
    constants = {
        "w": RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32),
        **{f"{end}_scale": np.float32(scale) for end, scale in (("x", 0.03), ("y", 0.1))},
        **{f"{end}_zero": np.int8(0) for end in "xy"},
    }
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, X)] for name in "xy"]
    known = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "net", *ends, known)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), file)
    with pytest.raises(BoundaryError) as error:
        tinyai.compile(file, tmp_path / "net.so")
    assert error.value.hint == QUANTIZE_THE_REST
    tinyai.quantize_file(file, SAMPLES).save(made)
    assert len(integers_of(made)) == 1
    assert tinyai.check(made).equal


@pytest.mark.parametrize("name", ["sums", ""])
def test_a_factor_of_a_gemm_that_is_quantized_already_is_refused(name: str, tmp_path: Path) -> None:
    """In memory what it makes of the data has a grid, of which the node knows nothing."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=(6, WIDTH)) / 4,
        "b": rng.normal(size=6),
        **{name: rng.uniform(0.5, 1.5, 6) for name in ("scale", "shift", "mean", "var")},
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["sums"], "sums", alpha=0.65, transB=1),
        helper.make_node("BatchNormalization", ["sums", *[*constants][2:]], ["y"], "y"),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [7, size])]
        for name, size in (("x", WIDTH), ("y", 6))
    ]
    known = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", *ends, known)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    floats, part = tmp_path / "floats.onnx", tmp_path / "part.onnx"
    onnx.save(model, floats)
    samples = [{"x": each["x"][0]} for each in SAMPLES]

    kinds = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    quantize_static(floats, part, Samples(samples), QuantFormat.QDQ, ["Gemm"], True, **kinds)

    proto = onnx.load(part)
    (gemm,) = (node for node in proto.graph.node if node.op_type == "Gemm")
    gemm.name = name
    onnx.save(proto, part)

    quantized = tinyai.quantize_file(part, samples)
    with pytest.raises(OptionError, match="alpha 1"):
        quantized.save(tmp_path / "whole.onnx")


@pytest.mark.parametrize(("left", "data"), [((3, 4), (2, 3, 4, 5)), ((2, 3, 4), (2, 4, 5))])
def test_a_first_operand_of_integers_keeps_them(
    left: tuple[int, ...], data: tuple[int, ...], tmp_path: Path
) -> None:
    floats, part, whole = (tmp_path / f"{name}.onnx" for name in ("floats", "part", "whole"))
    nodes = [
        helper.make_node("MatMul", ["left", "x"], ["product"], "product_MatMul"),
        helper.make_node("Sigmoid", ["product"], ["y"], "y_Sigmoid"),
    ]
    result = (*data[:-2], left[-2], data[-1])
    ends = zip("xy", (data, result), strict=True)
    ports = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in ends]
    known = [numpy_helper.from_array(RNG.normal(size=left).astype(np.float32), "left")]
    graph = helper.make_graph(nodes, "net", *ports, known)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), floats)
    samples = [{"x": RNG.normal(size=data).astype(np.float32)} for _ in range(4)]
    quantize_static(
        floats, part, Samples(samples), QuantFormat.QDQ, ["MatMul"], weight_type=QuantType.QInt8
    )
    quantized = tinyai.quantize_file(part, samples)
    quantized.save(whole)
    before, after = (
        numpy_helper.to_array(next(t for t in onnx.load(f).graph.initializer if t.dims == [*left]))
        for f in (part, whole)
    )
    np.testing.assert_array_equal(after, before)
    graphs = [
        network_of(model, "net", "onnx").graph for model in (read_file(whole), quantized.model)
    ]
    for sample in samples:
        (wanted,) = run_onnx(onnx.load(whole), sample)
        for each in graphs:
            np.testing.assert_array_equal(run_graph(each, [sample["x"]])[0], wanted)


@pytest.mark.parametrize("shape", [(4, 5), (1, 4, 5), (3, 4, 5)])
def test_weights_with_scales_along_their_sums_get_others(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    """ONNX Runtime's quantizer gives a product of several matrices such scales, with which ONNX
    Runtime computes in floats only."""
    stored = {
        "steps": RNG.integers(-127, 128, size=shape).astype(np.int8),
        "scales": RNG.uniform(0.01, 0.1, shape[-2]).astype(np.float32),
        "zeros": np.zeros(shape[-2], np.int8),
    }
    nodes = [
        helper.make_node("DequantizeLinear", [*stored], ["w"], "w_Dequantize", axis=len(shape) - 2),
        helper.make_node("MatMul", ["x", "w"], ["y"], "y_MatMul"),
    ]
    data, result = (*shape[:-2], 6, shape[-2]), (*shape[:-2], 6, shape[-1])
    samples = [{"x": RNG.normal(size=data).astype(np.float32)} for _ in range(4)]
    made = equal_to_onnx_runtime(tmp_path, nodes, samples, result, **stored)
    assert made.report.outputs[0].sqnr > 30
