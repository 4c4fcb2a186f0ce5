"""The reader of .tflite files, which needs no TVM."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import flatbuffers
import numpy as np
import pytest
import tflite
from ai_edge_litert import schema_py_generated as schema

import tinyai
from tests.support.paths import ROOT
from tests.support.prequantized import TFLITE, tflite_path, without_softmax
from tests.support.random_tflite import Writer, random_file
from tests.support.structure import structure
from tests.support.tflite_models import Tensor, one_operator
from tinyai.checking.check import check as check_code
from tinyai.checking.litert import LiteRTOracle
from tinyai.errors import BoundaryError, ModelError, OptionError
from tinyai.frontends.files import network_of_file
from tinyai.frontends.relay import whole as relay
from tinyai.frontends.tflite.load import read_model
from tinyai.frontends.tflite.operators import READERS
from tinyai.frontends.whole import network_of
from tinyai.ir import Array
from tinyai.model_file import FileOptions
from tinyai.network import Network
from tinyai.passes import optimize
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target

OURS = Target(rounding="tflite")
NATIVE = Target(isa="native", rounding="tflite")
SAMPLES = 20


@pytest.mark.parametrize("name", TFLITE)
def test_the_graph_is_that_of_tvm_s_importer(name: str) -> None:
    file = tflite_path(name)
    found, expected = network_of_file(file, OURS), relay.network_of(file, OURS)
    assert (found.inputs, found.outputs) == (expected.inputs, expected.outputs)
    assert structure(optimize(found.graph)) == structure(optimize(expected.graph))


def samples_of(network: Network) -> list[list[Array]]:
    rng = np.random.default_rng(1)

    def drawn(shape: tuple[int, ...], dtype: str) -> Array:
        if dtype == "float32":
            return rng.uniform(-1, 1, shape).astype(np.float32)
        return rng.integers(-128, 128, shape).astype(dtype)

    ports = [port.type for port in network.inputs]
    return [[drawn(of.shape, of.dtype) for of in ports] for _ in range(SAMPLES)]


def check(content: bytes, network: Network) -> None:
    samples = samples_of(network)
    runner = Runner(network.graph, NATIVE)
    for sample, expected in zip(samples, LiteRTOracle(content).results(samples), strict=True):
        for found, wanted in zip(runner(*sample), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow  # their graphs are those of TVM's importer, which are compared too
@pytest.mark.parametrize("name", TFLITE)
def test_networks_give_litert_s_integers(name: str, tmp_path: Path) -> None:
    content = tflite_path(name).read_bytes()
    if name.startswith("mobilenet"):
        content = without_softmax(content)
    (tmp_path / "net.tflite").write_bytes(content)
    check(content, network_of_file(tmp_path / "net.tflite", OURS))


# --- Another batch -------------------------------------------------------------------------------


def network_of_batch(content: bytes, folder: Path, shapes: str) -> Network:
    file = written(folder, content)
    return network_of_file(file, OURS, options=FileOptions(input_shapes=shapes))


def test_another_batch_gives_the_integers_of_each_alone(tmp_path: Path) -> None:
    """Or is refused where an operator mixes images, or has a shape of its own."""
    equal = 0
    for seed in range(60):
        content = random_file(seed, most=3).content()
        try:
            one = network_of_batch(content, tmp_path, "")
        except BoundaryError:
            continue
        batch, *rest = one.inputs[0].type.shape
        try:
            several = network_of_batch(content, tmp_path, f"t0:{'x'.join(map(str, (4, *rest)))}")
        except (BoundaryError, OptionError) as error:
            assert (batch == 1) == isinstance(error, BoundaryError)  # noqa: PT017
            continue
        x = np.random.default_rng(seed).integers(-128, 128, (4, *rest)).astype(np.int8)
        (found,) = run_graph(several.graph, [x])
        alone = [run_graph(one.graph, [x[n : n + 1]])[0] for n in range(4)]
        np.testing.assert_array_equal(found, np.concatenate(alone), f"file {seed}")
        equal += 1
    assert equal > 15


def test_check_compares_another_batch_with_litert() -> None:
    file = tflite_path("kws_ref_model")
    shapes = "input_1:3x49x10x1"
    result = check_code(file, "tinyai -isa=scalar", samples=2, input_shapes=shapes)
    assert result.equal
    assert result.outputs[0].elements == 2 * 3 * 12


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ("input_1:1x50x10x1", "allowed: .*of the file, with another batch"),
        ("input_1:49x10x1", "as many dimensions"),
        ("other:3x49x10x1", "allowed: the model's inputs"),
    ],
)
def test_other_shapes_than_the_batch_are_refused(shapes: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_model(tflite_path("kws_ref_model"), input_shapes=shapes)


# --- What stays out is named ---------------------------------------------------------------------


def refused(file: Path) -> BoundaryError:
    with pytest.raises(BoundaryError) as caught:
        network_of_file(file, OURS)
    return caught.value


def written(folder: Path, content: bytes) -> Path:
    file = folder / "net.tflite"
    file.write_bytes(content)
    return file


def test_an_option_that_no_reader_looks_at_is_refused(tmp_path: Path) -> None:
    options = schema.FullyConnectedOptionsT()
    options.weightsFormat = 1
    weights = Tensor((3, 4), 0.5, 0, np.ones((3, 4), np.int8))
    content = one_operator(
        "FULLY_CONNECTED", [Tensor((2, 4), 0.5), weights], Tensor((2, 3), 0.5), options
    )
    (row,) = refused(written(tmp_path, content)).report.host
    assert (row.operator, row.name, row.reason.clause) == (
        "FULLY_CONNECTED",
        "y",
        "option WeightsFormat",
    )
    assert (row.reason.found, row.reason.allowed) == ("1", "0")


def test_options_of_another_operator_are_refused(tmp_path: Path) -> None:
    content = one_operator(
        "TANH", [Tensor((4,), 0.5)], Tensor((4,), 1 / 128), schema.SoftmaxOptionsT()
    )
    (row,) = refused(written(tmp_path, content)).report.host
    assert (row.reason.clause, row.reason.found) == ("options", "SoftmaxOptions")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("LOG_SOFTMAX", "TFLite's arithmetic of: LOG_SOFTMAX"),
        ("RSQRT", "zero point of RSQRT's input: 3"),
        ("DENSIFY", "weights: computed at run time"),
        ("NEG", "type: int8"),
    ],
)
def test_an_operator_that_is_not_compared_is_refused_by_name(
    kind: str, words: str, tmp_path: Path
) -> None:
    content = one_operator(kind, [Tensor((4, 3), 0.5, 3)], Tensor((4, 3), 0.5))
    error = refused(written(tmp_path, content))
    assert words in str(error)
    assert (error.report.host[-1].operator, error.hint != "") == (kind, True)


def altered(content: bytes, change: Callable[[schema.ModelT], None]) -> bytes:
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    change(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def test_an_image_is_repeated_along_what_it_has_one_of(tmp_path: Path) -> None:
    def newer(model: schema.ModelT) -> None:
        model.operatorCodes[0].version = 2

    of, to = Tensor((1, 3, 1), 0.5, 3), Tensor((2, 3, 4), 0.5, 3)
    options = schema.BroadcastToOptionsT()
    content = altered(one_operator("BROADCAST_TO", [of], to, options, [2, 3, 4]), newer)
    check(content, network_of_file(written(tmp_path, content), OURS))


def test_integers_are_cast_as_litert_casts_them(tmp_path: Path) -> None:
    def plain(model: schema.ModelT) -> None:
        x, y = model.subgraphs[0].tensors
        x.quantization = y.quantization = None
        y.type = schema.TensorType.INT32

    content = altered(one_operator("CAST", [Tensor((2, 9), 0.5)], Tensor((2, 9), 0.5)), plain)
    check(content, network_of_file(written(tmp_path, content), OURS))


def test_a_sum_of_integers_leads_to_another_rounding(tmp_path: Path) -> None:
    """LiteRT's reference kernel of it does not set all of its results."""
    options = schema.ReducerOptionsT()
    content = one_operator("SUM", [Tensor((5, 40), 0.25)], Tensor((5,), 0.5), options, [1])
    error = refused(written(tmp_path, content))
    assert "compute in two ways" in str(error)
    assert error.hint.startswith("--rounding upward")


