"""Code beside TVM, LiteRT and ONNX Runtime: equal, and where not, by which layer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import tinyai
from benchmarks.onnx_networks import NETWORKS
from tests.support.example_graphs import random_inputs, small_network
from tests.support.onnx_models import Model, quantized
from tests.support.planted_faults import weights_of, with_wrong_number, with_wrong_weight
from tests.support.prequantized import LARGE, OnnxCase, tflite_path
from tests.support.qdq_cases import convolution
from tests.support.random_tflite import Writer
from tests.support.relay_nets import layers, module
from tinyai.backend import compile_graph
from tinyai.checking import code
from tinyai.checking import opponents as opponents_
from tinyai.checking.check import ROUNDINGS, first_other_layer
from tinyai.checking.onnxruntime import OnnxRuntimeOracle
from tinyai.checking.result import ArithmeticLine, Comparison, FirstDifference
from tinyai.cli import main
from tinyai.doctor import others_saturate
from tinyai.errors import EnvironmentProblem, FormatError, OptionError, UnsupportedError
from tinyai.frontends.relay.whole import network_of
from tinyai.ir import Array, Builder, DType, Graph, Type
from tinyai.network import Network
from tinyai.ops import Elementwise, Slice
from tinyai.ops.steps import Relu
from tinyai.reference import run_node
from tinyai.runtime.link import facts_in_c
from tinyai.runtime.watch import HOOK_FLAG
from tinyai.target import Target

BY_NAME = {network.name: network for network in NETWORKS}
KWS = "kws_ref_model"


def onnx_file(folder: Path) -> Path:
    """A convolution between dequantize and quantize."""
    model = convolution((8, 4, 3, 3), axis=0, relu="Relu", pads=[1, 1, 1, 1])
    proto, _ = quantized(model, "int8")
    path = folder / "convolution.onnx"
    onnx.save(proto, path)
    return path


def models(folder: Path) -> dict[str, Any]:
    """A small model for each of the programs, by its name."""
    return {
        "tvm": module(layers(3)),
        "litert": tflite_path(KWS),
        "onnxruntime": onnx_file(folder),
    }


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Plants a wrong weight in the layer's array of this number, in each text that is compiled."""
    load = code.load

    def planted(number: int) -> None:
        def wrong(text: str, toolchain: tinyai.Toolchain) -> Any:
            return load(with_wrong_weight(text, weights_of(text)[number]), toolchain)

        monkeypatch.setattr(code, "load", wrong)

    return planted


@pytest.mark.parametrize("against", ["tvm", "litert", "onnxruntime"])
def test_a_network_is_equal_and_a_planted_fault_is_found_in_its_layer(
    against: str, tmp_path: Path, plant: Callable[[int], None]
) -> None:
    model = models(tmp_path)[against]
    equal = tinyai.check(model, samples=3)
    assert (equal.equal, equal.first, equal.notes) == (True, None, ()), str(equal)
    assert all(output.elements for output in equal.outputs)
    assert str(equal).startswith("equal: ")

    number = {"tvm": 1, "litert": 4, "onnxruntime": 1}[against]  # a transposition comes first
    plant(0 if against == "onnxruntime" else number)
    found = tinyai.check(model, samples=10)
    assert not found.equal
    assert found.first is not None
    assert found.first.number == number
    names = {"tvm": "layer 1", "litert": "functional_1/activation_4/Relu", "onnxruntime": "conv_c"}
    assert found.first.name.startswith(names[against])
    assert found.first.expected == found.first.arithmetic[-1].value != found.first.found
    assert 0 < found.first.differing <= found.first.elements
    facts = json.loads(found.json())
    assert (facts["schema"], facts["equal"]) == ("tinyai.check/1", False)
    assert facts["first"]["name"] == found.first.name
    text = str(found)
    assert text.startswith("different: ")
    assert "  arithmetic, by the operators' references:\n    conv2d: sum of " in text


# --- Code that is built --------------------------------------------------------------------------


def faulty_library(network: Network, target: Target, number: int, path: Path) -> Path:
    """A library of the network's C with a wrong weight in the layer's array of this number, that
    says of itself what the right one says."""
    source = compile_graph(network.graph, target, abi="plain", hooked=True).source
    code, facts = path.with_suffix(".c"), path.with_suffix(".facts.c")
    code.write_text(with_wrong_weight(source.text, weights_of(source.text)[number]))
    facts.write_text(facts_in_c(network, source, target))
    tinyai.Toolchain().shared_library(path, [code, facts], HOOK_FLAG)
    return path


