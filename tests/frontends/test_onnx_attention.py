"""Attention of opset 23: spelled out as ONNX says and ONNX Runtime computes it, and quantized."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tinyai
from tests.support.attentions import (
    ROWS,
    Way,
    all_hidden_of_one,
    bias,
    infinite,
    model_of,
    require_spelled_out_and_quantized,
    some_hidden,
)
from tinyai.errors import BoundaryError

CAUSAL = {"is_causal": 1}
WAYS = {
    "plain": Way(),
    "causal": Way(CAUSAL),
    "scaled": Way({"scale": 0.3}),
    "capped": Way({"softcap": 2.0}),
    "few keys": Way({"kv_num_heads": 2}),
    "one key": Way({"kv_num_heads": 1, **CAUSAL}),
    "heads apart": Way(has_heads=True),
    "heads apart, few keys": Way({"kv_num_heads": 2}, has_heads=True),
    "other keys": Way(keys=5),
    "fewer causal keys": Way(CAUSAL, keys=5),
    "past": Way(CAUSAL, past=3, has_heads=True),
    "past, few keys": Way({"kv_num_heads": 2, **CAUSAL}, past=3),
    "bools": Way(mask=some_hidden),
    "bools, causal": Way(CAUSAL, some_hidden),
    "bools, constant": Way({"kv_num_heads": 2}, some_hidden, constant=True),
    "bias": Way(mask=bias),
    "bias, causal": Way(CAUSAL, bias),
    "bias, constant, causal": Way(CAUSAL, bias, constant=True),
    "bias, capped": Way({"softcap": 2.0}, bias),
    "infinite, constant": Way(mask=infinite, constant=True),
    "all hidden of one": Way(mask=all_hidden_of_one),
    "all hidden of one, constant": Way(mask=all_hidden_of_one, constant=True),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WAYS)
def test_attention_is_spelled_out_and_quantized(name: str, tmp_path: Path) -> None:
    require_spelled_out_and_quantized(WAYS[name], tmp_path)


def refusal_of(model: onnx.ModelProto, folder: Path) -> str:
    onnx.save(model, folder / "net.onnx")
    with pytest.raises(BoundaryError) as error:
        tinyai.compile(folder / "net.onnx", folder / "net.so")
    rows = [row for row in error.value.report.host if row.operator == "Attention"]
    return " ".join(f"{r.reason.clause}: {r.reason.found}; {r.reason.allowed}" for r in rows)


def attention_of(model: onnx.ModelProto) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type == "Attention")


def test_scores_as_a_result_are_refused(tmp_path: Path) -> None:
    """Of which ONNX Runtime has other values than ONNX says."""
    model = model_of(Way({"qk_matmul_output_mode": 1}))
    attention_of(model).output.extend(["", "", "products"])
    model.graph.output.append(helper.make_empty_tensor_value_info("products"))

    assert "result 3: products" in refusal_of(model, tmp_path)


def test_a_softmax_of_another_precision_is_refused(tmp_path: Path) -> None:
    model = model_of(Way({"softmax_precision": TensorProto.FLOAT16}))

    assert "softmax_precision: 10; float32, 1" in refusal_of(model, tmp_path)


def test_a_mask_that_is_shorter_than_the_keys_is_refused(tmp_path: Path) -> None:
    model = model_of(Way(mask=lambda rng: np.ones((ROWS, ROWS - 2), bool)))

    assert "last dimension of attn_mask: (5,); 1 or 7" in refusal_of(model, tmp_path)


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"q_num_heads": 3}, "q_num_heads: 3; a part of 16"),
        ({"kv_num_heads": 0}, "kv_num_heads: 0; a part of 16"),
    ],
)
def test_heads_that_do_not_divide_a_row_are_refused(
    attributes: dict[str, int], told: str, tmp_path: Path
) -> None:
    model = model_of(Way())
    for attribute in attention_of(model).attribute:
        attribute.i = attributes.get(attribute.name, attribute.i)

    assert told in refusal_of(model, tmp_path)
