"""A float model of an older opset means the same in a newer one, which is what is quantized."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import tinyai
from tests.support.old_operators import IMAGE, Old, old_operators
from tinyai.errors import BoundaryError, UsageWarning
from tinyai.frontends.faults import Fault
from tinyai.frontends.onnx.older import converted
from tinyai.ir import Array

WANTED = 13
LEAST = 170


def results(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return [np.asarray(each) for each in session.run(None, feed)]


def originals(old: Old) -> list[Array] | None:
    """None where ONNX Runtime does not have the operator of this opset."""
    if old.result is not None:
        return [old.result]
    try:
        return results(old.model(), old.feed())
    except Exception:  # ONNX Runtime raises errors of many kinds
        return None


def test_operators_of_old_opsets_mean_the_same_in_a_newer_one() -> None:
    compared = 0
    for old in old_operators():
        if (wanted := originals(old)) is None:
            continue
        found = results(converted(old.model(), old.opset, WANTED), old.feed())
        compared += 1
        for one, other in zip(wanted, found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=str(old))
    assert compared > LEAST


def test_so_do_those_inside_of_a_branch() -> None:
    scales = np.array([1, 1, 2, 2], np.float32)
    for old in (
        Old("Resize", 10, (IMAGE,), (scales,), {"mode": "linear"}),
        Old("Hardmax", 11, (IMAGE,), (), {"axis": 2}),
    ):
        model, feed = old.in_a_branch(), {**old.feed(), "c": np.array(True)}
        wanted = results(model, feed)
        found = results(converted(model, old.opset, WANTED), feed)
        np.testing.assert_allclose(found, wanted, atol=1e-6, err_msg=str(old))


def test_an_operator_that_went_since_is_named() -> None:
    old = Old("ImageScaler", 7, (IMAGE,), (), {"scale": 2.0, "bias": [0.1, 0.2, 0.3]})
    with pytest.raises(Fault, match="ImageScaler, an operator that opset 13 does not have"):
        converted(old.model(), old.opset, WANTED)


def upsampled(folder: Path, mode: str) -> tuple[Path, list[dict[str, Array]]]:
    """A file of opset 9, and samples of it."""
    rng, helper = np.random.default_rng(3), onnx.helper
    weight = rng.normal(size=(3, 3, 1, 1)).astype(np.float32)
    scales = np.array([1, 1, 2, 2], np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["conv"]),
            helper.make_node("Upsample", ["conv", "scales"], ["y"], mode=mode),
        ],
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 4, 6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 3, 8, 12])],
        [
            onnx.numpy_helper.from_array(value, name)
            for name, value in (("w", weight), ("scales", scales))
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    onnx.save(model, folder / "float.onnx")
    samples = [{"x": rng.normal(size=(1, 3, 4, 6)).astype(np.float32)} for _ in range(4)]
    return folder / "float.onnx", samples


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_file_with_an_upsample_is_quantized_as_it_means(mode: str, tmp_path: Path) -> None:
    source, samples = upsampled(tmp_path, mode)
    tinyai.quantize_file(source, samples).save(tmp_path / "int8.onnx")
    (wanted,), (found,) = (
        results(onnx.load(tmp_path / name), samples[0]) for name in ("float.onnx", "int8.onnx")
    )
    assert np.abs(wanted - found).max() < 0.02 * np.abs(wanted).max()


def test_such_a_file_is_explained_and_told_to_be_one_of_floats(tmp_path: Path) -> None:
    source, _ = upsampled(tmp_path, "nearest")
    report = tinyai.explain(source)
    assert [each.operator for each in report.host] == ["Conv", "Resize"]
    assert all("float32" in each.reason.found for each in report.host)
    with pytest.raises(BoundaryError, match=r"(?s)a float model.*--calibrate"):
        tinyai.compile(source, tmp_path / "net.so")


def test_what_is_read_otherwise_than_the_file_means_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tinyai.frontends.onnx.older._keep_resizes", lambda model: None)
    source, samples = upsampled(tmp_path, "linear")
    with pytest.warns(UsageWarning, match=r"result 0 on the first sample is -?[\d.]+ dB beside"):
        tinyai.quantize_file(source, samples)