@pytest.mark.long
@pytest.mark.parametrize("against", ["tvm", "litert", "onnxruntime"])
def test_a_library_is_checked_and_its_fault_found(against: str, tmp_path: Path) -> None:
    model = models(tmp_path)[against]
    target = Target(rounding=ROUNDINGS[against], threads=2)
    library = tmp_path / "net.so"
    tinyai.compile(model, library, target)
    equal = tinyai.check(model, built=library, samples=3)
    assert equal.equal
    assert equal.checked == "the library net.so"

    number = {"tvm": 2, "litert": 3, "onnxruntime": 0}[against]
    wrong = faulty_library(network_of(model, target), target, number, tmp_path / "wrong.so")
    found = tinyai.check(model, built=wrong)
    assert not found.equal
    assert found.first is not None
    assert found.first.number == number + (against == "onnxruntime")
    assert found.first.found_by == "the library wrong.so"
    assert found.first.expected == found.first.arithmetic[-1].value != found.first.found


def test_what_onnx_runtime_computes_in_floats_is_told_where_values_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = onnx_file(tmp_path)
    assert OnnxRuntimeOracle(file, ["x"]).in_floats() == []
    mean = onnx.helper.make_node("ReduceMean", ["x"], ["y"], name="mean", axes=[2, 3])
    onnx.save(quantized(Model((mean,), {"x": (1, 4, 6, 6)}), "int8")[0], file)
    results = OnnxRuntimeOracle.results
    monkeypatch.setattr(
        OnnxRuntimeOracle, "results", lambda *args: [[v + 1 for v in r] for r in results(*args)]
    )
    found = tinyai.check(file, samples=1)
    assert not found.equal
    assert any(note.endswith("computes in floats: mean") for note in found.notes)


def test_a_file_that_onnx_runtime_does_not_load_is_no_fault_of_tinyais(tmp_path: Path) -> None:
    file = onnx_file(tmp_path)
    proto = onnx.load(file)
    proto.ir_version = 99
    onnx.save(proto, file)
    with pytest.raises(UnsupportedError, match="the model in ONNX Runtime") as error:
        tinyai.check(file)
    assert "Unsupported model IR version: 99" in str(error.value.found)


def test_products_that_onnx_runtime_saturates_on_this_cpu_are_told(tmp_path: Path) -> None:
    """Weights of 127 beside inputs of up to 255."""
    product = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    model = Model((product,), {"x": (4, 64)}, weights={"w": (np.ones((64, 8), np.float32), None)})
    onnx.save(quantized(model, "uint8")[0], tmp_path / "product.onnx")
    found = tinyai.check(tmp_path / "product.onnx", samples=4)
    assert found.equal
    told = [note for note in found.notes if "ONNX Runtime as programs start it gives" in note]
    assert bool(told) is others_saturate()


@pytest.mark.long
@pytest.mark.parametrize(("isa", "ports_in_arena"), [("scalar", True), ("native", False)])
def test_a_package_is_compiled_and_checked_and_its_fault_found(
    isa: str, ports_in_arena: bool, tmp_path: Path
) -> None:
    model, folder, archive = tflite_path(KWS), tmp_path / "kws", tmp_path / "kws.tar"
    target = Target(rounding="tflite", isa=isa)
    package = tinyai.emit_c(model, folder, target, ports_in_arena=ports_in_arena)
    package.write_tar(archive)
    for built in (folder, archive):
        equal = tinyai.check(model, built=built, samples=3)
        assert equal.equal
        assert equal.checked == f"the C package {built.name}"

    weights = folder / f"{package.name}_weights.c"
    weights.write_text(with_wrong_number(weights.read_text(), 4))
    found = tinyai.check(model, built=folder)
    assert not found.equal
    assert found.first is not None
    assert found.first.name.startswith("functional_1/activation_4/Relu")
    assert found.first.expected == found.first.arithmetic[-1].value != found.first.found


def test_a_library_of_integers_is_checked_against_a_model_of_floats(tmp_path: Path) -> None:
    model = OnnxCase(BY_NAME["squeezenet"], "qdq", "uint8").model
    file, library = tmp_path / "net.onnx", tmp_path / "net.so"
    onnx.save(model, file)
    tinyai.compile(file, library, Target(rounding="onnx"), ends="int8")
    image = np.random.default_rng(0).normal(size=(2, 3, 48, 48)).astype(np.float32)
    np.savez(tmp_path / "images.npz", image=image)
    compared = tinyai.check(file, built=library, samples=2, inputs=[tmp_path / "images.npz"])
    assert compared.equal, str(compared)
    assert [output.type for output in compared.outputs] == ["float32[1,10]"]


