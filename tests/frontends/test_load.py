"""Model files that contradict themselves are refused with what was found, before TVM reads them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import onnx
import pytest
import tvm
from ai_edge_litert import schema_py_generated as schema
from onnx import TensorProto, helper, numpy_helper
from tvm import relay

import tinyai
from tests.support.mutations import Flat
from tests.support.paths import MODELS
from tests.support.tflite_models import Tensor, one_operator
from tinyai.errors import EnvironmentProblem, OptionError
from tinyai.frontends.faults import LARGEST
from tinyai.frontends.relay import load
from tinyai.frontends.relay.load import importers_shapes, load_model
from tinyai.frontends.shapes import parse_inputs, parse_shapes

# TVM's importer reads onnx.mapping, which onnx deprecates.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:.mapping\.\w+. is now deprecated:DeprecationWarning"
)
FLOAT = TensorProto.FLOAT


def refusal(tmp_path: Path, suffix: str, content: bytes) -> str:
    file = tmp_path / f"model{suffix}"
    file.write_bytes(content)
    with pytest.raises(OptionError) as raised:
        load_model(str(file))
    what, found, allowed, hint = str(raised.value).splitlines()
    assert found.startswith("  found:   ")
    assert allowed.startswith("  allowed: ")
    assert hint.startswith("  try:     ")
    assert what in ("model file", f"TVM's importer for {suffix} files")
    return f"{what}: {found.removeprefix('  found:   ').removeprefix(f'{file}: ')}"


# --- TFLite ------------------------------------------------------------------------------------


def first(flat: Flat, tables: list[int], slot: int) -> int:
    """Where the first number of the first such list is."""
    return flat.vector(flat.with_field(tables, slot, items=1)[0])[0]


def same_names(flat: Flat) -> None:
    for field in flat.with_field(flat.tensors, 3)[:2]:
        flat.replace(field, 4, b"same")


def large_input(flat: Flat) -> None:
    for field in flat.with_field(flat.tensors, 0)[:1]:
        flat.replace(field, 3, struct.pack("<3i", 2**30, 2**30, 2**30))


TFLITE: dict[str, tuple[Callable[[Flat], None], str]] = {
    "identifier": (lambda f: f.put("<I", 4, 0), "bytes that begin with"),
    "subgraphs": (lambda f: f.put("<I", f.vector(f.field(f.model, 2))[0] - 4, 2), "2 subgraphs"),
    "long list": (
        lambda f: f.put("<I", f.vector(f.field(f.graph, 0))[0] - 4, 2**31),
        "a list of 2147483648 entries",
    ),
    "input": (lambda f: f.put("<i", first(f, [f.graph], 1), 999), "an input of the model: number"),
    "output": (lambda f: f.put("<i", first(f, [f.graph], 2), -1), "an output of the model: number"),
    "outputs": (
        lambda f: f.put("<I", first(f, [f.graph], 2) - 4, 0),
        "a model without outputs",
    ),
    "operand": (
        lambda f: f.put("<i", first(f, f.operators, 1), 999),
        "an input of operator 0: number 999",
    ),
    "kind": (
        lambda f: f.put("<I", f.with_field(f.operators, 0)[0], 99),
        "the kind of operator",
    ),
    "cycle": (
        lambda f: f.put("<i", first(f, f.operators, 1), f.u32(first(f, f.operators, 2))),
        "operator 0 reads tensor",
    ),
    "dimension": (lambda f: f.put("<i", first(f, f.tensors, 0), -7), "of shape [-7"),
    "size": (large_input, "bytes"),
    "scale": (
        lambda f: f.put(
            "<f",
            first(f, [x + f.u32(x) for x in f.with_field(f.tensors, 4)], 2),
            float("nan"),
        ),
        "tensor 0: scale nan",
    ),
    "zero point": (
        lambda f: f.put("<q", first(f, [x + f.u32(x) for x in f.with_field(f.tensors, 4)], 3), 999),
        "the zero point of tensor 0: number 999",
    ),
    "names": (same_names, "are both named same"),
}


@pytest.mark.skipif(not MODELS.is_dir(), reason=f"no folder {MODELS} with the sample networks")
@pytest.mark.parametrize("what", TFLITE)
def test_a_tflite_file_that_contradicts_itself_is_refused(tmp_path: Path, what: str) -> None:
    change, found = TFLITE[what]
    flat = Flat((MODELS / "kws_ref_model.tflite").read_bytes())
    change(flat)
    told = refusal(tmp_path, ".tflite", bytes(flat.data))
    assert told.startswith("model file: ")
    assert found in told


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (Tensor((1, 2, 4, 4), 0.2), "reads the tensor 'y' with scale 0.1"),
        (Tensor((1, 2, 4, 4), 0.1, 3), "and zero point 0"),
        (Tensor((1, 4, 2, 4), 0.1), "reads the tensor 'y' as int8 [1, 2, 4, 4]"),
    ],
)
def test_a_result_that_the_importer_reads_otherwise_is_refused(
    tmp_path: Path, output: Tensor, found: str
) -> None:
    """A transposition keeps scale and zero point: the importer does not look at these."""
    content = one_operator("TRANSPOSE", [Tensor((1, 4, 4, 2), 0.1)], output, indices=(0, 3, 1, 2))
    assert found in refusal(tmp_path, ".tflite", content)


def by_number(change: Callable[[schema.OperatorCodeT], None], content: bytes) -> bytes:
    """A file with another number of its operator."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    change(model.operatorCodes[0])
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


