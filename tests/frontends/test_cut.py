"""Parts of model files: what a part computes is what the whole computes between the same values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tests.support.oracle import Array
from tests.support.random_floats import random_floats
from tests.support.random_onnx import random_onnx, run
from tests.support.random_tflite import Writer, random_file
from tests.support.streaming_tflite import StreamingWriter
from tinyai.cli import main
from tinyai.errors import ModelError, OptionError, UsageWarning
from tinyai.frontends.cut import CutFile
from tinyai.frontends.onnx.operators import READERS

MODELS = 60


# --- .onnx ----------------------------------------------------------------------------------------


def detector() -> onnx.ModelProto:
    """A layer between two operators that are not read, and one in front of both outputs."""
    rng = np.random.default_rng(3)
    weights = {
        "w": rng.normal(size=(4, 2, 3, 3)).astype(np.float32),
        "v": rng.normal(size=(3, 4, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Hardmax", ["x"], ["bent"], "bent"),
        helper.make_node("Conv", ["bent", "w"], ["features"], "features"),
        helper.make_node("Relu", ["features"], ["positive"], "positive"),
        helper.make_node("Conv", ["positive", "v"], ["scores"], "scores"),
        helper.make_node("NonZero", ["scores"], ["places"], "places"),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8, 8])],
        [
            helper.make_tensor_value_info("places", TensorProto.INT64, [4, "found"]),
            helper.make_tensor_value_info("positive", TensorProto.FLOAT, [1, 4, 6, 6]),
        ],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(model, folder / "whole.onnx")
    return folder / "whole.onnx"


def with_all_values(model: onnx.ModelProto, names: Sequence[str], inputs: Any) -> dict[str, Array]:
    """What the whole computes for values by name, its outputs and inputs among them."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    known = [value.name for value in shown.graph.output]
    more = [name for name in dict.fromkeys(names) if name not in {*known, *inputs}]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in more)
    return {**inputs, **dict(zip([*known, *more], run(shown, inputs), strict=True))}


def require_same_onnx(part: CutFile, whole: onnx.ModelProto, inputs: Mapping[str, Array]) -> None:
    values = with_all_values(whole, [*part.inputs, *part.outputs], inputs)
    cut = onnx.load(part.file)
    found = run(cut, {value.name: values[value.name] for value in cut.graph.input})
    for name, array in zip(part.outputs, found, strict=True):
        if array.dtype == np.float16:  # of which ONNX Runtime keeps some in float32 between nodes
            largest = float(np.abs(array.astype(np.float32)).max())
            np.testing.assert_allclose(array, values[name], rtol=0.01, atol=0.01 * largest)
        else:
            np.testing.assert_array_equal(array, values[name])


def test_the_largest_part_lies_between_operators_that_become_no_integers(tmp_path: Path) -> None:
    assert not {("", "Hardmax"), ("", "NonZero")} & READERS.keys()
    whole = detector()

    part = tinyai.cut_file(saved(whole, tmp_path), tmp_path / "part.onnx")

    assert part.inputs == {"bent": "float32[1,2,8,8]"}
    assert part.outputs == {"positive": "float32[1,4,6,6]", "scores": "float32[1,3,6,6]"}
    assert (part.operators, part.of) == (3, 5)
    x = np.random.default_rng(0).normal(size=(1, 2, 8, 8)).astype(np.float32)
    require_same_onnx(part, whole, {"x": x})


def test_the_largest_part_is_quantized_and_compiled(tmp_path: Path) -> None:
    file, samples = saved(detector(), tmp_path), tmp_path / "samples"
    samples.mkdir()
    rng = np.random.default_rng(0)
    for number in range(4):
        np.save(samples / f"{number}.npy", rng.normal(size=(1, 2, 8, 8)).astype(np.float32))

    with pytest.raises(tinyai.BoundaryError, match="tinyai cut"):
        network = tinyai.quantize_file(file, samples, whole=True)
    part = tinyai.cut_file(file, tmp_path / "part.onnx")
    network = tinyai.quantize_file(part.file, samples, whole=True)

    assert [end.name for end in network.model.outputs] == ["positive", "scores"]
    tinyai.compile(network.model, tmp_path / "part.so")


