"""What the newest package onnx alone defines as ONNX Runtime computes it: here it may be there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tinyai.checking.onnxruntime import exact_session
from tinyai.errors import BoundaryError
from tinyai.frontends.onnx.load import read_whole
from tinyai.frontends.onnx.quantized import OLDEST
from tinyai.ir import Array

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": 1},
    "scaled": {"scale": 0.3},
    "capped": {"softcap": 2.0},
    "few keys": {"kv_num_heads": 2},
}


def attention(**attributes: Any) -> onnx.ModelProto:
    """Four heads of four values behind products, in front of one."""
    rng = np.random.default_rng(0)
    heads = {"q_num_heads": 4, "kv_num_heads": 4, **attributes}
    sizes = {"w": (6, 16), "k": (6, 4 * heads["kv_num_heads"]), "o": (16, 5)}
    sizes["v"] = sizes["k"]
    weights = [
        numpy_helper.from_array((rng.normal(size=size) / 2).astype(np.float32), name)
        for name, size in sizes.items()
    ]
    nodes = [
        *(helper.make_node("MatMul", ["x", of], [f"{of}x"], f"{of}x") for of in "wkv"),
        helper.make_node("Attention", ["wx", "kx", "vx"], ["attended"], "attend", **heads),
        helper.make_node("MatMul", ["attended", "o"], ["y"], "y"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 7, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 7, 5])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def run(model: onnx.ModelProto, x: Array) -> Array:
    return np.asarray(exact_session(model.SerializeToString()).run(None, {"x": x})[0])


@pytest.mark.parametrize("way", WAYS)
def test_attention_is_spelled_out_as_onnx_runtime_computes_it_and_quantized(
    way: str, tmp_path: Path
) -> None:
    model, file = attention(**WAYS[way]), tmp_path / "float.onnx"
    onnx.save(model, file)
    rng = np.random.default_rng(1)
    samples = [{"x": rng.normal(size=(2, 7, 6)).astype(np.float32)} for _ in range(8)]

    spelled = read_whole(file, "", OLDEST).proto
    assert "Attention" not in {node.op_type for node in spelled.graph.node}
    for sample in samples:
        np.testing.assert_allclose(run(spelled, sample["x"]), run(model, sample["x"]), atol=1e-5)
    quantized = tinyai.quantize_file(file, samples)
    quantized.save(tmp_path / "int8.onnx")
    noise = quantized.report.outputs[0].sqnr
    assert noise is not None
    assert noise > 20
    tinyai.compile(tmp_path / "int8.onnx", tmp_path / "int8.so")


def test_products_of_attention_as_a_result_are_refused(tmp_path: Path) -> None:
    """Of which ONNX Runtime has other values than ONNX says."""
    model = attention(qk_matmul_output_mode=1)
    model.graph.node[3].output.extend(["", "", "products"])
    model.graph.output.append(helper.make_empty_tensor_value_info("products"))
    onnx.save(model, tmp_path / "net.onnx")

    with pytest.raises(BoundaryError) as error:
        tinyai.compile(tmp_path / "net.onnx", tmp_path / "net.so")
    assert "result 3" in {row.reason.clause for row in error.value.report.host}
