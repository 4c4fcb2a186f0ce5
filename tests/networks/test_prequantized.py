"""Networks that people ship quantized: one region, the integers of TVM, and where asked for those
of TFLite's reference kernels and of ONNX Runtime."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from tvm import relay

import tinyai
from benchmarks.onnx_networks import INPUT, NETWORKS
from tests.support.example_graphs import assert_transposed_at_the_ends
from tests.support.onnx_transposed import (
    executed,
    in_integers,
    quantized_names,
    quantized_tensors,
    session,
    transposed,
)
from tests.support.oracle import REQUANTIZE, oracle, runner
from tests.support.prequantized import (
    LARGE,
    SLOW_TO_BUILD,
    TFLITE,
    LiteRT,
    OnnxCase,
    Values,
    from_tflite,
    input_of,
    random_inputs,
    sample_inputs,
    tflite_file,
    without_softmax,
)
from tinyai.backend import compile_graph
from tinyai.frontends.relay import partition_for_tinyai, regions
from tinyai.frontends.relay.qdq import integers_from_qdq
from tinyai.frontends.relay.source import graph_from_region
from tinyai.passes import optimize
from tinyai.target import Target

# TVM gives the same integers at every level of LLVM's; its unscheduled NHWC convolutions take
# minutes to optimize.
ORACLE = "llvm -opt-level=1"
each_tflite = pytest.mark.parametrize("name", TFLITE)
small_first = pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW_TO_BUILD else []) for n in TFLITE],
)


def build(mod: tvm.IRModule, rounding: str = "upward"):
    with relay.qnn.op.qnn.requantize_config(**REQUANTIZE):
        return runner(tinyai.build(mod, target=f"tinyai -isa=native -rounding={rounding}, llvm"))


def differences(
    mod: tvm.IRModule, inputs: Iterable[Values], rounding: str, expected
) -> Iterator[int]:
    """Elements that differ from ``expected(values)``, for each input."""
    run = build(mod, rounding)
    for values in inputs:
        pairs = zip(run(values), expected(values), strict=True)
        yield sum(int((found != wanted).sum()) for found, wanted in pairs)


# --- TFLite --------------------------------------------------------------------------------------


@pytest.mark.long
@each_tflite
def test_a_tflite_network_is_one_region_and_leaves_nothing_on_the_host(name: str) -> None:
    mod = partition_for_tinyai(from_tflite(tflite_file(name)), strict=True)
    assert len(regions(mod)) == 1
    assert tinyai.explain(mod).host == ()


@pytest.mark.long
@small_first
def test_a_tflite_network_equals_tvm_on_random_and_sample_inputs(name: str) -> None:
    mod = from_tflite(tflite_file(name))
    inputs = list(chain(random_inputs(mod, 20), sample_inputs(name, mod, 20)))
    found = differences(mod, inputs, "upward", lambda values: oracle(mod, values, target=ORACLE))
    assert list(found) == [0] * len(inputs)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in TFLITE if name not in LARGE])
def test_a_tflite_network_equals_tflites_reference_kernels_when_asked_to(name: str) -> None:
    content = tflite_file(name)
    mod, litert = from_tflite(content), LiteRT(content)
    inputs = list(chain(random_inputs(mod, 100), sample_inputs(name, mod, 200)))
    found = differences(mod, inputs, "tflite", lambda values: litert(*values.values()))
    assert list(found) == [0] * len(inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_mobilenet_equals_tflites_reference_kernels_up_to_its_softmax(name: str) -> None:
    """LiteRT's reference softmax aborts on both: see ``without_softmax``."""
    content = without_softmax(tflite_file(name))
    mod, litert = from_tflite(content), LiteRT(content)
    inputs = list(random_inputs(mod, 100))
    found = differences(mod, inputs, "tflite", lambda values: litert(*values.values()))
    assert list(found) == [0] * len(inputs)


@pytest.mark.long
@pytest.mark.parametrize("rounding", ["upward", "tflite"])
def test_a_network_of_dead_channels_is_built_without_them_and_the_report_says_so(
    rounding: str,
) -> None:
    mod = from_tflite(tflite_file("vww_96_int8"))
    report = tinyai.explain(mod, rounding=rounding)
    (region,) = report.regions
    assert region.dropped.constant > 1500
    assert region.macs <= 0.52 * (region.macs + region.dropped.macs)
    assert f"left out:    {region.dropped}" in str(report)
    (func,) = regions(partition_for_tinyai(mod, rounding=rounding)).values()
    compiled = compile_graph(graph_from_region(func), Target(isa="native"))
    assert compiled.graph.weight_bytes() <= 40_000
    assert f"the source model has more: {compiled.graph.dropped}" in compiled.source.text


# --- ONNX ----------------------------------------------------------------------------------------

BY_NAME = {network.name: network for network in NETWORKS}
# Each network once, forms and types in turn; those for which TVM needs longest, and every other
# combination, in `make test-all` alone.
FIRST = [
    OnnxCase(BY_NAME["mobilenet_v1"], "qoperator", "uint8"),
    OnnxCase(BY_NAME["mobilenet_v2"], "qdq", "uint8"),
    OnnxCase(BY_NAME["resnet50"], "qoperator", "uint8", per_channel=False),
    OnnxCase(BY_NAME["efficientnet_lite0"], "qdq", "int8", per_channel=False),
    OnnxCase(BY_NAME["squeezenet"], "qoperator", "int8"),
    OnnxCase(BY_NAME["unet"], "qdq", "uint8"),
    OnnxCase(BY_NAME["ssd"], "qdq", "int8"),
]
EVERY = [
    OnnxCase(network, form, activation, per_channel)
    for network in NETWORKS
    for form in ("qdq", "qoperator")
    for activation in ("uint8", "int8")
    for per_channel in (True, False)
]
FULL = [OnnxCase(network, "qdq", "uint8", full=True) for network in NETWORKS]
QUICK = [case for case in FIRST if case.network.name not in ("resnet50", "efficientnet_lite0")]