def test_code_of_other_options_is_compared_without_its_layers(tmp_path: Path) -> None:
    """Its outputs are; where its layers are is not known."""
    file = onnx_file(tmp_path)
    target = Target(rounding="onnx", isa="scalar")
    library = faulty_library(network_of(file, target), target, 0, tmp_path / "net.so")
    content, changed = library.read_bytes(), tmp_path / "changed.so"
    changed.write_bytes(re.sub(rb'("layers": ")\w', rb"\1x", content))
    assert changed.read_bytes() != content
    other = tinyai.check(file, built=changed)
    assert not other.equal
    assert other.first is None
    assert "its layers cannot be told apart" in other.notes[0]


@pytest.mark.parametrize(
    ("built", "options", "error", "found"),
    [
        ("absent.so", {}, OptionError, "no file and no folder"),
        ("text.so", {}, FormatError, "that begin with b'text'"),
        ("text.tar", {}, FormatError, "ReadError"),
        ("empty", {}, FormatError, "no files *_manifest.json"),
        ("net.so", {"against": "tvm"}, OptionError, "onnx"),
        ("net.so", {"target": Target()}, OptionError, "tinyai -isa=auto"),
        ("other.so", {}, OptionError, "int8[1,3] -> int8[1,3]"),
        ("torch.so", {}, OptionError, "torch"),
    ],
)
def test_code_that_does_not_fit_is_refused(
    built: str, options: dict[str, Any], error: type[Exception], found: str, tmp_path: Path
) -> None:
    file = onnx_file(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("text.so", "text.tar"):
        (tmp_path / name).write_text("text")
    if built == "net.so":
        tinyai.compile(file, tmp_path / "net.so", Target(rounding="onnx", isa="scalar"))
    b = Builder("other")
    x = b.input(Type((1, 3), DType.INT8))
    graph = b.graph([b.add(Elementwise((1, 3)), [x], (Relu(),))])
    if built == "other.so":
        tinyai.compile(graph, tmp_path / built, Target(rounding="onnx", isa="scalar"))
    if built == "torch.so":
        tinyai.compile(graph, tmp_path / built, Target(rounding="torch", isa="scalar"))
    with pytest.raises(error) as caught:
        tinyai.check(file, built=tmp_path / built, **options)
    assert found in str(getattr(caught.value, "found", ""))


# --- Where another program differs ---------------------------------------------------------------


class Other:
    """A program that computes a graph as the references do, but for one tensor, whose last element
    is one more."""

    name = "another program"

    def __init__(self, graph: Graph, wrong: str) -> None:
        self.graph, self.wrong = graph, wrong

    def results(self, samples: Sequence[tuple[Array, ...]]) -> list[list[Array]]:
        raise NotImplementedError

    def tensors(self, sample: tuple[Array, ...]) -> Mapping[str, Array]:
        values = {**self.graph.constants, **dict(zip(self.graph.inputs, sample, strict=True))}
        shown = {}
        for each in self.graph.nodes:
            result = run_node(each, values)
            values[each.output] = result
            for source in each.sources:
                shown[source] = result.copy()
        shown[self.wrong].reshape(-1)[-1] ^= 1
        return shown

    def tensor_of(self, source: str) -> str | None:
        return source


def test_the_layer_from_which_another_program_differs_is_named() -> None:
    graph = small_network()
    sample = tuple(random_inputs(graph, 1))
    integers = [
        each for each in graph.nodes if each.sources and not graph.type(each.output).dtype.is_float
    ]
    wrong = integers[len(integers) // 2].sources[0]
    found = first_other_layer(graph, Other(graph, wrong), sample)
    assert found is not None
    assert wrong in found.names
    assert found.found_by == "the operators' references"
    assert found.expected_by == "another program"
    assert found.arithmetic[-1].value == found.found == found.expected ^ 1
    assert found.index == tuple(
        size - 1 for size in graph.type(graph.nodes[found.number].output).shape
    )


def test_an_operator_of_several_results_of_a_shape_is_not_compared_by_its_name() -> None:
    """Its name is that of the first result, for each of the slices."""
    b = Builder("halves")
    x = b.input(Type((2, 3), DType.INT8))
    halves = [b.add(Slice((row, 0), (1, 1), (1, 3)), [x], sources=("split",)) for row in (0, 1)]
    end = b.add(Elementwise((1, 3)), halves[:1], (Relu(),), ("end",))
    graph, data = b.graph([end, halves[1]]), np.arange(6, dtype=np.int8).reshape(2, 3)

    class OfOutputs(Other):
        def tensors(self, sample: tuple[Array, ...]) -> Mapping[str, Array]:
            return {"split": data[:1], "end": data[:1] + 1}

    found = first_other_layer(graph, OfOutputs(graph, ""), (data,))
    assert found is not None
    assert found.names == ("end",)


# --- LiteRT's softmax ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_where_litert_aborts_in_a_softmax_what_that_reads_is_compared_instead(name: str) -> None:
    compared = tinyai.check(tflite_path(name), samples=3)
    assert compared.equal
    assert [output.elements for output in compared.outputs] == [3000, 3000]
    (note,) = compared.notes
    assert "abort in the model's last operator" in note


def written(kinds: Sequence[str], scale: float) -> Writer:
    """A file of operators one after the other, each with one input."""
    w = Writer(np.random.default_rng(0))
    value = w.value((1, 10), scale)
    w.graph.inputs = [value.index]
    for kind in kinds:
        inputs = [value.index, *([w.numbers([1, 2])] if kind == "TILE" else [])]
        shape = (1, 2 * value.shape[1]) if kind == "TILE" else value.shape
        of = {"SOFTMAX": (1 / 256, -128)}.get(kind, (value.scale, value.zero))
        made = w.value(shape, *of)
        if kind == "DEQUANTIZE":
            made = replace(made, index=w.tensor(shape, "FLOAT32"))
        options = {"beta": 1.0} if kind == "SOFTMAX" else {}
        w.add(kind, inputs, [made.index], kind.title() if options else "", **options)
        value = made
    w.graph.outputs = [value.index]
    return w


def test_so_it_is_where_the_result_is_dequantized(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(
        written(["TILE", "SOFTMAX", "DEQUANTIZE"], 1e-9).content()
    )
    compared = tinyai.check(tmp_path / "net.tflite", samples=3)
    assert compared.equal
    assert [output.type for output in compared.outputs] == ["int8[1,20]", "float32[1,20]"]
    assert any("abort in the model's last operator" in note for note in compared.notes)


def test_an_operator_newer_than_the_reference_kernels_say_is_compared(tmp_path: Path) -> None:
    w = written(["TILE"], 0.1)
    w.model.operatorCodes[-1].version = 3
    (tmp_path / "net.tflite").write_bytes(w.content())
    assert tinyai.check(tmp_path / "net.tflite", samples=3).equal


# --- Inputs --------------------------------------------------------------------------------------


def test_inputs_of_files_come_first(tmp_path: Path) -> None:
    file = tmp_path / "inputs.npz"
    images = np.random.default_rng(1).integers(-128, 128, (3, 4, 9, 8)).astype(np.int8)
    np.savez(file, x=images)
    single = tmp_path / "one.npy"
    np.save(single, images[:1])
    compared = tinyai.check(onnx_file(tmp_path), samples=0, inputs=[file, single])
    assert compared.equal
    assert (compared.samples, compared.given) == (4, 4)


@pytest.mark.parametrize(
    ("arrays", "found"),
    [
        ({"z": np.zeros((1, 4, 9, 8), np.int8)}, "arrays z"),
        ({"x": np.zeros((1, 4, 9, 8), np.float32)}, "x: float32"),
        ({"x": np.zeros((4, 9, 9), np.int8)}, "x: shape [4, 9, 9]"),
        ({"x": np.zeros((1, 4, 9, 8), np.int8), "z": np.zeros(1)}, "arrays x, z"),
        ({}, "arrays none"),
        (None, "BadZipFile: "),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    arrays: dict[str, Array] | None, found: str, tmp_path: Path
) -> None:
    file = tmp_path / "inputs.npz"
    if arrays is None:
        file.write_bytes(b"PK\x03\x04 no zip")
    else:
        np.savez(file, **arrays)
    with pytest.raises(OptionError, match="input file") as caught:
        tinyai.check(onnx_file(tmp_path), inputs=[file])
    assert found in str(caught.value.found)


# --- Options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options", "what"),
    [
        ("net.tflite", {"against": "onnxruntime"}, "model to compare with onnxruntime"),
        ("net.onnx", {"against": "litert"}, "model to compare with litert"),
        ("net.onnx", {"against": "tensorflow"}, "program to compare with"),
        ("net.relay", {"against": "relax"}, "model to compare with relax"),
        ("net.onnx", {"samples": 0}, "samples"),
        ("net.onnx", {"samples": -1}, "samples"),
        ("net.tflite", {"target": Target(rounding="onnx")}, "rounding"),
        ("net.onnx", {"target": Target(rounding="tflite"), "against": "tvm"}, "rounding"),
        ("net.onnx", {"target": "tinyai -rounding=upward"}, "rounding"),
        ("absent.onnx", {}, "model file"),
    ],
)
def test_wrong_options_are_refused(model: str, options: dict[str, Any], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        tinyai.check(model, **options)


@pytest.mark.parametrize(
    ("against", "module_name", "hint"),
    [
        ("litert", "ai_edge_litert", 'pip install "tinyai[check]"'),
        ("onnxruntime", "onnxruntime", 'pip install "tinyai[check]"'),
        ("relax", "tvm_ffi", 'pip install "tinyai[relax]"'),
    ],
)
def test_a_program_that_is_missing_is_named_with_what_brings_it(
    against: str, module_name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = lambda name, *_: None if name == module_name else find_spec(name)  # noqa: E731
    monkeypatch.setattr(opponents_, "find_spec", absent)
    files = models(tmp_path)
    model = files.get(against, files["onnxruntime"])
    with pytest.raises(EnvironmentProblem, match=f"no module {module_name}") as caught:
        tinyai.check(model, against=against)
    assert caught.value.hint == hint


# --- The command ---------------------------------------------------------------------------------


def test_the_command_ends_with_0_where_all_is_equal_and_with_1_where_not(
    tmp_path: Path, plant: Callable[[int], None]
) -> None:
    file = str(onnx_file(tmp_path))
    equal = CliRunner().invoke(main, ["check", file, "--samples", "2"])
    assert (equal.exit_code, equal.stderr) == (0, "")
    assert equal.stdout.startswith("equal: ")
    plant(0)
    different = CliRunner().invoke(main, ["check", file, "--json"])
    assert (different.exit_code, different.stderr) == (1, "")
    facts = json.loads(different.stdout)
    assert (facts["equal"], facts["first"]["name"]) == (False, "conv_c")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["net.tflite", "--rounding", "upward"], 2, "allowed: tflite"),
        (["net.tflite", "--target", "tinyai -rounding=onnx"], 2, "allowed: tflite"),
        (["net.onnx", "--against", "litert"], 2, "allowed: *.tflite"),
        (["net.onnx", "--against", "mxnet"], 2, "Invalid value for '--against'"),
        (["net.onnx", "--samples", "0"], 2, "allowed: 1 or more"),
        (["absent.onnx"], 2, "no file"),
        (["pyproject.toml"], 2, "allowed: *.onnx"),
    ],
)
def test_the_command_tells_what_is_wrong(arguments: list[str], code: int, words: str) -> None:
    result = CliRunner().invoke(main, ["check", *arguments])
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr


def test_a_file_that_is_no_model_ends_with_1(tmp_path: Path) -> None:
    file = tmp_path / "net.tflite"
    file.write_text("no model")
    result = CliRunner().invoke(main, ["check", str(file)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "TFL3" in result.stderr


# --- As text -------------------------------------------------------------------------------------


def test_names_of_the_model_cannot_write_to_the_terminal() -> None:
    layer = FirstDifference(
        *(0, 1, ("\x1b[31mred", "y" * 999), "conv2d", "float32[1]", "a", "b"),
        *((0,), math.inf, math.nan, 1, 1),
        arithmetic=(ArithmeticLine("result of layer 0 (\x1b[31mred)", 1),),
    )
    whole = Comparison("m\x07.onnx", "c", "o", "onnx", 1, 0, (), layer, ("\x1b",))
    assert not any(ord(c) < 32 and c != "\n" for c in str(whole))
    assert max(map(len, str(whole).splitlines())) < 400
    first = json.loads(whole.json(), parse_constant=pytest.fail)["first"]
    assert (first["names"][1], first["found"], first["expected"]) == ("y" * 999, "inf", "nan")