IMAGE, ROW = Tensor((1, 4, 4, 2), 0.1, 3), Tensor((1, 2, 2, 1), 0.1, 3)
SLOPES = Tensor((1, 1, 1, 2), 0.1, 0, np.ones((1, 1, 1, 2), np.int8))
KERNEL = Tensor((3, 1, 1, 2), 0.1, 0, np.ones((3, 1, 1, 2), np.int8))
SHAPE = Tensor((4,), 0.0, 0, np.array([1, 4, 4, 3], np.int32))


@pytest.mark.parametrize(
    ("kind", "inputs", "output", "options", "indices", "found"),
    [
        ("SUM", [IMAGE], ROW, {"keepDims": True}, [1, 2], "SUM 'y' of integers with scales"),
        ("PRELU", [IMAGE, SLOPES], IMAGE, {}, [], "PRELU 'y' of integers with scales"),
        ("GREATER", [IMAGE, SLOPES], IMAGE, {}, [], "GREATER 'y' of integers with scales"),
        ("SOFTMAX", [IMAGE], IMAGE, {"beta": 0.5}, [], "SOFTMAX 'y' with Beta 0.5"),
        (
            "TRANSPOSE_CONV",
            [SHAPE, KERNEL, IMAGE],
            Tensor((1, 4, 4, 3), 0.1),
            {"strideH": 1, "strideW": 1, "fusedActivationFunction": 1},
            [],
            "TRANSPOSE_CONV 'y' with FusedActivationFunction 1",
        ),
    ],
)
def test_what_the_importer_would_misread_without_a_word_is_refused(
    tmp_path: Path,
    kind: str,
    inputs: list[Tensor],
    output: Tensor,
    options: dict[str, Any],
    indices: list[int],
    found: str,
) -> None:
    name = {"SUM": "Reducer", "TRANSPOSE_CONV": "TransposeConv"}.get(kind, kind.title())
    table = getattr(schema, f"{name}OptionsT")() if options else None
    for field, value in options.items():
        setattr(table, field, value)
    told = refusal(tmp_path, ".tflite", one_operator(kind, inputs, output, table, indices))
    assert found in told


def test_an_operator_s_number_in_its_new_field_alone_is_refused(tmp_path: Path) -> None:
    """Which TVM's importer reads as an addition."""
    content = one_operator("MAXIMUM", [IMAGE, IMAGE], IMAGE)
    moved = by_number(lambda code: setattr(code, "deprecatedBuiltinCode", 0), content)
    assert "operator 55 as number 0" in refusal(tmp_path, ".tflite", moved)
    (tmp_path / "model.tflite").write_bytes(content)
    load_model(tmp_path / "model.tflite")