@pytest.mark.parametrize(
    ("inputs", "outputs", "operators"),
    [
        ((), "features", 2),
        ("positive", (), 2),  # what follows: no output in front
        (["features"], ["scores"], 2),
        (["features", "features"], ["positive", "scores"], 2),
    ],
)
def test_a_part_of_a_file_begins_and_ends_where_it_is_asked_to(
    inputs: str | list[str], outputs: str | list[str], operators: int, tmp_path: Path
) -> None:
    whole = detector()

    file = saved(whole, tmp_path)
    part = tinyai.cut_file(file, tmp_path / "part.onnx", inputs=inputs, outputs=outputs)

    assert part.operators == operators
    names = {tensor.name for tensor in onnx.load(part.file).graph.initializer}
    assert names <= {"w", "v"}
    assert len(names) == 1
    x = np.random.default_rng(0).normal(size=(1, 2, 8, 8)).astype(np.float32)
    require_same_onnx(part, whole, {"x": x})


@pytest.mark.parametrize("quantized", [False, True])
def test_parts_of_random_onnx_files_compute_what_the_whole_computes(
    quantized: bool, tmp_path: Path
) -> None:
    cuts = 0
    for seed in range(MODELS):
        rng = np.random.default_rng(seed)
        if quantized:
            made = random_onnx(seed)
            whole, inputs = made.integers, made.inputs
        else:
            model = random_floats(seed)
            whole, inputs = model.proto, model.samples[0]
        values = [name for node in whole.graph.node for name in node.output if name]
        begins = [str(rng.choice(values)) for _ in range(rng.integers(3))]
        try:
            part = tinyai.cut_file(
                saved(whole, tmp_path),
                tmp_path / "part.onnx",
                inputs=begins,
                outputs=[] if begins and seed % 2 else str(rng.choice(values)),
            )
        except OptionError as error:
            assert "are computed of" in str(error) or "of an unknown type" in str(error)  # noqa: PT017
            continue
        require_same_onnx(part, whole, inputs)
        cuts += 1
    assert cuts > MODELS / 3


def test_what_a_node_makes_beside_what_is_needed_has_another_name(tmp_path: Path) -> None:
    node = helper.make_node("Split", ["x"], ["a", "b"], "halves", axis=0)
    total = helper.make_node("Add", ["a", "b"], ["y"], "sum")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])
    graph = helper.make_graph([node, total], "g", [x], [y])
    opset = helper.make_opsetid("", 13)
    whole = helper.make_model(graph, opset_imports=[opset], ir_version=8)

    part = tinyai.cut_file(saved(whole, tmp_path), tmp_path / "part.onnx", inputs="a")

    assert [*part.inputs] == ["a", "x"]
    require_same_onnx(part, whole, {"x": np.arange(8, dtype=np.float32).reshape(4, 2)})


def test_an_open_shape_is_that_of_input_shapes(tmp_path: Path) -> None:
    whole = detector()
    whole.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    del whole.graph.output[1:]

    def shape(asked: str) -> str:
        file, part = saved(whole, tmp_path), tmp_path / "part.onnx"
        made = tinyai.cut_file(file, part, outputs="features", input_shapes=asked)
        return made.outputs["features"]

    assert shape("") == "float32[1,4,?,6]"
    assert shape("x:1x2x12x8") == "float32[1,4,10,6]"


# --- .tflite --------------------------------------------------------------------------------------