def test_another_kind_of_quantization_is_refused(tmp_path: Path) -> None:
    w = Writer(np.random.default_rng(0))
    x, y = w.value([1, 4]), w.value([1, 4])
    w.add("RELU", [x.index], [y.index])
    w.graph.inputs, w.graph.outputs = [x.index], [y.index]
    quantization = w.graph.tensors[x.index].quantization
    quantization.detailsType = schema.QuantizationDetails.CustomQuantization
    quantization.details = schema.CustomQuantizationT()
    with pytest.raises(ModelError, match="quantization of another kind"):
        read_model(written(tmp_path, w.content()))


@pytest.mark.parametrize(
    ("ends", "bias", "words"),
    [
        ("INT16", np.int64, ["int16, not compared", "--rounding upward"]),
        ("FLOAT32", np.float32, ["dynamic range quantization", "quantize the model first"]),
    ],
)
def test_dense_layers_of_other_quantizations_are_named(
    ends: str, bias: type, words: list[str], tmp_path: Path
) -> None:
    weights = np.arange(-8, 8, dtype=np.int8).reshape(2, 8)
    operands = [Tensor((3, 8), 0.05), Tensor((2, 8), 0.02, 0, weights)]
    operands.append(Tensor((2,), 0.001, 0, np.zeros(2, bias)))
    content = one_operator(
        "FULLY_CONNECTED", operands, Tensor((3, 2), 0.5), schema.FullyConnectedOptionsT()
    )

    def of_ends(model: schema.ModelT) -> None:
        data, _, last, result = model.subgraphs[0].tensors
        data.type = result.type = getattr(schema.TensorType, ends)
        if ends == "FLOAT32":
            data.quantization = last.quantization = result.quantization = None

    file = written(tmp_path, altered(content, of_ends))
    with pytest.raises(BoundaryError) as error:
        tinyai.compile(file, tmp_path / "net.so")
    for word in words:
        assert word in str(error.value)


