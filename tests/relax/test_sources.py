"""Where modules come from: each source's integers, and its layers' names."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
import tflite
import torch
import tvm
from torch.export import ExportedProgram
from tvm.relax.frontend.tflite import from_tflite
from tvm.relax.frontend.torch import from_exported_program

from benchmarks import torch_networks
from benchmarks.onnx_networks import quantize
from tests.relax.nets import (
    ONNX,
    OPTIONS,
    assert_equal,
    assert_one_graph,
    built,
    imported,
    onnx_runtime,
    regions,
    run,
    samples,
)
from tests.support.paths import MODELS
from tests.support.structure import structure
from tinyai.checking.litert import LiteRTOracle
from tinyai.errors import ModelError, UsageWarning
from tinyai.frontends.executorch.edge import graph_of as executorch_graph_of
from tinyai.frontends.relax.division import regions_of
from tinyai.frontends.relax.hook import graph_of
from tinyai.passes import optimize
from tinyai.reference import run_graph
from tinyai.relax import TinyAIQuantizer, explain, in_pairs, partition_for_tinyai, torch_converters

COUNT = 20
TFLITE = ("kws_ref_model", "ad01_int8", "vww_96_int8", "pretrainedResnet_quant", "real/i8_sine")
SLOW = ("mobilenet_v1", "mobilenet_v2", "resnet18")
TORCH = [
    pytest.param(each, marks=[pytest.mark.slow] if each in SLOW else [])
    for each in torch_networks.NETWORKS
]


# --- ONNX with QOperators -------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ONNX if name != "unet"])
def test_a_network_of_qoperators_in_pairs_equals_onnx_runtime_on_the_file(name: str) -> None:
    model = quantize(ONNX[name](), form="qoperator", activation="uint8", per_channel=True)
    mod = imported(in_pairs(model))
    report = explain(mod, **OPTIONS)
    assert len(report.regions) == 1
    assert report.host == ()
    executable, oracle = built(partition_for_tinyai(mod, **OPTIONS)), onnx_runtime(model)
    shape = [int(dim) for dim in mod["main"].params[0].ty.shape.values]
    for sample in samples(shape, COUNT):
        assert_equal(run(executable, [sample]), oracle([sample]))


def test_what_has_no_form_in_pairs_is_refused_by_name() -> None:
    node = onnx.helper.make_node("QLinearReduceMean", ["x"], ["y"], "mean", domain="com.microsoft")
    graph = onnx.helper.make_graph([node], "g", [], [])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    with pytest.raises(ModelError, match="QLinearReduceMean 'mean'"):
        in_pairs(model)
    old = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 11)])
    with pytest.raises(ModelError, match="opset 11"):
        in_pairs(old)


# --- TFLite ---------------------------------------------------------------------------------------


def of_tflite(file: Path) -> tvm.IRModule:
    try:
        return from_tflite(tflite.Model.GetRootAsModel(file.read_bytes(), 0))
    except tvm.error.OpNotImplemented:
        if not tvm.__version__.startswith("0.26"):
            raise
        pytest.skip("TVM 0.26 reads few quantized operators of TFLite")


@pytest.mark.parametrize("name", TFLITE)
def test_a_tflite_file_is_one_region_and_equals_litert_s_reference_kernels(name: str) -> None:
    file = MODELS / f"{name}.tflite"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    mod = of_tflite(file)
    report = explain(mod, names=file, **OPTIONS)
    assert len(report.regions) == 1
    assert report.host == ()
    assert_one_graph(mod, file, "tflite")
    executable = built(partition_for_tinyai(mod, names=file, **OPTIONS))
    shape = [int(dim) for dim in mod["main"].params[0].ty.shape.values]
    drawn = np.random.default_rng(2)
    inputs = [drawn.integers(-128, 128, shape, dtype=np.int8) for _ in range(COUNT)]
    wanted = LiteRTOracle(file.read_bytes()).results([(each,) for each in inputs])
    for given, expected in zip(inputs, wanted, strict=True):
        assert_equal(run(executable, [given]), expected)


# --- Names ----------------------------------------------------------------------------------------


def names_of_layers(mod: tvm.IRModule) -> set[str]:
    (region,) = regions(mod)
    blocks = mod[region].body.blocks
    return {str(each.var.name) for block in blocks for each in block.bindings}


def test_regions_get_the_names_of_the_file_s_layers(tmp_path: Path) -> None:
    model = quantize(ONNX["mobilenet_v2"](), form="qdq", activation="uint8", per_channel=True)
    onnx.save(model, tmp_path / "model.onnx")
    made = partition_for_tinyai(
        imported(model), names=tmp_path / "model.onnx", sealed=False, **OPTIONS
    )
    convolutions = {node.name for node in model.graph.node if node.op_type == "Conv"}
    assert convolutions <= names_of_layers(made)


def test_names_of_another_file_are_dropped_with_a_warning(tmp_path: Path) -> None:
    model, other = (
        quantize(ONNX[name](), form="qdq", activation="uint8", per_channel=True)
        for name in ("mobilenet_v2", "squeezenet")
    )
    onnx.save(other, tmp_path / "other.onnx")
    with pytest.warns(UsageWarning, match="no names from"):
        made = partition_for_tinyai(
            imported(model), names=tmp_path / "other.onnx", sealed=False, **OPTIONS
        )
    assert not names_of_layers(made) & {node.name for node in other.graph.node}


# --- torch ----------------------------------------------------------------------------------------


def of_torch(name: str) -> tuple[ExportedProgram, list[tuple[torch.Tensor, ...]]]:
    network = torch_networks.NETWORKS[name]()
    inputs = network.samples(COUNT)
    return torch_networks.quantized(network.module, inputs[:8], TinyAIQuantizer()), inputs


@pytest.mark.parametrize("name", TORCH)
def test_a_network_of_torch_s_is_one_region_with_executorch_s_integers(name: str) -> None:
    """The ExecuTorch front end reads the same program as the same graph; its integers are held to
    XNNPACK's and torch's by its own tests, and the code here to those of the graph."""
    program, inputs = of_torch(name)
    mod = from_exported_program(
        program, custom_convert_map=torch_converters(), keep_params_as_input=False
    )
    report = explain(mod, rounding="torch", **OPTIONS)
    assert len(report.regions) == 1
    assert report.host == ()
    graph = optimize(executorch_graph_of(program).graph)
    open_one = partition_for_tinyai(mod, rounding="torch", sealed=False, **OPTIONS)
    (region,) = regions_of(open_one).values()
    assert structure(optimize(graph_of(region))) == structure(graph)

    executable = built(open_one)
    for sample in itertools.islice(inputs, 6):
        given = [each.numpy() for each in sample]
        assert_equal(run(executable, given), run_graph(graph, given))