def interpreter_of(content: bytes) -> Interpreter:
    interpreter = Interpreter(
        model_content=content,
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    return interpreter


def tensors_of(content: bytes, inputs: Mapping[str, Array] | None) -> tuple[Interpreter, Any]:
    """LiteRT's reference kernels after a run, and its numbers of tensors by name."""
    interpreter = interpreter_of(content)
    for each in interpreter.get_input_details():
        rng = np.random.default_rng(0)
        value = rng.integers(-100, 100, each["shape"]) if inputs is None else inputs[each["name"]]
        interpreter.set_tensor(each["index"], value.astype(each["dtype"]))
    interpreter.invoke()
    return interpreter, {each["name"]: each["index"] for each in interpreter.get_tensor_details()}


def require_same_tflite(part: CutFile, whole: bytes) -> None:
    interpreter, numbers = tensors_of(whole, None)
    given = {name: interpreter.get_tensor(numbers[name]) for name in part.inputs}
    cut, places = tensors_of(part.file.read_bytes(), given)
    for name in part.outputs:
        wanted = interpreter.get_tensor(numbers[name])
        np.testing.assert_array_equal(cut.get_tensor(places[name]), wanted)


def is_run(content: bytes) -> bool:
    """Whether LiteRT has a kernel for each operator: what is behind open shapes it asks at last."""
    try:
        interpreter_of(content).invoke()
    except (RuntimeError, ValueError):
        return False
    return True


@pytest.mark.filterwarnings("ignore:shapes of the part:tinyai.errors.UsageWarning")
def test_parts_of_random_tflite_files_compute_what_the_whole_computes(tmp_path: Path) -> None:
    cuts, file = 0, tmp_path / "whole.tflite"
    for seed in range(MODELS):
        rng, written = np.random.default_rng(seed), random_file(seed)
        file.write_bytes(written.content())
        made = [written.graph.tensors[o].name for op in written.graph.operators for o in op.outputs]
        names = [name.decode() if isinstance(name, bytes) else name for name in made]
        begins = [str(rng.choice(names)) for _ in range(rng.integers(2))]
        ends = str(rng.choice(names))
        try:
            part = tinyai.cut_file(file, tmp_path / "part.tflite", inputs=begins, outputs=ends)
        except OptionError as error:
            assert "are computed of" in str(error)  # noqa: PT017
            continue
        if not is_run(file.read_bytes()):
            continue
        require_same_tflite(part, file.read_bytes())
        cuts += 1
    assert cuts > MODELS / 3


def frames(operator: str = "RELU") -> bytes:
    """Values that a reshape makes three frames of; their declared number is 1, and open."""
    w = Writer(np.random.default_rng(0))
    x = w.value((1, 12))
    framed, result = w.like(x, (1, 4)), w.like(x, (1, 4))
    shape = w.tensor((2,), "INT32", np.array([3, 4], np.int32))
    w.add("RESHAPE", [x.index, shape], [framed.index])
    w.add(operator, [framed.index], [result.index])
    w.graph.inputs, w.graph.outputs = [x.index], [result.index]
    for each in (framed, result):
        w.graph.tensors[each.index].shapeSignature = [-1, 4]
    return w.content()


def test_open_shapes_of_a_tflite_file_become_those_that_litert_finds(tmp_path: Path) -> None:
    file = tmp_path / "whole.tflite"
    file.write_bytes(frames())
    name = names_in(file)[1]

    part = tinyai.cut_file(file, tmp_path / "part.tflite", inputs=name)

    assert [*part.inputs.values(), *part.outputs.values()] == ["int8[3,4]", "int8[3,4]"]
    require_same_tflite(part, file.read_bytes())


def names_in(file: Path) -> list[str]:
    graph = schema.ModelT.InitFromPackedBuf(file.read_bytes(), 0).subgraphs[0]
    made = [number for operator in graph.operators for number in operator.outputs]
    return [graph.tensors[number].name.decode() for number in [*graph.inputs, *made]]


def image_net() -> bytes:
    """A convolution of images whose size is open."""
    w = Writer(np.random.default_rng(0))
    x, y = w.value((1, 1, 1, 3)), w.value((1, 1, 1, 4))
    kernel = np.random.default_rng(1).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    weights = w.tensor(kernel.shape, "INT8", kernel, [0.01], [0])
    bias = w.tensor((4,), "INT32", np.zeros(4, np.int32), [0.01 * x.scale], [0])
    w.add(
        *("CONV_2D", [x.index, weights, bias], [y.index], "Conv2D"),
        strideH=1,
        strideW=1,
        dilationHFactor=1,
        dilationWFactor=1,
    )
    w.graph.inputs, w.graph.outputs = [x.index], [y.index]
    for each in (x, y):
        w.graph.tensors[each.index].shapeSignature = [-1, -1, -1, each.shape[-1]]
    return w.content()


def test_an_input_of_open_sizes_is_told_and_a_file_with_sizes_is_written(tmp_path: Path) -> None:
    file, fixed = tmp_path / "open.tflite", tmp_path / "fixed.tflite"
    file.write_bytes(image_net())

    with pytest.warns(UsageWarning, match=r"\[\?, \?, \?, 3\], taken as \[1, 1, 1, 3\]"):
        tinyai.network_of(file)
    with pytest.raises(OptionError, match="tinyai cut FILE -o FIXED"):
        tinyai.network_of(file, input_shapes="t0:1x9x7x3")
    part = tinyai.cut_file(file, fixed, input_shapes="t0:1x9x7x3")

    with pytest.raises(OptionError, match="sizes with which LiteRT runs the file"):
        tinyai.cut_file(file, fixed, input_shapes="t0:1x1x7x5")
    assert part.inputs == {"t0": "int8[1,9,7,3]"}
    assert [*part.outputs.values()] == ["int8[1,9,7,4]"]
    assert tinyai.check(fixed, samples=2).equal


def test_declared_shapes_of_a_file_that_litert_does_not_run_are_taken_with_a_warning(
    tmp_path: Path,
) -> None:
    file = tmp_path / "whole.tflite"
    file.write_bytes(frames("CUSTOM"))

    with pytest.warns(UsageWarning, match="LiteRT does not run"):
        part = tinyai.cut_file(file, tmp_path / "part.tflite", outputs=names_in(file)[1])

    assert [*part.outputs.values()] == ["int8[1,4]"]


def test_a_file_with_a_state_is_not_cut(tmp_path: Path) -> None:
    w = StreamingWriter(np.random.default_rng(0))
    x, handle = w.tensor_like((1, 4)), w.handle("kept")
    before = w.read(handle, (1, 4))
    w.add("ASSIGN_VARIABLE", [handle, x.index], [], "AssignVariable")
    w.graph.inputs, w.graph.outputs = [x.index], [before.index]
    file = tmp_path / "whole.tflite"
    file.write_bytes(w.content())

    with pytest.raises(ModelError, match="without a state"):
        tinyai.cut_file(file, tmp_path / "part.tflite", outputs=names_in(file)[-1])


# --- Both -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"inputs": "feature"}, "such as features"),
        ({"outputs": "x"}, "a value that an operator of the file makes"),
        ({"inputs": "scores", "outputs": "features"}, "values that features are computed of"),
        ({"inputs": "features", "outputs": "features"}, "values that features are computed of"),
        ({"outputs": "features", "signature": "one"}, "none beside an .onnx file"),
        ({"outputs": "features", "input_shapes": "y:1"}, "the model's inputs"),
    ],
)
def test_a_part_that_cannot_be_is_refused_and_nothing_is_written(
    asked: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=said):
        tinyai.cut_file(saved(detector(), tmp_path), tmp_path / "part.onnx", **asked)
    assert [each.name for each in tmp_path.iterdir()] == ["whole.onnx"]


