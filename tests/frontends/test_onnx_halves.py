"""Float models of float16, bfloat16 or float64 are quantized as those of float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tinyai.errors import BoundaryError, UsageWarning
from tinyai.frontends.files import read_file

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
BFLOAT, DOUBLE = TensorProto.BFLOAT16, TensorProto.DOUBLE
RNG = np.random.default_rng(0)
# Numbers of few bits: the same in each type.
WEIGHTS = RNG.integers(-8, 9, (4, 3, 3, 3)) / 8
SAMPLES = [RNG.normal(size=(1, 3, 8, 8)).astype(np.float16) for _ in range(4)]


def tensor(name: str, kind: int) -> TensorProto:
    if kind != BFLOAT:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        return numpy_helper.from_array(WEIGHTS.astype(dtype), name)
    upper = (WEIGHTS.astype(np.float32).view(np.uint32) >> 16).astype("<u2")
    return TensorProto(name=name, data_type=kind, dims=WEIGHTS.shape, raw_data=upper.tobytes())


def model(kind: int) -> onnx.ModelProto:
    """A convolution, and values cast to floats and back."""
    nodes = [
        helper.make_node("Conv", ["image", "weights"], ["sums"], name="conv"),
        helper.make_node("Cast", ["sums"], ["single"], to=FLOAT),
        helper.make_node("Cast", ["single"], ["again"], to=kind),
        helper.make_node("Relu", ["again"], ["result"], name="relu"),
    ]
    ends = (("image", (1, 3, 8, 8)), ("result", (1, 4, 6, 6)))
    first, last = ([helper.make_tensor_value_info(name, kind, shape)] for name, shape in ends)
    graph = helper.make_graph(nodes, "net", first, last, [tensor("weights", kind)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def written(kind: int, folder: Path) -> Path:
    file = folder / f"of_{kind}.onnx"
    onnx.save(model(kind), file)
    return file


@pytest.mark.parametrize(
    ("kind", "name"), [(HALF, "float16"), (BFLOAT, "bfloat16"), (DOUBLE, "float64")]
)
def test_they_become_the_file_that_floats_become(kind: int, name: str, tmp_path: Path) -> None:
    samples = [{"image": each.astype(np.float32)} for each in SAMPLES]
    tinyai.quantize_file(written(FLOAT, tmp_path), samples).save(tmp_path / "floats.onnx")
    with pytest.warns(UsageWarning, match=rf"found:   {name}\n"):
        quantized = tinyai.quantize_file(written(kind, tmp_path), samples)
    quantized.save(tmp_path / "others.onnx")
    floats, others = (onnx.load(tmp_path / f"{each}.onnx") for each in ("floats", "others"))
    assert floats == others


@pytest.mark.filterwarnings("ignore:(?!the float model as it was read):tinyai.errors.UsageWarning")
def test_samples_of_float16_are_the_same_as_floats(tmp_path: Path) -> None:
    file = written(HALF, tmp_path)
    reports = [
        tinyai.quantize_file(file, [{"image": each.astype(dtype)} for each in SAMPLES]).report
        for dtype in (np.float16, np.float32)
    ]
    assert reports[0] == reports[1]


def test_constants_of_bfloat16_are_no_damage(tmp_path: Path) -> None:
    assert read_file(written(BFLOAT, tmp_path)).outputs[0].expr.type.dtype == "float32"


def test_integers_scaled_in_float16_stay_refused(tmp_path: Path) -> None:
    pairs = model(HALF)
    step = numpy_helper.from_array(np.float16(0.02), "step")
    zero = numpy_helper.from_array(np.uint8(128), "zero")
    pairs.graph.initializer.extend([step, zero])
    for operator, source, target in (
        ("QuantizeLinear", "result", "integers"),
        ("DequantizeLinear", "integers", "rounded"),
    ):
        pairs.graph.node.append(helper.make_node(operator, [source, "step", "zero"], [target]))
    pairs.graph.output[0].name = "rounded"
    pairs.opset_import[0].version = 19
    onnx.save(pairs, tmp_path / "pairs.onnx")
    with pytest.raises(BoundaryError, match="dtype: float16"):
        tinyai.compile(tmp_path / "pairs.onnx", tmp_path / "net.so")


@pytest.mark.parametrize("name", ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"])
def test_constants_of_floats_of_8_bits_are_no_damage(name: str, tmp_path: Path) -> None:
    kind = getattr(TensorProto, name)
    stored = TensorProto(name="stored", data_type=kind, dims=[4], raw_data=bytes(range(4)))
    nodes = [
        helper.make_node("Cast", ["stored"], ["constant"], to=FLOAT),
        helper.make_node("Add", ["image", "constant"], ["result"]),
    ]
    first, last = (
        [helper.make_tensor_value_info(name, FLOAT, (2, 4))] for name in ("image", "result")
    )
    graph = helper.make_graph(nodes, "net", first, last, [stored])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.save(made, tmp_path / "net.onnx")
    (call,) = read_file(tmp_path / "net.onnx").result.fields
    assert (call.op, call.args[1].value.shape) == ("add", (4,))