def test_every_table_of_options_is_one_of_the_schema() -> None:
    assert [
        row.options for row in READERS.values() if row.options and not hasattr(tflite, row.options)
    ] == []
    builtins = vars(tflite.BuiltinOperator)
    assert [kind for kind in READERS if kind not in builtins] == []


def test_a_file_that_contradicts_itself_is_no_fault_of_ours(tmp_path: Path) -> None:
    content = tflite_path("kws_ref_model").read_bytes()
    for broken in (content[:1000], content[:4] + b"NOPE" + content[8:], b"\0" * 40):
        with pytest.raises(ModelError, match=r"model file\n  found: .*net\.tflite"):
            read_model(written(tmp_path, broken))


def test_upward_gives_tvm_s_integers_of_the_same_network() -> None:
    network = network_of(read_model(tflite_path("kws_ref_model")), "kws", "upward")
    assert network.rounding == "upward"


def test_the_zero_point_of_a_sum_counts_as_often_as_its_elements(tmp_path: Path) -> None:
    options = schema.ReducerOptionsT()
    content = one_operator("SUM", [Tensor((5, 40), 0.25, 7)], Tensor((5,), 0.5, -9), options, [1])
    graph = network_of(read_model(written(tmp_path, content)), "net", "upward").graph
    x = np.random.default_rng(1).integers(-8, 8, (5, 40)).astype(np.int8)
    meant = (x.astype(np.float64) - 7).sum(1) * 0.25 / 0.5 - 9
    (found,) = run_graph(graph, [x])
    assert np.abs(found - meant.clip(-128, 127)).max() <= 0.5


# --- Without TVM ---------------------------------------------------------------------------------

WITHOUT_TVM = """
    import sys

    sys.modules |= dict.fromkeys(("tvm", "torch", "onnx"))  # to import one raises an error
    from tinyai.cli import main

    sys.argv = ["tinyai", *sys.argv[1:]]
    main()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        "compile MODEL -o net.so --isa scalar",
        "compile MODEL -o package --isa scalar --ends int8",
        "run MODEL -i x.npy --isa scalar",
        "explain MODEL --isa scalar",
        "check MODEL --isa scalar --samples 2",
        "bench MODEL --isa scalar --runs 2",
        "ops",
        "ops --of tflite",
        "tune MODEL -o tuning.json --isa scalar --seconds 0",
    ],
)
def test_commands_need_no_tvm(words: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 4, 4, 2), np.int8))
    options = schema.Conv2DOptionsT()
    options.strideH = options.strideW = 1
    weights = Tensor((3, 2, 2, 2), 0.01, 0, np.full((3, 2, 2, 2), 7, np.int8))
    bias = Tensor((3,), 0.001, 0, np.zeros(3, np.int32))
    data, result = Tensor((1, 4, 4, 2), 0.1, 3), Tensor((1, 4, 4, 3), 0.05, -5)
    content = one_operator("CONV_2D", [data, weights, bias], result, options)
    command = words.replace("MODEL", str(written(tmp_path, content))).split()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WITHOUT_TVM), *command],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("length", "zero_point"), [(1, 7), (2, -128), (10, 127), (33025, 127)])
def test_l2_norms_of_few_and_many_values_are_litert_s(
    length: int, zero_point: int, tmp_path: Path
) -> None:
    rows = np.random.default_rng(length).integers(-128, 128, (9, length), np.int8)
    rows[0], rows[1], rows[2] = zero_point, -128, 127
    rows[3:5] = zero_point
    rows[3, 0] += 1 if zero_point < 127 else -1
    rows[4, :2] = -1
    of = Tensor(rows.shape, 0.03, zero_point)
    content = one_operator(
        "L2_NORMALIZATION", [of], Tensor(rows.shape, 1 / 128), schema.L2NormOptionsT()
    )
    (expected,) = LiteRTOracle(content).results([(rows,)])[0]
    network = network_of_file(written(tmp_path, content), OURS)
    for found in (Runner(network.graph, NATIVE)(rows), run_graph(network.graph, [rows])):
        np.testing.assert_array_equal(found[0], expected)


@pytest.mark.parametrize(
    ("shape", "scale", "words", "upward"),
    [
        ((4, 3), 0.5, "quantization of a norm: (0.5, 0)", True),
        ((1, 33026), 1 / 128, "length of a norm: 33026", True),
        ((), 1 / 128, "dimensions: 0", False),
    ],
)
def test_another_l2_norm_is_refused(
    shape: tuple[int, ...], scale: float, words: str, upward: bool, tmp_path: Path
) -> None:
    of, to = Tensor(shape, 0.5, 3), Tensor(shape, scale)
    content = one_operator("L2_NORMALIZATION", [of], to, schema.L2NormOptionsT())
    error = refused(written(tmp_path, content))
    assert words in str(error)
    assert error.hint.startswith("--rounding upward") == upward
