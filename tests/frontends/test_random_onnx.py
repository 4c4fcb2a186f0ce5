"""Random ONNX files beside ONNX Runtime: read as it reads them, or refused with a reason.

A file in QDQ form is compared with its floats, and QOperators with ONNX Runtime's own integers.
What TVM's host would compute is compared too, so that an importer that misreads is found although
no integers come of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import ModelProto, TensorProto, helper, numpy_helper
from tvm import relay
from tvm.contrib import graph_executor

from tests.support.onnx_bounds import bound, steps_off
from tests.support.random_onnx import CONTRIB, OPERATORS, QOPERATORS, OnnxModel, random_onnx, run
from tinyai.errors import BoundaryError, ModelError
from tinyai.frontends.onnx import spellings
from tinyai.frontends.relay.load import load_model
from tinyai.frontends.relay.whole import network_of
from tinyai.ir import Array
from tinyai.passes import optimize
from tinyai.reference import run_graph
from tinyai.target import Target

# TVM's importer reads onnx.mapping, which onnx deprecates, and calls what TVM itself does.
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:.mapping\.\w+. is now deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings(r"ignore:NDArray.asnumpy\(\) will be:DeprecationWarning"),
]
MODELS = 60
MANY = 3000  # in the slow tests
PARTS = 10


def mode_of(seed: int) -> str:
    return "upward" if seed % 5 == 0 else "onnx"


def write(file: Path, model: OnnxModel, *, is_open: bool) -> str:
    """The shapes to ask for: of a model that ``is_open`` the file leaves the batch to its users."""
    proto = ModelProto()
    proto.CopyFrom(model.integers)
    if is_open:
        for number, value in enumerate(proto.graph.input):
            batch = value.type.tensor_type.shape.dim[0]
            if number % 2:
                batch.dim_value = -1
            else:
                batch.dim_param = "batch"
        proto.graph.output[0].type.tensor_type.ClearField("shape")
    file.write_bytes(proto.SerializeToString())
    shapes = {name: ",".join(map(str, array.shape)) for name, array in model.inputs.items()}
    return " ".join(f"{name}:[{shape}]" for name, shape in shapes.items()) if is_open else ""


def integers(file: Path, model: OnnxModel, mode: str, shapes: str) -> Array:
    network = network_of(file, Target(rounding=mode), input_shapes=shapes)
    inputs = [model.inputs[port.name] for port in network.inputs]
    (result,) = run_graph(optimize(network.graph), inputs)
    return result


def on_host(file: Path, model: OnnxModel, shapes: str = "") -> Array:
    """By TVM's CPU, as it imports the file."""
    mod, params = load_model(file, shapes)
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(mod, target="llvm", params=params)
    executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
    executor.run(**model.inputs)
    return np.asarray(executor.get_output(0).numpy())


def faults_of(seeds: range, folder: Path, *, host: bool) -> tuple[list[str], Counter[str]]:
    """Results beyond their bounds, and what became of how many models."""
    faults, ends = [], Counter[str]()
    for seed in seeds:
        model, mode, file = random_onnx(seed), mode_of(seed), folder / "model.onnx"
        if mode != "onnx" and model.floats is None and len(model.operators) > 1:
            continue  # of which the second may enlarge what the first one is off
        is_open = seed % 7 == 0 and all(array.ndim for array in model.inputs.values())
        shapes = write(file, model, is_open=is_open)
        try:
            result, end = integers(file, model, mode, shapes), "compiled"
        except ModelError:
            ends["refused"] += 1
            continue
        except BoundaryError:
            if not host:
                continue
            result, end = on_host(file, model, shapes), "host"
        ends[end] += 1
        off, most = steps_off(model, result), bound(model, mode if end == "compiled" else "upward")
        if off > most:
            names = ", ".join(model.operators)
            faults.append(f"seed {seed}, {mode}, {end}: {names}: {off:.2f} off, {most:.2f} allowed")
    return faults, ends


def test_random_files_are_read_as_onnx_runtime_reads_them(tmp_path: Path) -> None:
    faults, ends = faults_of(range(MODELS), tmp_path, host=False)
    assert not faults, "\n".join(faults)
    assert ends["compiled"] > MODELS / 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_so_are_many_on_the_host_too(tmp_path: Path, part: int) -> None:
    count = MANY // PARTS
    faults, ends = faults_of(range(count * part, count * (part + 1)), tmp_path, host=True)
    assert not faults, "\n".join(faults)
    assert ends["refused"] < count / 20


def test_the_models_have_every_operator() -> None:
    seen = Counter(op for seed in range(400) for op in random_onnx(seed).operators)
    assert len(seen) > len(OPERATORS) + len(QOPERATORS)
    assert min(seen.values()) >= 1


# --- What was misread once -----------------------------------------------------------------------

Operands = list[tuple[str, Array]]


