"""ONNX files without TVM: equal to ONNX Runtime and to what TVM's importer reads, or refused with a
reason."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from benchmarks.onnx_networks import FORMS, NETWORKS, TYPES, quantize
from tests.support import onnx_bounds
from tests.support.cases import assert_same
from tests.support.misread_onnx import CASES, IMAGE, REFUSED, Made, made, model_of
from tests.support.onnx_bounds import bound, differences, steps_off
from tests.support.onnx_models import quantized
from tests.support.paths import ROOT
from tests.support.qdq_cases import BRANCHES, INTEGERS, TABLES
from tests.support.random_onnx import (
    CONTRIB,
    OPERATORS,
    QOPERATORS,
    OnnxModel,
    random_onnx,
    random_pairs,
    run,
    write,
)
from tests.support.structure import structure
from tinyai.checking.onnxruntime import OnnxRuntimeOracle
from tinyai.errors import BoundaryError, ModelError, OptionError, TinyAIError, UnsupportedError
from tinyai.frontends.files import network_of_file
from tinyai.ir import Array
from tinyai.model_file import FileOptions
from tinyai.network import Network, Port
from tinyai.passes import optimize
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target

ONNX = Target(rounding="onnx")
RANDOM, PARTS = 1000, 5
INPUTS = 20
# Elements of a value: an image as wide as a broken file says would take minutes to compute.
LARGEST_COMPARED = 2**17


def network(proto: ModelProto, folder: Path, shapes: str = "", mode: str = "onnx") -> Network:
    file = folder / "model.onnx"
    file.write_bytes(proto.SerializeToString())
    return network_of_file(file, Target(rounding=mode), options=FileOptions(shapes))


def computed(network: Network, inputs: dict[str, Array]) -> list[Array]:
    """By the references of the operators."""
    return run_graph(optimize(network.graph), [inputs[port.name] for port in network.inputs])


def drawn(port: Port, rng: np.random.Generator) -> Array:
    dtype = np.dtype(port.type.dtype.value)
    if dtype.kind == "f":
        return rng.normal(0, 1, port.type.shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, port.type.shape, dtype, endpoint=True)


def assert_equal_to_onnx_runtime(file: Path) -> None:
    """All values of 20 inputs, the C and ONNX Runtime."""
    read = network_of_file(file, ONNX)
    runner = Runner(read.graph, Target(isa="native", rounding="onnx"))
    opponent = OnnxRuntimeOracle(file, [port.name for port in read.inputs])
    rng = np.random.default_rng(0)
    samples = [[drawn(port, rng) for port in read.inputs] for _ in range(INPUTS)]
    for sample, wanted in zip(samples, opponent.results(samples), strict=True):
        for result, expected in zip(runner(*sample), wanted, strict=True):
            assert_same(result, expected, "the C, and ONNX Runtime")


# --- Without TVM ---------------------------------------------------------------------------------

WITHOUT = """
import sys