def test_a_model_of_which_all_becomes_integers_has_no_largest_part(tmp_path: Path) -> None:
    whole = detector()
    del whole.graph.node[0], whole.graph.node[-1], whole.graph.output[0]
    whole.graph.input[0].name = "bent"

    with pytest.raises(OptionError, match="every operator becomes integers"):
        tinyai.cut_file(saved(whole, tmp_path), tmp_path / "part.onnx")


def test_a_part_has_the_format_of_the_whole(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"\.onnx to \.onnx"):
        tinyai.cut_file(saved(detector(), tmp_path), tmp_path / "part.tflite")


def test_explain_names_the_command_where_some_operators_stay_out(tmp_path: Path) -> None:
    file = saved(detector(), tmp_path)
    part = tinyai.cut_file(file, tmp_path / "part.onnx")

    told = CliRunner().invoke(main, ["explain", str(file)], catch_exceptions=False).output
    whole = CliRunner().invoke(main, ["explain", str(part.file)], catch_exceptions=False).output

    assert f"tinyai cut {file} -o whole_part.onnx" in told
    assert "tinyai cut" not in whole


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    file, part = saved(detector(), tmp_path), tmp_path / "part.onnx"
    words = ["cut", str(file), "-o", str(part)]

    printed = CliRunner().invoke(main, words, catch_exceptions=False).output
    named = [*words, "--inputs", "features", "--outputs", "scores", "--json"]
    told = json.loads(CliRunner().invoke(main, named, catch_exceptions=False).stdout)

    assert "3 of 5 operators" in printed
    assert "bent float32[1,2,8,8]" in printed
    assert f"tinyai explain {part}" in printed
    assert told["inputs"] == {"features": "float32[1,4,6,6]"}
    assert [*told["outputs"]] == ["scores"]