def model_of(
    op: str,
    shape: tuple[int, ...],
    *constants: Any,
    opset: int = 13,
    domain: str = "",
    outputs: int = 1,
    **attrs: Any,
) -> tuple[ModelProto, dict[str, Array]]:
    """x of floats, which is dequantized, or of integers for QOperators; the first result, which is
    quantized. A constant that is None is left out."""
    rng = np.random.default_rng(5)
    quantized = op.startswith("Q")
    stored = rng.integers(0, 255, shape, "uint8", endpoint=True)
    initializers: dict[str, Array] = {}
    names = []
    for place, each in enumerate(constants):
        names.append("" if each is None else f"c{place}")
        if each is not None:
            initializers[f"c{place}"] = np.asarray(each)
    initializers |= {"s": np.float32(0.02), "z": np.uint8(120), "t": np.float32(0.025)}
    results = [f"y{place}" for place in range(outputs)]
    if quantized:
        nodes = [
            helper.make_node(op, ["x", "s", "z", *names], results, "it", domain=domain, **attrs)
        ]
    else:
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"], "dequantize"),
            helper.make_node(op, ["f", *names], results, "it", domain=domain, **attrs),
            helper.make_node("QuantizeLinear", ["y0", "t", "z"], ["q"], "quantize"),
        ]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in initializers.items()],
    )
    domains = [helper.make_opsetid("", opset), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8), {"x": stored}


def f32(number: float) -> Array:
    return np.asarray(number, np.float32)


def i64(*numbers: int) -> Array:
    return np.asarray(numbers, np.int64)


Y = (f32(0.03), np.uint8(110))
IMAGE, FEW = (1, 4, 7, 9), (2, 8, 7, 2)  # of the latter few values are along an edge
CASES: dict[str, Callable[[], tuple[ModelProto, dict[str, Array]]]] = {
    "a lower bound alone": lambda: model_of("Clip", IMAGE, f32(-0.5)),
    "an upper bound alone": lambda: model_of("Clip", IMAGE, None, f32(0.5)),
    "an upper bound of opset 10": lambda: model_of("Clip", IMAGE, opset=10, max=0.5),
    "axes of a sum": lambda: model_of("ReduceSum", FEW, i64(-1, 0), keepdims=1),
    "axes of a mean": lambda: model_of("ReduceMean", FEW, i64(0, 3), opset=18),
    "axes of a maximum": lambda: model_of("ReduceMax", FEW, i64(-1, 0), opset=18, keepdims=0),
    "no axes, which is nothing": lambda: model_of(
        "ReduceMean", IMAGE, opset=18, noop_with_empty_axes=1
    ),
    "ceil mode that drops a window": lambda: model_of(
        "MaxPool", IMAGE, kernel_shape=[2, 2], strides=[3, 3], ceil_mode=1, pads=[0, 0, 1, 0]
    ),
    "ceil mode that keeps one": lambda: model_of(
        "AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1
    ),
    "auto_pad of a pooling": lambda: model_of(
        "MaxPool", IMAGE, kernel_shape=[2, 3], strides=[2, 2], auto_pad="SAME_LOWER"
    ),
    "a slope by default": lambda: model_of("QLinearLeakyRelu", IMAGE, *Y, domain=CONTRIB),
    "a negative axis and index": lambda: model_of("Gather", IMAGE, i64(-1, 0, -3), axis=-2),
    "a rounded size": lambda: model_of(
        "Resize", IMAGE, None, np.float32([1, 1, 1.5, 0.7]), mode="nearest"
    ),
    "ceiling of opset 10": lambda: model_of(
        "Resize", IMAGE, np.float32([1, 1, 0.5, 0.4]), opset=10, mode="nearest"
    ),
    "whole factors, rounded up": lambda: model_of(
        *("Resize", IMAGE, None, np.float32([1, 1, 3, 2])),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="ceil",
    ),
    "axes of a resizing": lambda: model_of(
        "Resize", IMAGE, None, np.float32([2, 3]), opset=18, axes=[3, 2], nearest_mode="floor"
    ),
    "softmax of the rest": lambda: model_of(
        *("QLinearSoftmax", (2, 3, 4, 5), f32(1 / 256), np.uint8(0)),
        domain=CONTRIB,
        opset=12,
        axis=2,
    ),
    "softmax by default": lambda: model_of(
        "QLinearSoftmax", (2, 3, 5), f32(1 / 256), np.uint8(0), domain=CONTRIB, opset=12
    ),
    "an average of channels last": lambda: model_of(
        "QLinearGlobalAveragePool", (2, 3, 3, 30), *Y, domain=CONTRIB, channels_last=1
    ),
    "windows of channels last": lambda: model_of(
        *("QLinearAveragePool", (1, 7, 9, 4), *Y),
        domain=CONTRIB,
        channels_last=1,
        kernel_shape=[2, 3],
        strides=[2, 1],
    ),
    "several negative new axes": lambda: model_of("Unsqueeze", (4, 30), i64(-1, -3)),
    "several new axes of opset 11": lambda: model_of("Unsqueeze", (4, 30), opset=11, axes=[-4, 1]),
    "axes of pads": lambda: model_of("Pad", IMAGE, i64(1, 2, 0, 1), f32(0.5), i64(-1, 1), opset=18),
    "negative pads": lambda: model_of("Pad", IMAGE, i64(0, 0, -1, 2, 0, 1, 2, -3), f32(0.3)),
    "uneven parts": lambda: model_of("Split", IMAGE, opset=18, outputs=3, axis=-2, num_outputs=3),
    "a transposed convolution of opset 10": lambda: model_of(
        *("ConvTranspose", IMAGE, f32(np.random.default_rng(0).normal(0, 0.2, (4, 3, 3, 2)))),
        opset=10,
        strides=[2, 3],
        auto_pad="SAME_UPPER",
    ),
    "a list of one scale": lambda: model_of("Relu", IMAGE),
}


