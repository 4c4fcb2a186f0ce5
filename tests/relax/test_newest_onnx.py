"""The newest package onnx, which may be here: it defines operators in other ways, and its rules of
shapes fail at others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tests.support.attentions import Way, require_spelled_out_and_quantized, some_hidden
from tests.support.float_faults import ends_of
from tests.support.misfit_nodes import read_misfits
from tinyai.checking.onnxruntime import exact_session
from tinyai.frontends.files import network_of_file
from tinyai.reference import run_graph
from tinyai.target import Target


@pytest.mark.filterwarnings("ignore:(?!the float model as it was read):tinyai.errors.UsageWarning")
def test_random_models_are_quantized_as_reported(tmp_path: Path) -> None:
    seeds = range(100, 130)

    assert ends_of(seeds, tmp_path)["equal"] > len(seeds) / 2


def test_nodes_that_do_not_fit_do_not_end_the_process(tmp_path: Path) -> None:
    read_misfits(tmp_path, range(100, 103))


@pytest.mark.parametrize("alpha", [None, 1.0, 1.7, -0.5])
def test_a_swish_of_opset_24_is_quantized_for_onnx_runtime(
    alpha: float | None, tmp_path: Path
) -> None:
    rng, said = np.random.default_rng(0), {} if alpha is None else {"alpha": alpha}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Swish", ["c"], ["y"], **said),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, 3, 9, 9)), ("y", (1, 4, 7, 7)))
    )
    weights = numpy_helper.from_array(rng.normal(size=(4, 3, 3, 3)).astype(np.float32), "w")
    graph = helper.make_graph(nodes, "graph", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    source, file = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    onnx.save(model, source)
    samples = [{"x": rng.normal(size=(1, 3, 9, 9)).astype(np.float32)} for _ in range(6)]
    quantized = tinyai.quantize_file(source, samples)
    assert quantized.report.sqnr > 35
    quantized.save(file)
    network, session = network_of_file(file, Target(rounding="onnx")), exact_session(file)
    for sample in samples:
        (ours,), (theirs,) = run_graph(network.graph, [sample["x"]]), session.run(None, sample)
        np.testing.assert_array_equal(ours, theirs)


WINDOWS = {
    "behind": Way({"left_window_size": 2}),
    "of one": Way({"left_window_size": 0, "right_window_size": 0}),
    "around": Way({"left_window_size": 1, "right_window_size": 2, "kv_num_heads": 2}),
    "causal": Way({"left_window_size": 3, "is_causal": 1}, past=3),
    "of fewer keys": Way({"left_window_size": 1, "right_window_size": 0}, keys=5),
    "bools": Way({"right_window_size": 1}, some_hidden),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_attention_in_a_window_is_spelled_out_and_quantized(name: str, tmp_path: Path) -> None:
    require_spelled_out_and_quantized(WINDOWS[name], tmp_path)
