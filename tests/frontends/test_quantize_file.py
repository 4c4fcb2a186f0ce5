"""Float models of files become integers without TVM: ``tinyai.quantize_file`` as users call it."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import helper

import tinyai
from benchmarks.digits.data import load_split
from benchmarks.float_networks import sqnr
from tests.support import two_quantizers
from tests.support.paths import DIGITS, MODELS, ROOT
from tests.support.random_onnx import run
from tinyai import Mixed, QuantConfig
from tinyai.checking.onnxruntime import exact_session
from tinyai.errors import BoundaryError, EnvironmentProblem, OptionError
from tinyai.frontends import quantize
from tinyai.frontends.files import read_file
from tinyai.frontends.onnx import float_model
from tinyai.frontends.onnx.float_model import FileModel
from tinyai.frontends.quantize import QuantizedFile
from tinyai.frontends.whole import network_of
from tinyai.quantizer.calibrate import points_of

RESNET8 = MODELS / "pretrainedResnet"
RNG = np.random.default_rng(0)
FLOAT_ACCURACY = 98.33  # benchmarks/digits/digits.json


def samples(count: int = 64) -> list[dict[str, Any]]:
    return [{"image": image} for image in load_split().train.images[:count]]


@functools.lru_cache
def digits() -> QuantizedFile:
    return tinyai.quantize_file(DIGITS, samples())


def test_the_digits_are_recognized_as_by_floats(tmp_path: Path) -> None:
    model = tinyai.Model(tinyai.compile(digits().model, tmp_path / "net.so"))
    held_out = load_split().held_out
    results = [int(model(image[None])[0].argmax()) for image in held_out.images]
    assert 100 * float((np.array(results) == held_out.labels).mean()) >= FLOAT_ACCURACY - 0.3
    assert [each.name for each in (*model.inputs, *model.outputs)] == ["image", "logits"]


@pytest.mark.long
def test_the_layers_and_their_noise_are_those_of_the_relay_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def integers(model: FileModel, root: Any) -> Any:
        return model.integers(root, ())

    monkeypatch.setattr(FileModel, "rounding", "upward")  # as of Relay
    monkeypatch.setattr(FileModel, "attempt", integers)
    ours = tinyai.quantize_file(DIGITS, samples()).report
    relays = tinyai.quantize(DIGITS, None, samples()).report
    assert [row.type for row in ours.layers] == [row.type for row in relays.layers]
    for row, other in zip(ours.layers, relays.layers, strict=True):
        assert row.scale == pytest.approx(other.scale, rel=0.02)
        assert row.sqnr == pytest.approx(other.sqnr, abs=0.2)
    assert ours.outputs[0].agreement == 1


def by_litert(file: Path, x: Any) -> Any:
    interpreter = Interpreter(str(file))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


@pytest.mark.parametrize("name", ["pretrainedResnet.onnx", "pretrainedResnet.tflite"])
def test_floats_are_those_of_the_file_s_framework(name: str) -> None:
    """TFLite has channels last, and becomes ONNX with channels first."""
    file = MODELS / name
    model = FileModel(read_file(file))
    (of,) = model.inputs
    shown = [{of.name: 50 * RNG.normal(size=of.shape).astype("float32")} for _ in range(4)]
    (made,) = model.runner(model.root).run(shown[0])
    onnx_or_lite = run(onnx.load(file), shown[0])[0] if name.endswith("onnx") else None
    wanted = by_litert(file, shown[0][of.name]) if onnx_or_lite is None else onnx_or_lite
    np.testing.assert_allclose(made, wanted, rtol=1e-3, atol=1e-5)
    report = tinyai.quantize_file(file, shown).report
    assert not report.left
    assert report.sqnr is not None
    assert report.sqnr > 20


def test_it_needs_no_tvm(tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", image=load_split().train.images[:8])
    script = f"""
        import sys
        sys.modules["tvm"] = None  # import tvm raises ModuleNotFoundError
        import tinyai
        quantized = tinyai.quantize_file({str(DIGITS)!r}, "samples.npz")
        target = "tinyai -isa=scalar -rounding=onnx"
        tinyai.compile(quantized.model, "net.so", target, name="digits")
        tinyai.emit_c(quantized.model, target)
        print(tinyai.Model("net.so").name, quantized.report.samples)
    """
    command, env = [sys.executable, "-c", textwrap.dedent(script)], {**os.environ}
    env["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["digits", "8"], done.stderr


def test_a_ranking_and_a_goal_are_reached_by_switches() -> None:
    goal = Mixed(sqnr=45)
    found = tinyai.quantize_file(DIGITS, samples(8), rank=True, mixed=goal)
    assert found.report.ranking
    assert found.report.mixed is not None
    assert found.report.mixed.reached
    assert found.report.sqnr is not None
    assert found.report.sqnr >= 45 > (digits().report.sqnr or 0)


def test_weights_and_biases_are_made_by_what_layers_compute() -> None:
    config = QuantConfig(rounding="nearest", correct_bias=False)
    found = tinyai.quantize_file(DIGITS, samples(), config)
    assert (found.report.sqnr or 0) < (digits().report.sqnr or 0)


def test_a_calibration_of_parts_quantizes_as_its_samples_do(tmp_path: Path) -> None:
    parts = [tinyai.calibrate_file(DIGITS, samples()[at : at + 32]) for at in (0, 32)]
    parts[0].merge(parts[1]).save(tmp_path / "seen.npz")
    seen = tinyai.Calibration.load(tmp_path / "seen.npz")
    assert tinyai.quantize_file(DIGITS, seen).report.json() == digits().report.json()


def test_another_process_makes_the_same_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FileModel(read_file(DIGITS))
    points = points_of(model, QuantConfig())
    asked = points.root, [point.expr for point in points.points]
    recipe = pickle.loads(pickle.dumps(model.recipe(*asked)))
    assert recipe == model.recipe(*asked)
    sample = {"image": load_split().train.images[0][None]}
    both = (model.runner(*asked), recipe.runner())
    for one, other in zip(*([*r.run(sample), *r.values()] for r in both), strict=True):
        np.testing.assert_array_equal(one, other)
    monkeypatch.setattr(float_model, "_machine", lambda: "another")
    with pytest.raises(EnvironmentProblem, match="worker"):
        recipe.runner()


# --- Models of a few nodes -----------------------------------------------------------------------


def written(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
) -> tuple[Path, onnx.ModelProto]:
    """A file of nodes that read the image "x" and the weights "w"."""
    weight = onnx.numpy_helper.from_array(RNG.normal(size=(4, 3, 3, 3)).astype("float32"), "w")
    shape = onnx.TensorProto.FLOAT, (1, 3, 8, 8)
    ends = [onnx.ValueInfoProto(name=name) for name in outputs]
    for end in ends:
        end.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", *shape)], ends, [weight]
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx", model


def images(count: int = 4) -> list[dict[str, Any]]:
    return [{"x": RNG.normal(size=(1, 3, 8, 8)).astype("float32")} for _ in range(count)]


CONV = helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1])


def test_what_stays_in_float_is_told_and_the_report_is_of_the_pairs(tmp_path: Path) -> None:
    nodes = [CONV, helper.make_node("Softmax", ["c"], ["y"], name="shares", axis=1)]
    file, model = written(tmp_path, nodes)
    shown = images()
    found = tinyai.quantize_file(file, shown, QuantConfig(float_layers=("shares",)))
    assert [each.name for each in found.report.left] == ["shares"]
    assert found.report.sqnr is not None
    assert 30 < found.report.sqnr < 60
    found.save(tmp_path / "int8.onnx")
    floats, pairs = (
        [run(each, image)[0] for image in shown]
        for each in (model, onnx.load(tmp_path / "int8.onnx"))
    )
    assert sqnr(floats, pairs) == pytest.approx(found.report.sqnr, abs=0.5)
    with pytest.raises(BoundaryError, match="shares"):
        tinyai.compile(found.model, tmp_path / "net.so")


def test_a_model_has_several_results_and_one_that_is_its_input(tmp_path: Path) -> None:
    relu = helper.make_node("Relu", ["c"], ["y"], name="relu")
    file, model = written(tmp_path, [CONV, relu], ["y", "c", "x"])
    shown = images()
    found = tinyai.quantize_file(file, shown)
    assert len(found.report.outputs) == 3
    built = tinyai.Model(tinyai.compile(found.model, tmp_path / "net.so"))
    assert [each.name for each in built.outputs] == ["y", "c", "x"]
    for made, wanted in zip(built(shown[0]), run(model, shown[0]), strict=True):
        np.testing.assert_allclose(made, wanted, atol=0.2)


@pytest.mark.parametrize(("opset", "dtype"), [(20, "int8"), (21, "uint8")])
def test_memory_has_the_dtype_of_the_file(opset: int, dtype: str, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("AveragePool", ["x"], ["a"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Add", ["a", "a"], ["s"]),
        helper.make_node("Conv", ["s", "w"], ["y"]),
    ]
    file, _ = written(tmp_path, nodes, opset=opset)
    quantized = tinyai.quantize_file(file, images())
    quantized.save(tmp_path / "int8.onnx")
    both = quantized.model, read_file(tmp_path / "int8.onnx")
    in_memory, in_file = (network_of(each, "net", "onnx") for each in both)
    made = {in_memory.graph.type(node.output).dtype.value for node in in_memory.graph.nodes[:-1]}
    assert made & {"int8", "uint8"} == {dtype}
    for image in images(20):
        ours, theirs = (next(each.run([(image["x"],)]))[0] for each in (in_memory, in_file))
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("rounding", ["nearest", "adaptive"])
def test_weights_of_a_reduced_range_saturate_in_no_program(rounding: str, tmp_path: Path) -> None:
    config = QuantConfig(reduce_range=True, rounding=rounding)
    quantized = tinyai.quantize_file(DIGITS, samples(), config)
    quantized.save(tmp_path / "int8.onnx")
    tensors = map(onnx.numpy_helper.to_array, onnx.load(tmp_path / "int8.onnx").graph.initializer)
    weights = [each for each in tensors if each.dtype == np.int8 and each.ndim > 1]
    assert max(np.abs(each).max() for each in weights) == 63
    usual = onnxruntime.InferenceSession(tmp_path / "int8.onnx")
    exact = exact_session(tmp_path / "int8.onnx", keeps_int8=False)
    for image in load_split().held_out.images[:20]:
        found, wanted = (each.run(None, {"image": image[None]})[0] for each in (usual, exact))
        np.testing.assert_array_equal(found, wanted)


def test_states_and_names_that_two_inputs_have_are_refused() -> None:
    model = read_file(DIGITS)
    for wrong in (
        replace(model, initial=(np.zeros(1, np.int8),)),
        replace(model, inputs=model.inputs * 2),
    ):
        with pytest.raises(OptionError, match="float model to quantize"):
            FileModel(wrong)


def test_an_input_of_a_dtype_that_tinyai_lacks_is_refused(tmp_path: Path) -> None:
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT)],
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.UINT16, [2])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])],
    )
    file = tmp_path / "float.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), file)
    with pytest.raises(OptionError, match="input x: dtype uint16"):
        tinyai.quantize_file(file, [{"x": np.zeros(2, np.uint16)}])


def test_without_a_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quantize, "find_spec", lambda name: name != "onnxruntime" or None)
    with pytest.raises(EnvironmentProblem, match="onnxruntime is missing"):
        tinyai.quantize_file(DIGITS, samples(1))


def test_options_of_a_file_do_not_go_beside_a_model_that_was_read() -> None:
    with pytest.raises(OptionError, match="input_shapes"):
        tinyai.network_of(digits().model, input_shapes="image:[1,1,8,8]")
    assert tinyai.network_of(digits().model, name="net", ends="int8").name == "net"


def test_what_only_tvm_reads_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.relay").write_text("text")
    with pytest.raises(OptionError, match=r"tinyai\.quantize, with a TVM"):
        tinyai.quantize_file(tmp_path / "model.relay", [])
    with pytest.raises(OptionError, match="as many dimensions"):
        tinyai.quantize_file(MODELS / "ad01_fp32.tflite", [], input_shapes="x:[1,640]")


# --- The quantizer of torch ----------------------------------------------------------------------


def test_ranges_and_values_are_chosen_as_by_the_quantizer_of_torch(tmp_path: Path) -> None:
    """``tests/executorch/test_quantizer.py`` expects the same of ``TinyAIQuantizer``."""
    onnx.save(two_quantizers.as_file(), tmp_path / "net.onnx")
    given = [{"x": each} for each in two_quantizers.SAMPLES]
    report = tinyai.quantize_file(
        tmp_path / "net.onnx", given, QuantConfig(observer="minmax")
    ).report
    assert not report.left
    made = dict.fromkeys((row.scale, row.zero_point) for row in report.layers)
    for ours, wanted in zip(made, two_quantizers.GRIDS, strict=True):
        assert ours == (pytest.approx(wanted[0], rel=1e-5), wanted[1])


# As in a recurrent cell: a gate lets one value through, and what is left of 1 another.
GATED = """
    <ir_version: 8, opset_import: ["" : 17]>
    gated (float[1,4] x, float[1,4] other) => (float[1,4] y)
    <float half = {0.5}, float one = {1.0}> {
        product = MatMul(x, w)
        total = Add(product, other)
        gate = Sigmoid(total)
        kept = Mul(gate, half)
        rest = Sub(one, gate)
        new = Tanh(other)
        let_in = Mul(rest, new)
        y = Add(kept, let_in)
    }
"""


def test_functions_that_begin_alike_are_each_a_table_of_its_own(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(GATED)
    weights = RNG.normal(size=(4, 4)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(proto, tmp_path / "float.onnx")
    names, rows = ("x", "other"), RNG.normal(size=(12, 2, 1, 4)).astype(np.float32)
    given = [dict(zip(names, row, strict=True)) for row in rows]
    quantized = tinyai.quantize_file(tmp_path / "float.onnx", given)
    quantized.save(tmp_path / "int8.onnx")
    assert not quantized.report.left
    assert tinyai.check(tmp_path / "int8.onnx", samples=20).equal