def opset_attribute(case: str, proto: ModelProto) -> None:
    """QLinearSoftmax has an attribute of the name of our argument."""
    if case.startswith("softmax"):
        proto.opset_import[0].version = 13
        proto.graph.node[0].attribute.append(helper.make_attribute("opset", 12))


def as_list(case: str, proto: ModelProto) -> None:
    if case == "a list of one scale":
        for tensor in proto.graph.initializer:
            tensor.dims.append(1)


@pytest.mark.parametrize("case", CASES)
def test_what_was_misread_once_is_read_right(case: str, tmp_path: Path) -> None:
    """By TVM's host, whatever becomes integers."""
    proto, inputs = CASES[case]()
    opset_attribute(case, proto)
    as_list(case, proto)
    (expected,) = run(proto, inputs)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    model = OnnxModel(proto, None, inputs, (), 0.0, 0, 0.0)
    result = on_host(tmp_path / "model.onnx", model)
    assert np.unique(expected).size >= 10
    assert result.shape == expected.shape
    assert np.abs(result.astype(int) - expected).max() <= 1


REFUSED: dict[str, tuple[Callable[[], tuple[ModelProto, dict[str, Array]]], str]] = {
    "pads of dilated windows": (
        lambda: model_of(
            "MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 2], auto_pad="SAME_UPPER"
        ),
        "auto_pad SAME_UPPER and dilations",
    ),
    "an operator of one's own": (lambda: model_of("Relu", IMAGE, domain="mine"), "domain 'mine'"),
    "an attribute of another opset": (
        lambda: model_of("ReduceMean", IMAGE, opset=18, axes=[1]),
        "the attribute 'axes'",
    ),
    "statistics of the batch": (
        lambda: model_of(
            *("BatchNormalization", IMAGE, *(np.ones(4, np.float32) for _ in range(4))),
            opset=15,
            training_mode=1,
        ),
        "training_mode 1",
    ),
    "a resizing that smooths": (
        lambda: model_of(
            *("Resize", IMAGE, None, np.float32([1, 1, 0.5, 0.5])),
            opset=18,
            mode="linear",
            antialias=1,
        ),
        "antialias 1",
    ),
    "a rounded size between rows": (
        lambda: model_of("Resize", IMAGE, None, np.float32([1, 1, 1.5, 0.7]), mode="linear"),
        "scales that give whole sizes",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_right_spelling_is_refused_by_name(case: str, tmp_path: Path) -> None:
    make, words = REFUSED[case]
    (tmp_path / "model.onnx").write_bytes(make()[0].SerializeToString())
    with pytest.raises(ModelError) as raised:
        load_model(tmp_path / "model.onnx")
    assert words in str(raised.value)
    assert "it" in str(raised.value)


def test_a_misread_shape_is_found_whatever_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the spelling of axes the importer takes the first; ONNX's types tell."""
    monkeypatch.setitem(spellings._SPELLINGS, ("ReduceSum", ""), [])
    proto, _ = CASES["axes of a sum"]()
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="TVM's importer reads the value 'y0' as float32"):
        load_model(tmp_path / "model.onnx")


def test_minus_one_is_an_open_dimension(tmp_path: Path) -> None:
    proto, inputs = model_of("Relu", IMAGE)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    file = tmp_path / "model.onnx"
    file.write_bytes(proto.SerializeToString())
    load_model(file)
    mod, _ = load_model(file, "x:[1,4,7,9]")
    assert tuple(mod["main"].checked_type.arg_types[0].shape) == IMAGE
    network = network_of(file, Target(rounding="onnx"), input_shapes="x:[1,4,7,9]")
    (result,) = run_graph(network.graph, [inputs["x"]])
    assert result.shape == IMAGE