sys.modules |= dict.fromkeys(("tvm", "torch", "tensorflow"))  # to import one raises an error
from tinyai.__main__ import run
run("tinyai")
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MobileNetV2 of 32 by 32 pixels in QDQ form."""
    row = next(each for each in NETWORKS if each.name == "mobilenet_v2")
    file = tmp_path_factory.mktemp("small") / "small.onnx"
    file.write_bytes(quantize(row.build(**row.small)).SerializeToString())
    return file


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ("compile", "FILE", "-o", "OUT.so"),
        ("compile", "FILE", "-o", "OUT.tar", "--ends", "int8"),
        ("explain", "FILE"),
        ("check", "FILE", "--samples", "2"),
        ("bench", "FILE", "--runs", "2"),
        ("run", "FILE", "--input", "INPUT"),
    ],
    ids=lambda command: command[0],
)
def test_commands_take_a_file_without_tvm(
    command: tuple[str, ...], small: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "image.npy", np.zeros((1, 3, 32, 32), np.float32))
    places = {"FILE": str(small), "INPUT": str(tmp_path / "image.npy")}
    words = [places.get(w, w.replace("OUT", str(tmp_path / "out"))) for w in command]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- Networks ------------------------------------------------------------------------------------

_FULL = [(n, form, dtype) for n in NETWORKS for form in FORMS for dtype in TYPES]


def _is_quick(name: str, form: str, dtype: str) -> bool:
    return name in ("mobilenet_v2", "unet") and (form, dtype) == ("qdq", "uint8")


@pytest.mark.parametrize(
    ("row", "form", "dtype"),
    [
        pytest.param(*each, marks=() if _is_quick(each[0].name, *each[1:]) else pytest.mark.slow)
        for each in _FULL
    ],
    ids=str,
)
def test_networks_are_those_of_relay_and_equal_to_onnx_runtime(
    row: Any, form: Any, dtype: Any, tmp_path: Path
) -> None:
    from tinyai.frontends.relay.whole import network_of

    file = tmp_path / "net.onnx"
    proto = quantize(row.build(**row.small), form=form, activation=dtype)
    file.write_bytes(proto.SerializeToString())
    if (row.name, form) == ("unet", "qoperator"):
        with pytest.raises(BoundaryError, match=r"ConvTranspose .*: input: a constant"):
            network_of_file(file, ONNX)
        return
    read, relays = network_of_file(file, ONNX), network_of(file, ONNX)
    assert structure(read.graph) == structure(relays.graph)
    ends, relays_ends = ((*net.inputs, *net.outputs) for net in (read, relays))
    for end, relays_end in zip(ends, relays_ends, strict=True):  # TVM forgets outputs' names
        assert replace(end, name="") == replace(relays_end, name="")
    assert_equal_to_onnx_runtime(file)


MODELS = INTEGERS | TABLES | BRANCHES


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_operators_in_pairs_are_equal_to_onnx_runtime(
    name: str, dtype: str, tmp_path: Path
) -> None:
    proto, inputs = quantized(MODELS[name], dtype)
    results = computed(network(proto, tmp_path), inputs)
    for result, expected in zip(results, run(proto, inputs, plain=False), strict=True):
        assert_same(result, expected, f"{name}, and ONNX Runtime")


# --- What is easily misread ----------------------------------------------------------------------


@pytest.mark.parametrize("case", [c for c in CASES if c != "a transposed convolution of opset 10"])
def test_what_importers_misread_is_read_right(case: str, tmp_path: Path) -> None:
    proto, inputs = made(case)
    (expected,) = run(proto, inputs)
    assert np.unique(expected).size >= 10
    (result,) = computed(network(proto, tmp_path), inputs)
    assert_same(result, expected, f"{case}, and ONNX Runtime")


@pytest.mark.parametrize("case", [c for c in REFUSED if c != "a rounded size between rows"])
def test_what_has_no_integers_is_refused_by_name(case: str, tmp_path: Path) -> None:
    proto, _ = REFUSED[case][0]()
    with pytest.raises(TinyAIError, match="'it'"):
        network(proto, tmp_path)


F32 = np.float32


@pytest.mark.parametrize(
    ("kind", "numbers", "more", "words"),
    [
        ("LayerNormalization", (9,), {"outputs": 2}, "results: also y1"),
        ("LayerNormalization", (9,), {"stash_type": 10}, "stash_type: float16"),
        ("LayerNormalization", (3,), {}, r"scale \(3,\), bias \(\)"),
        ("LayerNormalization", (9,), {"epsilon": -1.0}, "epsilon: -1.0"),
        ("InstanceNormalization", (3,), {}, r"numbers of channels: \(3,\)"),
    ],
)
def test_a_norm_that_is_another_one_is_refused(
    kind: str, numbers: tuple[int, ...], more: dict[str, Any], words: str, tmp_path: Path
) -> None:
    count = 1 if kind == "LayerNormalization" else 2
    proto, _ = model_of(kind, IMAGE, *[np.ones(numbers, F32)] * count, opset=17, **more)
    with pytest.raises(TinyAIError, match=words):
        network(proto, tmp_path)


def between(*nodes: tuple[str, list[str]], constants: Any = (), **first: Any) -> Made:
    """A product that reads the value "k", which ``nodes`` make, each named by its last operand."""

    def make() -> tuple[ModelProto, dict[str, Array]]:
        proto, inputs = model_of("Mul", IMAGE, F32(1), opset=21)
        proto.ir_version, proto.graph.node[1].input[1] = 10, "k"
        for place, (kind, (*operands, to)) in enumerate(nodes):
            attrs = {} if place else first
            proto.graph.node.insert(1 + place, helper.make_node(kind, operands, [to], to, **attrs))
        proto.graph.initializer.extend(constants)
        return proto, inputs

    return make


FOURS = helper.make_tensor("w", TensorProto.INT4, (4, 1, 1), [-8, -3, 2, 7])
SELDOM: dict[str, Made] = {
    "a sigmoid's line": lambda: model_of("QuickGelu", IMAGE, domain=CONTRIB),
    "a sigmoid's line of a factor": lambda: model_of("QuickGelu", IMAGE, domain=CONTRIB, alpha=1.5),
    "GELU": lambda: model_of("Gelu", IMAGE, opset=20),
    "GELU by tanh": lambda: model_of("Gelu", IMAGE, opset=20, approximate="tanh"),
    "slopes of channels": lambda: model_of(
        "PRelu", IMAGE, np.linspace(-0.4, 0.9, 4, dtype=np.float32).reshape(4, 1, 1)
    ),
    "a cast to what it is": lambda: model_of("Cast", IMAGE, to=TensorProto.FLOAT),
    "numbers of a node": between(("Constant", ["k"]), value_floats=[0.5] * 9),
    "a number of elements": between(
        ("Size", ["tiny", "n"]),
        ("CastLike", ["n", "s", "k"]),
        constants=[numpy_helper.from_array(np.zeros((1, 2), np.int64), "tiny")],
    ),
    "constants of four bits": between(
        ("DequantizeLinear", ["w", "s4", "k"]),
        constants=[FOURS, numpy_helper.from_array(F32(0.25), "s4")],
    ),
}


@pytest.mark.parametrize("case", SELDOM)
def test_what_files_seldom_have_gives_onnx_runtime_s_integers(case: str, tmp_path: Path) -> None:
    proto, inputs = SELDOM[case]()
    (expected,), (result,) = run(proto, inputs), computed(network(proto, tmp_path), inputs)
    assert np.unique(expected).size >= 10
    assert_same(result, expected, f"{case}, and ONNX Runtime")


RESIZINGS = {
    mode: {"coordinate_transformation_mode": mode}
    for mode in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
} | {"opset 10": {"opset": 10}, "opset 19": {"opset": 19}}


@pytest.mark.parametrize("scales", [(2, 2), (1.5, 0.7), (1, 3), (0.2, 4), (1.1, 1)], ids=str)
@pytest.mark.parametrize("case", RESIZINGS)
def test_a_linear_resizing_gives_onnx_runtime_s_integers(
    case: str, scales: tuple[float, float], tmp_path: Path
) -> None:
    attributes = RESIZINGS[case]
    first = [] if attributes.get("opset") == 10 else [None]
    operands = ("Resize", (2, 17, 7, 9), *first, F32([1, 1, *scales]))
    proto, inputs = model_of(*operands, mode="linear", **attributes)
    (expected,) = run(proto, inputs)
    read = network(proto, tmp_path)
    assert_same(*computed(read, inputs), expected, "the reference, and ONNX Runtime")
    (found,) = Runner(read.graph, Target(isa="native", threads=2, rounding="onnx"))(inputs["x"])
    assert_same(found, expected, "the C, and ONNX Runtime")


@pytest.mark.parametrize(
    ("arguments", "attributes", "words"),
    [
        (("Resize", IMAGE, None, F32([1, 1, 2, 2])), {"antialias": 1, "opset": 18}, "antialias"),
        (("Softmax", IMAGE), {"axis": 7}, "axis: 7"),
        (("Transpose", IMAGE), {"perm": [0, 1, 2, 2]}, "perm"),
        (("MaxPool", IMAGE), {"kernel_shape": [2, 2], "strides": [1]}, "strides"),
        (("LpPool", IMAGE), {"kernel_shape": [2, 2]}, "operator: LpPool"),
        (("MaxPool", IMAGE), {"kernel_shape": [2, 2, 2]}, "dimensions of"),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else None,
)
def test_nothing_that_a_file_says_is_ignored(
    arguments: tuple[Any, ...], attributes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    proto, _ = model_of(*arguments, **attributes)
    with pytest.raises(BoundaryError, match=words):
        network(proto, tmp_path)


@pytest.mark.parametrize("strides", [[0, 1], [2, -1]])
def test_strides_of_nothing_are_refused_before_onnx_divides_by_them(
    strides: list[int], tmp_path: Path
) -> None:
    proto, _ = model_of("MaxPool", IMAGE, kernel_shape=[2, 2], strides=strides)
    with pytest.raises(ModelError, match="strides"):
        network(proto, tmp_path)


def test_dynamic_quantization_is_refused_with_what_to_do(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "dynamic"),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["y"], "product"),
    ]
    weights = [numpy_helper.from_array(np.ones((4, 3), np.int8), "w")]
    proto = _proto(nodes, {"x": (TensorProto.FLOAT, (2, 4))}, "y", weights)
    with pytest.raises(BoundaryError, match=r"onnxruntime\.quantization\.quantize_static"):
        network(proto, tmp_path)


def _proto(
    nodes: list[Any], inputs: dict[str, tuple[int, Any]], output: str, constants: list[Any]
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(name, *of) for name, of in inputs.items()],
        [onnx.ValueInfoProto(name=output)],
        constants,
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


# --- Shapes --------------------------------------------------------------------------------------


def computed_shape() -> tuple[ModelProto, dict[str, Array]]:
    """A reshape to [batch, -1] by way of Shape, Gather, Unsqueeze and Concat."""
    proto, inputs = model_of("Relu", IMAGE)

    def nodes(op: str, *operands: str, to: str, **attrs: Any) -> Any:
        return helper.make_node(op, operands, [to], to, **attrs)

    chain = [
        nodes("Shape", "y0", to="shape"),
        nodes("Gather", "shape", "first", to="batch", axis=0),
        nodes("Unsqueeze", "batch", "axes", to="row"),
        nodes("Concat", "row", "rest", to="sizes", axis=0),
        nodes("Reshape", "y0", "sizes", to="flat"),
    ]
    proto.graph.node[-1].input[0] = "flat"
    last = proto.graph.node.pop()
    proto.graph.node.extend([*chain, last])
    constants = {"first": np.int64(0), "axes": np.int64([0]), "rest": np.int64([-1])}
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()
    )
    return proto, inputs


@pytest.mark.parametrize("open_as", ["", "batch", -1])
def test_shapes_are_computed_with_the_batch_that_is_asked_for(open_as: Any, tmp_path: Path) -> None:
    proto, inputs = computed_shape()
    batch = proto.graph.input[0].type.tensor_type.shape.dim[0]
    if open_as == -1:
        batch.dim_value = -1
    elif open_as:
        batch.dim_param = open_as
    if open_as:
        with pytest.raises(ModelError, match=r"input_shapes=, with your sizes"):
            network(proto, tmp_path)
    shapes = "x:[1,4,7,9]" if open_as else ""
    read = network(proto, tmp_path, shapes)
    (result,), (expected,) = computed(read, inputs), run(proto, inputs)
    assert_same(result, expected, "the reshape, and ONNX Runtime")
    with pytest.raises(OptionError, match="input shapes"):
        network(proto, tmp_path, "other:[1]")


def of_two_inputs() -> tuple[ModelProto, dict[str, Array]]:
    """A sum of two inputs whose rows are as many, by name."""
    proto, inputs = model_of("Relu", (3, 4))
    proto.graph.input.append(helper.make_tensor_value_info("other", TensorProto.UINT8, ("n", 4)))
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    proto.graph.node.extend(
        [
            helper.make_node("DequantizeLinear", ["q", "t", "z"], ["one"], "one"),
            helper.make_node("DequantizeLinear", ["other", "s", "z"], ["two"], "two"),
            helper.make_node("Add", ["one", "two"], ["sum"], "sum"),
            helper.make_node("QuantizeLinear", ["sum", "t", "z"], ["result"], "result"),
        ]
    )
    proto.graph.output[0].name = "result"
    return proto, {**inputs, "other": inputs["x"][::-1].copy()}


def test_dimensions_of_one_name_have_one_size(tmp_path: Path) -> None:
    proto, inputs = of_two_inputs()
    with pytest.raises(ModelError, match=r"--input-shapes x:1x4, in Python input_shapes="):
        network(proto, tmp_path)
    (result,), (expected,) = computed(network(proto, tmp_path, "x:3x4"), inputs), run(proto, inputs)
    assert_same(result, expected, "the sum, and ONNX Runtime")
    with pytest.raises(OptionError, match="2 and 3 for the dimension 'n'"):
        network(proto, tmp_path, "x:3x4 other:2x4")


@pytest.mark.parametrize("called", ["?", "None", ""])
def test_dimensions_without_a_name_of_their_own_have_any_size(called: str, tmp_path: Path) -> None:
    proto, inputs = model_of("Relu", (3, 4))
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.ClearField("dim_value")
        dim.dim_param = called
    (result,), (expected,) = computed(network(proto, tmp_path, "x:3x4"), inputs), run(proto, inputs)
    assert_same(result, expected, "the relu, and ONNX Runtime")


# --- Spellings of quantization -------------------------------------------------------------------


def test_a_convolution_of_integers_along_one_dimension(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    weight = rng.integers(-90, 90, (5, 3, 3)).astype(np.int8)
    proto, inputs = model_of(
        *("QLinearConv", (2, 3, 17), weight, F32(np.linspace(0.01, 0.02, 5)), np.zeros(5, np.int8)),
        *(F32(0.4), np.uint8(120), rng.integers(-900, 900, 5).astype(np.int32)),
        kernel_shape=[3],
        pads=[1, 0],
        strides=[2],
    )
    (result,), (expected,) = computed(network(proto, tmp_path), inputs), run(proto, inputs)
    assert_same(result, expected, "QLinearConv, and ONNX Runtime")


@pytest.mark.parametrize("scale", [0.0173, 0.0111, 2.0**-6])
def test_a_large_bias_is_the_integers_that_the_file_has(scale: float, tmp_path: Path) -> None:
    """Its scale is the product of two others, rounded to float32, so that a quotient by the product
    may be off by one from 8 million on. The products cancel the bias but for a few steps."""
    step, weight = np.float32(scale), np.full((4, 128, 3, 3), 127, np.int8)
    sums = int(weight[0].astype(int).sum()) * 127
    constants = {
        "s": step,
        "product": step * step,
        "z": np.int8(0),
        "w": weight,
        "b": np.array([3, -5, 17, 11], np.int32) - sums,
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["wf"]),
        helper.make_node("DequantizeLinear", ["b", "product"], ["bf"]),
        helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], "conv"),
        helper.make_node("QuantizeLinear", ["c", "product", "z"], ["y"]),
    ]
    known = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    proto = _proto(nodes, {"x": (TensorProto.INT8, (1, 128, 3, 3))}, "y", known)
    x = np.full((1, 128, 3, 3), 127, np.int8)
    (found,) = computed(network(proto, tmp_path), {"x": x})
    assert found.ravel().tolist() == [3, -5, 17, 11]
    ((wanted,),) = OnnxRuntimeOracle(tmp_path / "model.onnx", ["x"]).results([(x,)])
    assert_same(found, wanted, "a large bias, and ONNX Runtime")


def test_a_choice_between_quantized_values_by_a_constant(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    scales = {"xs": F32(0.02), "xz": np.uint8(120), "ys": F32(0.05), "yz": np.uint8(3)}
    scales |= {"c": rng.random((3, 1, 5)) < 0.5, "zs": F32(0.04), "zz": np.uint8(90)}
    node = helper.make_node(
        "QLinearWhere",
        ["c", "x", "xs", "xz", "y", "ys", "yz", "zs", "zz"],
        ["z"],
        "choice",
        domain=CONTRIB,
    )
    shape = (3, 4, 5)
    ends = dict.fromkeys("xy", (TensorProto.UINT8, shape))
    constants = [numpy_helper.from_array(np.asarray(v), name) for name, v in scales.items()]
    proto = _proto([node], ends, "z", constants)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    inputs = {name: rng.integers(0, 255, shape, "uint8", endpoint=True) for name in "xy"}
    (result,), (expected,) = computed(network(proto, tmp_path), inputs), run(proto, inputs)
    assert_same(result, expected, "QLinearWhere, and ONNX Runtime")


@pytest.mark.parametrize("seed", range(36))
def test_places_of_extremes_are_onnx_runtime_s(seed: int, tmp_path: Path) -> None:
    """Of integers, and of what is dequantized from them; many are as large as others. In C too."""
    rng = np.random.default_rng(seed)
    shape = [(2, 5, 6, 7), (3, 33), (1, 21, 9, 8), (1, 1, 3)][seed % 4]
    dtype = np.dtype(["uint8", "int8", "int32"][seed // 4 % 3])
    of_floats = dtype == "int8" or bool(rng.integers(2))  # ONNX Runtime has none of int8
    attrs = {name: int(rng.integers(2)) for name in ("keepdims", "select_last_index")}
    attrs["axis"] = int(rng.integers(-len(shape), len(shape)))
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"], "floats"),
        helper.make_node(
            ["ArgMax", "ArgMin"][seed % 2], ["f" if of_floats else "x"], ["y"], "place", **attrs
        ),
    ][not of_floats :]
    ends = {"x": (helper.np_dtype_to_tensor_dtype(dtype), shape)}
    constants = {"s": F32(0.1), "z": np.array(3, dtype)}
    named = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    proto = _proto(nodes, ends, "y", named)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, shape, endpoint=True) // 32 * 32
    inputs = {"x": values.astype(dtype)}
    (expected,), read = run(proto, inputs), network(proto, tmp_path)
    for result in (computed(read, inputs)[0], Runner(read.graph)(inputs["x"])[0]):
        assert_same(result, expected, "places, and ONNX Runtime")


def test_quantize_and_dequantize_of_onnx_runtime_own(tmp_path: Path) -> None:
    proto, inputs = model_of("Sigmoid", IMAGE)
    for node in proto.graph.node:
        node.domain = CONTRIB if "Quantize" in node.op_type or "Dequant" in node.op_type else ""
    (result,), (expected,) = computed(network(proto, tmp_path), inputs), run(proto, inputs)
    assert_same(result, expected, "com.microsoft's, and ONNX Runtime")


def test_data_of_other_files_lie_inside_of_the_model_folder(tmp_path: Path, small: Path) -> None:
    inside = tmp_path / "inside" / "model.onnx"
    inside.parent.mkdir()
    model = onnx.load(small)
    onnx.save(model, inside, save_as_external_data=True, location="data.bin", size_threshold=0)
    read, plain = (network_of_file(file, ONNX) for file in (inside, small))
    assert structure(read.graph) == structure(plain.graph)
    (inside.parent / "data.bin").rename(tmp_path / "data.bin")
    with pytest.raises(ModelError, match="inside of the model's folder"):
        network_of_file(inside, ONNX)
    (inside.parent / "data.bin").symlink_to(tmp_path / "data.bin")
    with pytest.raises(ModelError, match="inside of the model's folder"):
        network_of_file(inside, ONNX)


# --- Random files, and broken ones ---------------------------------------------------------------


def random_faults(seeds: range, folder: Path) -> tuple[list[str], Counter[str]]:
    """Results beyond their bounds, and how many files were compiled or refused."""
    faults, ends = [], Counter[str]()
    for seed in seeds:
        model, mode = random_onnx(seed), "upward" if seed % 5 == 0 else "onnx"
        if mode != "onnx" and model.floats is None and len(model.operators) > 1:
            continue  # of which the second may enlarge what the first one is off
        is_open = seed % 7 == 0 and all(array.ndim for array in model.inputs.values())
        results = results_of(model, folder, mode, ends, is_open=is_open)
        if results is None:
            continue
        names = ", ".join(model.operators)
        off, most = steps_off(model, *results), bound(model, mode)
        if off > most:
            faults.append(f"seed {seed}, {mode}: {names}: {off:.2f} off, {most:.2f} allowed")
        if mode == "onnx":
            more, held = differences(model, results)
            faults += [f"seed {seed}: {names}: {fault}" for fault in more]
            ends += held
    return faults, ends


def faults_of_pairs(seeds: range, folder: Path) -> tuple[list[str], Counter[str]]:
    """The same of files with a pair behind each operator, beside ONNX Runtime as users run it."""
    faults, ends = [], Counter[str]()
    for seed in seeds:
        model = random_pairs(seed)
        results = results_of(model, folder, "onnx", ends)
        if results is not None:
            more, held = differences(model, results)
            faults += [f"seed {seed}: {', '.join(model.operators)}: {fault}" for fault in more]
            ends += held
    return faults, ends


def results_of(
    model: OnnxModel, folder: Path, mode: str, ends: Counter[str], *, is_open: bool = False
) -> list[Array] | None:
    """By the references of the operators; None of a file that is refused. ``ends`` counts both."""
    file = folder / "model.onnx"
    shapes = write(file, model, is_open=is_open)
    try:
        read = network_of_file(file, Target(rounding=mode), options=FileOptions(shapes))
    except (ModelError, BoundaryError):
        ends["refused"] += 1
        return None
    ends["compiled"] += 1
    return computed(read, model.inputs)


def assert_compared(faults: list[str], ends: Counter[str], models: int) -> None:
    """``ends`` says too how many results are equal to those of ONNX Runtime's kernels of integers,
    and how many it cut or could not run: faults of its own."""
    assert not faults, "\n".join(faults)
    assert ends["compiled"] > 0.7 * models, ends
    assert ends["equal"] > 0.2 * models, ends
    assert ends["cut"] + ends["not run"] < 0.15 * models, ends


def test_random_files_are_read_as_onnx_runtime_reads_them(tmp_path: Path) -> None:
    assert_compared(*random_faults(range(100), tmp_path), 100)


def test_layers_between_pairs_have_the_integers_of_onnx_runtimes_kernels(tmp_path: Path) -> None:
    assert_compared(*faults_of_pairs(range(100), tmp_path), 100)


def test_a_file_that_onnx_runtime_does_not_load_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def loads_none(model: OnnxModel, *, keeps_int8: bool) -> None:
        raise UnsupportedError("the model in ONNX Runtime", found="a scale of one number in a row")

    monkeypatch.setattr(onnx_bounds, "optimized", loads_none)
    model = random_pairs(0)
    assert differences(model, [np.zeros(3, np.uint8)]) == ([], {"not run": 1})


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("faults", [random_faults, faults_of_pairs])
def test_so_are_many(faults: Any, tmp_path: Path, part: int) -> None:
    count = RANDOM // PARTS
    assert_compared(*faults(range(count * part, count * (part + 1)), tmp_path), count)


def test_every_operator_of_the_random_files_is_read() -> None:
    from tinyai.frontends.onnx.operators import READERS

    seen = {op for seed in range(400) for op in random_onnx(seed).operators}
    assert len(seen) > len(OPERATORS) + len(QOPERATORS)
    # An IsNaN is read by the Where that it guards, and nowhere else.
    assert seen - {"IsNaN"} <= {name for _, name in READERS}
