"""Real networks: code equals the framework that each is checked against, and faults are found."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import tinyai
from benchmarks.onnx_networks import NETWORKS
from tests.support.onnx_transposed import in_integers
from tests.support.planted_faults import weights_of, with_wrong_weight
from tests.support.prequantized import LARGE, SLOW_TO_BUILD, TFLITE, OnnxCase, tflite_path
from tinyai.backend import compile_graph
from tinyai.checking.check import ROUNDINGS
from tinyai.frontends.relay.whole import network_of
from tinyai.runtime.link import facts_in_c
from tinyai.runtime.watch import HOOK_FLAG
from tinyai.target import Target

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", TFLITE)
def test_a_tflite_network_is_equal_to_litert(name: str) -> None:
    """Up to its softmax, where LiteRT's own aborts."""
    compared = tinyai.check(tflite_path(name), samples=5)
    assert compared.equal, str(compared)
    assert len(compared.notes) == (name in LARGE)


@pytest.mark.parametrize("name", [name for name in TFLITE if name not in SLOW_TO_BUILD])
def test_a_tflite_network_is_equal_to_tvm(name: str) -> None:
    compared = tinyai.check(tflite_path(name), against="tvm", samples=5)
    assert compared.equal, str(compared)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_an_onnx_network_is_equal_to_onnx_runtime(network: object, tmp_path: Path) -> None:
    """With transposed convolutions in a form that ONNX Runtime runs in integers."""
    case = OnnxCase(network, "qdq", "uint8")  # type: ignore[arg-type]
    onnx.save(in_integers(case.model), tmp_path / "net.onnx")
    compared = tinyai.check(tmp_path / "net.onnx", samples=5)
    assert compared.equal, str(compared)


def test_a_transposed_convolution_is_named_where_onnx_runtimes_float_sum_decides_otherwise(
    tmp_path: Path,
) -> None:
    """The C is what the references say: ONNX Runtime's tensor differs, by one step."""
    (unet,) = (each for each in NETWORKS if each.name == "unet")
    onnx.save(OnnxCase(unet, "qdq", "uint8", full=True).model, tmp_path / "net.onnx")
    compared = tinyai.check(tmp_path / "net.onnx", samples=20)
    assert not compared.equal, "no sample decides a tie: draw more"
    assert compared.first is not None
    assert compared.first.name.startswith("convtranspose")
    assert compared.first.found_by == "the operators' references"
    assert compared.first.expected_by.startswith("ONNX Runtime")
    assert abs(compared.first.found - compared.first.expected) == 1
    assert compared.first.arithmetic[-1].value == compared.first.found


@pytest.mark.parametrize("against", ["litert", "tvm"])
@pytest.mark.parametrize("name", [name for name in TFLITE if name not in SLOW_TO_BUILD])
def test_a_planted_fault_is_found_in_every_layer_that_shows_it(
    name: str, against: str, tmp_path: Path
) -> None:
    """A wrong weight in every third layer; one that changes no output is not seen."""
    file, target = tflite_path(name), Target(rounding=ROUNDINGS[against])
    network = network_of(file, target)
    compiled = compile_graph(network.graph, target, abi="plain", hooked=True)
    arrays = weights_of(compiled.source.text)
    facts = tmp_path / "facts.c"
    facts.write_text(facts_in_c(network, compiled.source, target))
    seen = []
    for number in range(0, len(arrays), 3):
        code, library = tmp_path / f"{number}.c", tmp_path / f"{number}.so"
        code.write_text(with_wrong_weight(compiled.source.text, arrays[number]))
        tinyai.Toolchain().shared_library(library, [code, facts], HOOK_FLAG, here=True)
        found = tinyai.check(file, built=library, against=against, samples=10)
        if not found.equal:
            assert found.first is not None, str(found)
            assert found.first.found_by == f"the library {number}.so"
            seen.append(found.first.number)
    assert len(seen) > 1
    assert seen == sorted(set(seen)), "layers in the order of their weights"