def test_a_sum_of_integers_whose_zero_is_0_is_read_right(tmp_path: Path) -> None:
    options = schema.ReducerOptionsT()
    content = one_operator("SUM", [Tensor((2, 9), 0.5)], Tensor((2,), 0.25), options, [1])
    (tmp_path / "model.tflite").write_bytes(content)
    mod, _ = load_model(tmp_path / "model.tflite")
    assert "sum" in mod.astext(show_meta_data=False)


@pytest.mark.parametrize("content", [b"", b"TFL3", b"\x1c\0\0\0TFL3", b"\xff\xff\xff\xffTFL3" * 9])
def test_what_is_no_tflite_file_is_refused(tmp_path: Path, content: bytes) -> None:
    assert refusal(tmp_path, ".tflite", content).startswith("model file: ")


# --- ONNX --------------------------------------------------------------------------------------


def model() -> onnx.ModelProto:
    """A sum of the input and a constant."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"], "add")],
        "net",
        [helper.make_tensor_value_info("x", FLOAT, (1, 2))],
        [helper.make_tensor_value_info("y", FLOAT, (1, 2))],
        [numpy_helper.from_array(np.ones((1, 2), np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def typed_data(made: onnx.ModelProto) -> None:
    tensor = helper.make_tensor("w", FLOAT, (1, 2), [1.0, 2.0])
    tensor.float_data.append(3.0)
    made.graph.initializer[0].CopyFrom(tensor)


def huge_constant(made: onnx.ModelProto) -> None:
    shape = numpy_helper.from_array(np.array([2**20, 2**20], np.int64), "shape")
    made.graph.initializer.append(shape)
    made.graph.node.append(helper.make_node("ConstantOfShape", ["shape"], ["huge"], "fill"))


def computed_constant(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(numpy_helper.from_array(np.array([2**20], np.int64), "side"))
    made.graph.node.append(helper.make_node("Concat", ["side", "side"], ["both"], "cat", axis=0))
    made.graph.node.append(helper.make_node("ConstantOfShape", ["both"], ["huge"], "fill"))


def large_broadcast(made: onnx.ModelProto) -> None:
    """Each value is small enough, the sum of both is not."""
    for value, dims in ((made.graph.input[0], (2**20, 1)), (made.graph.output[0], ())):
        value.CopyFrom(helper.make_tensor_value_info(value.name, FLOAT, dims))
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((1, 2048), "f4"), "w"))


def bad_attribute(made: onnx.ModelProto) -> None:
    tensor = numpy_helper.from_array(np.ones((3,), np.float32), "")
    tensor.dims[0] = 5
    made.graph.node.append(helper.make_node("Constant", [], ["c"], "five", value=tensor))


def branch(made: onnx.ModelProto) -> None:
    inner = helper.make_graph([helper.make_node("Neg", ["none"], ["z"])], "inner", [], [])
    made.graph.node.append(helper.make_node("If", ["x"], ["z"], "if", then_branch=inner))


ONNX: dict[str, tuple[Callable[[onnx.ModelProto], None], str]] = {
    "data": (
        lambda m: m.graph.initializer[0].dims.append(3),
        "initializer 'w': 8 bytes of data",
    ),
    "typed data": (typed_data, "initializer 'w': 3 numbers of data"),
    "dimension": (
        lambda m: m.graph.initializer[0].dims.extend([-1, -1]),
        "initializer 'w' of shape [1, 2, -1, -1]",
    ),
    "type": (lambda m: setattr(m.graph.initializer[0], "data_type", 99), "element type 99"),
    "endless": (
        lambda m: m.graph.initializer[0].dims.extend([2**62] * 60),
        "4 bytes an element",
    ),
    "input": (
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 2**62),
        "value 'x' of shape",
    ),
    "unknown": (
        lambda m: m.graph.node[0].input.append("z"),
        "node 0 (Add 'add') reads 'z', which nothing before it makes",
    ),
    "twice": (lambda m: m.graph.node[0].output.append("x"), "makes 'x' anew"),
    "input twice": (lambda m: m.graph.input.append(m.graph.input[0]), "value 'x', 2 times"),
    "constant twice": (
        lambda m: m.graph.initializer.append(m.graph.initializer[0]),
        "value 'w', 2 times",
    ),
    "attribute twice": (
        lambda m: m.graph.node[0].attribute.extend([helper.make_attribute("axis", 1)] * 2),
        "operator Add 'add' with the attribute 'axis', 2 times",
    ),
    "function": (
        lambda m: m.functions.append(
            helper.make_function("", "Add", ["a", "b"], ["c"], [], m.opset_import)
        ),
        "operator Add 'add', a function of the file's own",
    ),
    "opsets": (
        lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 14)),
        "opsets [13, 14]",
    ),
    "lost output": (lambda m: setattr(m.graph.output[0], "name", "z"), "output 'z' of the model"),
    "no output": (lambda m: m.graph.ClearField("output"), "a model without outputs"),
    "constant": (bad_attribute, "a constant of node 1 (Constant 'five'): 12 bytes of data"),
    "branch": (branch, "node 0 (Neg '') reads 'none'"),
    "huge constant": (huge_constant, "result 'huge' of shape [1048576, 1048576]"),
    "computed constant": (computed_constant, "result 'huge' of shape [1048576, 1048576]"),
    "large result": (large_broadcast, "of shape [1048576, 2048]"),
}


@pytest.mark.parametrize("what", ONNX)
def test_an_onnx_file_that_contradicts_itself_is_refused(tmp_path: Path, what: str) -> None:
    change, found = ONNX[what]
    made = model()
    change(made)
    told = refusal(tmp_path, ".onnx", made.SerializeToString())
    assert told.startswith("model file: ")
    assert found in told


# --- Shapes that are asked for ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("", {}),
        ("data:1x3x32x32", {"data": [1, 3, 32, 32]}),
        ("x:0:1x3, y:[2,1] z:-1", {"x:0": [1, 3], "y": [2, 1], "z": [-1]}),
        ("x:[1,2]", {"x": [1, 2]}),
        (" a/b:0:[1, 2],y : [3]\n z.1:[]", {"a/b:0": [1, 2], "y": [3], "z.1": []}),
    ],
)
def test_shapes_are_read_from_tvmcs_text(text: str, shapes: dict[str, list[int]]) -> None:
    assert parse_shapes(text) == shapes
    assert parse_shapes(shapes) == shapes


def test_shapes_and_values_of_inputs_may_be_a_mapping() -> None:
    asked = {"a, b": (1, -1), "odd": np.array([2, 3]), "none": [], "rate": 16000, "flag": True}
    shapes, values = parse_inputs(asked)
    assert shapes == {"a, b": [1, -1], "odd": [2, 3], "none": []}
    assert values == {"rate": 16000, "flag": 1}
    for wrong in ({"x": (1.5, 2)}, {"x": (0, 2)}, {"x": None}, {3: (1, 2)}, [("x", (1, 2))]):
        with pytest.raises(OptionError, match="input shapes"):
            parse_inputs(wrong)  # type: ignore[arg-type]


def test_an_open_dimension_is_minus_one() -> None:
    assert isinstance(importers_shapes(parse_shapes("x:[-1,2]"))["x"][0], tvm.tir.Any)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "x:[1,2",
        "x:[1,a]",
        "x:[1.5]",
        "x:[1,,2]",
        "x:[0]",
        "x:[-2]",
        "x:[1] junk",
        "[1,2]",
        "x:1x",
    ],
)
@pytest.mark.parametrize("before", ["", "z:[3] "])
def test_misshapen_shapes_are_an_error(text: str, before: str) -> None:
    with pytest.raises(OptionError, match=r"input shapes(.|\n)*allowed: name:1x3x32x32"):
        parse_shapes(before + text)


@pytest.mark.parametrize("text", ["x:[1,2]y:[1]", "x:[1] x:[2]", ":[1]", "x:[1]]"])
def test_shapes_that_run_into_each_other_are_an_error(text: str) -> None:
    with pytest.raises(OptionError, match=r"input shapes(.|\n)*allowed: name:1x3x32x32"):
        parse_shapes(text)


@pytest.mark.parametrize(
    ("text", "told"), [("z:[1,2]", "z:[1, 2]"), ("w:[1,2]", "w:[1, 2]"), ("x:[2]", "x:[2]")]
)
def test_shapes_of_no_input_or_another_number_of_dimensions_are_an_error(
    tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "model.onnx").write_bytes(model().SerializeToString())
    with pytest.raises(OptionError) as raised:
        load_model(tmp_path / "model.onnx", text)
    assert raised.value.found == told
    assert "x:[1, 2]" in str(raised.value.allowed)


def test_shapes_that_fit_are_those_of_the_module(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(model().SerializeToString())
    mod, _ = load_model(tmp_path / "model.onnx", "x:[7,2]")
    (x,) = mod["main"].params
    assert [int(dim) for dim in x.checked_type.shape] == [7, 2]


@pytest.mark.skipif(not MODELS.is_dir(), reason=f"no folder {MODELS} with the sample networks")
def test_shapes_of_a_tflite_file_are_checked_too() -> None:
    with pytest.raises(OptionError) as raised:
        load_model(MODELS / "kws_ref_model.tflite", "input_1:[1,49]")
    assert raised.value.found == "input_1:[1, 49]"
    assert "input_1:[1, 49, 10, 1]" in str(raised.value.allowed)


@pytest.mark.parametrize("package", ["tflite", "onnx"])
def test_a_missing_reader_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    (tmp_path / f"net.{package}").write_bytes(b"....TFL3")
    monkeypatch.setattr(load, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match=rf'pip install "tinyai\[{package}\]"'):
        load_model(tmp_path / f"net.{package}")


# --- What is no model ---------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x0a\xff\xff\xff\xff\x0f"])
def test_what_is_no_onnx_file_is_refused(tmp_path: Path, content: bytes) -> None:
    assert refusal(tmp_path, ".onnx", content).startswith("model file: ")


def test_data_outside_of_the_models_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(8))
    folder = tmp_path / "folder"
    folder.mkdir()
    made = model()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    assert "in the file '../secret'" in refusal(folder, ".onnx", made.SerializeToString())
    (folder / "beside").write_bytes(np.array([[1, 2]], np.float32).tobytes())
    tensor.external_data[0].value = "beside"
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    load_model(str(folder / "model.onnx"))


def test_types_that_do_not_fit_are_the_importers_refusal(tmp_path: Path) -> None:
    made = model()
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((1, 7), "f4"), "w"))
    assert "TVM's importer" in refusal(tmp_path, ".onnx", made.SerializeToString())


def test_a_whole_file_loads(tmp_path: Path) -> None:
    file = tmp_path / "model.ONNX"
    file.write_bytes(model().SerializeToString())
    mod, params = load_model(str(file))
    assert [param.name_hint for param in mod["main"].params] == ["x"]
    assert not params


def test_the_largest_tensor_fits_into_a_32_bit_size() -> None:
    assert LARGEST == 2**31 - 1


def test_a_convolution_whose_groups_do_not_divide_its_channels_stays_on_the_host() -> None:
    data = relay.var("data", shape=(1, 8, 8, 3), dtype="int8")
    weight = relay.const(np.ones((3, 3, 1, 64), np.int8))
    conv = relay.nn.conv2d(
        data,
        weight,
        groups=3,
        channels=64,
        kernel_size=(3, 3),
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype="int32",
    )
    report = tinyai.explain(tvm.IRModule.from_expr(relay.nn.relu(conv)))
    row = next(row for row in report.host if row.operator == "nn.conv2d")
    assert row.reason.clause == "groups"
    assert row.reason.found == "3 for 3 channels to 64"
