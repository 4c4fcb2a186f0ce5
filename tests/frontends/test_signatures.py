"""A .tflite file with several signatures is compiled for the one that is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from click.testing import CliRunner

import tinyai
from tests.support.oracle import Array
from tests.support.random_tflite import Writer
from tinyai.cli import main
from tinyai.errors import ModelError, OptionError

SIZES = {"narrow": 4, "wide": 6, "square": 5}


def several(names: list[str], subgraphs: list[int] | None = None) -> bytes:
    """A file of three subgraphs, whose signatures have these names. Each computes something else of
    as many numbers as ``SIZES`` says."""
    w = Writer(np.random.default_rng(3))
    w.model.signatureDefs = []
    for number, (name, size) in enumerate(SIZES.items()):
        if number:
            w.graph = schema.SubGraphT()
            w.graph.tensors, w.graph.operators = [], []
            w.model.subgraphs.append(w.graph)
        x, y = w.value([1, size], 0.1, number), w.value([1, size], 0.1, number)
        constant = w.constant([1, size], 0.05, 7)
        w.add("ADD", [x.index, constant.index], [y.index], "Add")
        w.graph.inputs, w.graph.outputs = [x.index], [y.index]
        w.graph.name = name
    for name, number in zip(names, subgraphs or range(len(names)), strict=True):
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = name, number
        graph = w.model.subgraphs[min(number, 2)]
        signature.inputs, signature.outputs = (
            [_port("x", graph.inputs[0])],
            [_port("y", graph.outputs[0])],
        )
        w.model.signatureDefs.append(signature)
    return w.content()


def _port(name: str, index: int) -> schema.TensorMapT:
    port = schema.TensorMapT()
    port.name, port.tensorIndex = name, index
    return port


def written(folder: Path, content: bytes) -> Path:
    made = folder / "net.tflite"
    made.write_bytes(content)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, several([*SIZES]))


def by_litert(file: Path, name: str, value: Array) -> Array:
    interpreter = Interpreter(str(file), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    return interpreter.get_signature_runner(name)(x=value)["y"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", SIZES)
def test_each_signature_has_litert_s_integers(file: Path, name: str) -> None:
    value = np.random.default_rng(1).integers(-128, 128, (1, SIZES[name])).astype(np.int8)
    model = tinyai.Model(file, signature=name)
    np.testing.assert_array_equal(model(value)[0], by_litert(file, name, value))
    assert tinyai.check(file, signature=name, samples=3).equal
    tinyai.compile(file, file.with_suffix(".so"), signature=name)
    again = tinyai.Model(file.with_suffix(".so"))
    np.testing.assert_array_equal(again(value)[0], model(value)[0])
    package = tinyai.emit_c(file, file.parent / "package", "tinyai -isa=scalar", signature=name)
    assert package.report.inputs[0].shape == (1, SIZES[name])


def test_without_a_name_those_of_the_file_are_listed(file: Path) -> None:
    for signature in ("", "long"):
        with pytest.raises(OptionError) as caught:
            tinyai.Model(file, signature=signature)
        assert "'narrow', 'wide', 'square'" in str(caught.value)
        assert "--signature NAME" in str(caught.value)


@pytest.mark.parametrize(
    ("names", "subgraphs", "asked", "size"),
    [([], [], "", 4), (["one"], [0], "", 4), (["one"], [0], "one", 4), (["one"], [1], "one", 6)],
)
def test_a_file_that_leaves_no_choice_needs_no_name(
    names: list[str], subgraphs: list[int], asked: str, size: int, tmp_path: Path
) -> None:
    network = tinyai.network_of(written(tmp_path, several(names, subgraphs)), signature=asked)
    assert network.inputs[0].type.shape == (1, size)


def test_a_signature_that_is_not_what_tflite_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="'one'"):
        tinyai.network_of(written(tmp_path, several(["one"], [1])))


@pytest.mark.parametrize(
    ("names", "subgraphs", "told"),
    [(["a", "a"], [0, 1], "two signatures named 'a'"), (["a", "b"], [0, 3], "of subgraph 3")],
)
def test_signatures_that_contradict_themselves_are_a_damaged_file(
    names: list[str], subgraphs: list[int], told: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=told):
        tinyai.network_of(written(tmp_path, several(names, subgraphs)), signature="a")


COMMANDS = {
    "compile": ["-o", "net.so"],
    "compile to C": ["-o", "folder", "--isa", "scalar"],
    "run": ["--input", "x.npy"],
    "check": ["--samples", "2"],
    "explain": ["--json"],
    "bench": ["--runs", "2"],
    "bench --peers": ["--seconds", "0.01"],
    "tune": ["-o", "tuning.json", "--seconds", "0"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_a_signature(
    command: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    np.save("x.npy", np.zeros((1, SIZES["wide"]), np.int8))
    words = [*command.removesuffix(" to C").split(), "net.tflite", *COMMANDS[command]]
    refused = CliRunner().invoke(main, words)
    assert (refused.exit_code, "'narrow', 'wide', 'square'" in refused.output) == (2, True)
    done = CliRunner().invoke(main, [*words, "--signature", "wide"])
    assert done.exit_code == 0, done.output


def test_what_tvm_reads_has_no_signature(file: Path) -> None:
    words = ["check", str(file), "--signature", "wide", "--against", "tvm"]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, "none beside what TVM" in done.output) == (2, True)


def test_no_other_model_has_a_signature(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"x")
    with pytest.raises(OptionError, match="signature"):
        tinyai.network_of(tmp_path / "net.onnx", signature="wide")
    network = tinyai.network_of(written(tmp_path, several([])))
    with pytest.raises(OptionError, match="signature"):
        tinyai.network_of(network, signature="wide")


def test_a_bundle_takes_a_network_of_a_signature(file: Path) -> None:
    with pytest.raises(OptionError, match="signature"):
        tinyai.lower({"one": file})
    networks = {name: tinyai.network_of(file, signature=name) for name in SIZES}
    assert set(tinyai.lower(networks).methods) == set(SIZES)