def cases(every: Iterable[OnnxCase]) -> list[Any]:
    return [
        pytest.param(case, id=str(case), marks=() if case in QUICK else pytest.mark.slow)
        for case in {str(each): each for each in every}.values()
    ]


CASES = cases((*FIRST, *EVERY, *FULL))

# ONNX Runtime writes no QOperator form of ConvTranspose: it stays float in the file.
FLOAT_IN_THE_FILE = {("unet", "qoperator"): ["nn.conv2d_transpose", "nn.bias_add"]}


def onnx_runtime(model: onnx.ModelProto):
    return functools.partial(session(model).run, None)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_an_onnx_network_is_one_region_and_equals_tvm_and_onnx_runtime(case: OnnxCase) -> None:
    mod = case.module
    host = [row.operator for row in tinyai.explain(mod).host]
    floats = FLOAT_IN_THE_FILE.get((case.network.name, case.form), [])
    assert host == floats
    assert len(regions(partition_for_tinyai(mod))) == 1 + bool(floats)

    integers = integers_from_qdq(mod)
    images = [{INPUT: image} for image in case.images(20)]
    found = differences(
        mod, images, "upward", lambda values: oracle(integers, values, target=ORACLE)
    )
    assert list(found) == [0] * len(images)
    if not floats:
        run = onnx_runtime(in_integers(case.model))
        assert list(differences(mod, images, "onnx", run)) == [0] * len(images)
        results = [result[0] for result in map(run, images)]
        assert len(np.unique(np.stack(results))) > 2 * len(images), "dead network"


@pytest.mark.long
@pytest.mark.parametrize("case", cases(FIRST))
def test_an_onnx_network_is_transposed_at_its_ends_only(case: OnnxCase) -> None:
    for func in regions(partition_for_tinyai(case.module)).values():
        assert_transposed_at_the_ends(optimize(graph_from_region(func)))


TRANSPOSED = [
    case for case in CASES if (case.values[0].network.name, case.values[0].form) == ("unet", "qdq")
]
# float32's, at the sum of magnitudes. ONNX Runtime's float sums were at most 4.3 of them from the
# exact values, over all outputs of these layers for 20 images a network.
ULPS = 8


@pytest.mark.parametrize("case", TRANSPOSED)
def test_where_onnx_runtimes_file_leaves_its_integers_is_a_transposed_convolution_at_a_tie(
    case: OnnxCase,
) -> None:
    """ONNX Runtime against itself: the file as it is, whose ConvTranspose it runs in float, and
    the same layers by its integer kernels, which the test above compares with tinyai."""
    names = quantized_names(case.model)
    layers = {layer.result: layer for layer in transposed(case.model)}
    assert layers
    own = quantized_tensors(case.model, names)
    integers = quantized_tensors(in_integers(case.model), names)
    for image in case.images(20):
        found = dict(zip(names, own(image), strict=True))
        expected = dict(zip(names, integers(image), strict=True))
        first = next((name for name in names if (found[name] != expected[name]).any()), None)
        if first is None:
            continue
        assert first in layers, f"{first} differs, and nothing before it"
        apart = found[first] != expected[first]
        assert np.abs(found[first].astype(int) - expected[first])[apart].max() == 1
        value, magnitude = layers[first].exact(expected[layers[first].source])
        from_tie = np.abs(value - np.floor(value) - 0.5)
        assert (from_tie / np.spacing(magnitude.astype(np.float32)))[apart].max() <= ULPS


@pytest.mark.parametrize("case", TRANSPOSED)
def test_onnx_runtime_runs_only_the_transposed_convolutions_of_a_file_in_float(
    case: OnnxCase, tmp_path: Path
) -> None:
    computes = {"Conv", "ConvTranspose", "QLinearConv"}
    assert executed(case.model, tmp_path) & computes == {"ConvTranspose", "QLinearConv"}
    assert executed(in_integers(case.model), tmp_path) & computes == {"QLinearConv"}


@pytest.mark.parametrize("case", TRANSPOSED)
def test_transposed_convolutions_by_integer_kernels_are_their_exact_values_rounded(
    case: OnnxCase,
) -> None:
    """Within float32's rounding of the one product that ONNX Runtime's integer kernels have."""
    layers = transposed(case.model)
    ends = sorted({name for layer in layers for name in (layer.source, layer.result)})
    run = quantized_tensors(in_integers(case.model), ends)
    for image in case.images(3):
        found = dict(zip(ends, run(image), strict=True))
        for layer in layers:
            value, _ = layer.exact(found[layer.source])
            limits = np.iinfo(found[layer.result].dtype)
            steps = np.clip(value + layer.result_zero, limits.min, limits.max)
            error = np.abs(found[layer.result] - steps)
            assert error.max() <= 0.5 + 4 * np.spacing(np.float32(np.abs(value).max()))


def test_the_input_of_an_onnx_network_is_called_as_the_tests_call_it() -> None:
    assert input_of(QUICK[0].module)[0] == INPUT
