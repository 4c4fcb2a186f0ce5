"""Sums of residual layers that norms read have 16 bits with ``residual="int16"``: a channel that is
far larger than the others leaves these their steps."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import tinyai
from tests.support.qdq_cases import node, normal
from tinyai import QuantConfig
from tinyai.errors import BoundaryError, UsageWarning
from tinyai.frontends.quantize import QuantizedFile
from tinyai.frontends.whole import network_of
from tinyai.reference import run_graph

LENGTH, WIDTH = 8, 16
SAMPLES = [{"x": normal(1, LENGTH, WIDTH, seed=seed)} for seed in range(6)]
# Norms in front of the layers, as in vision transformers, or behind the sums, as in BERT.
BLOCKS: dict[str, list[NodeProto]] = {
    "before": [
        node("LayerNormalization", "x gamma", "n1"),
        node("MatMul", "n1 w1", "d1"),
        node("Relu", "d1", "r1"),
        node("MatMul", "r1 far", "d2"),
        node("Add", "d2 x", "s1"),
        node("LayerNormalization", "s1 gamma", "n2"),
        node("MatMul", "n2 w2", "d3"),
        node("Add", "s1 d3", "s2"),
        node("LayerNormalization", "s2 gamma", "n3"),
        node("MatMul", "n3 w1", "y"),
    ],
    "behind": [
        node("MatMul", "x w1", "d1"),
        node("Relu", "d1", "r1"),
        node("MatMul", "r1 far", "d2"),
        node("Add", "x d2", "s1"),
        node("LayerNormalization", "s1 gamma", "n1"),
        node("MatMul", "n1 w2", "d3"),
        node("Add", "d3 n1", "s2"),
        node("Reshape", "s2 rows", "moved"),
        node("LayerNormalization", "moved gamma", "y"),
    ],
    "none": [
        node("MatMul", "x w1", "d1"),
        node("Add", "x d1", "s1"),
        node("MatMul", "s1 w2", "d2"),
        node("Add", "s1 d2", "s2"),
        node("Softmax", "s2", "y", axis=-1),
    ],
}
WIDE = {"before": {"d2", "s1", "d3", "s2"}, "behind": {"d2", "s1", "d3", "s2", "moved"}}


def quantized(norms: str, folder: Path, residual: str) -> QuantizedFile:
    weights = {name: normal(WIDTH, WIDTH, seed=n) / 4 for n, name in enumerate(["w1", "w2", "far"])}
    weights["far"][:, 3] *= 100
    weights |= {"gamma": np.ones(WIDTH, np.float32), "rows": np.array([LENGTH, WIDTH])}
    shapes = {"x": [1, LENGTH, WIDTH], "y": [LENGTH, WIDTH]}
    if norms != "behind":
        shapes["y"] = shapes["x"]
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in shapes.items()]
    known = [numpy_helper.from_array(each, name) for name, each in weights.items()]
    graph = helper.make_graph(BLOCKS[norms], "net", *ends, known)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "f.onnx")
    return tinyai.quantize_file(folder / "f.onnx", SAMPLES, QuantConfig(residual=residual))


@pytest.mark.parametrize("norms", BLOCKS)
def test_sums_and_what_products_add_have_16_bits_where_norms_read_them(
    norms: str, tmp_path: Path
) -> None:
    told = pytest.warns(UsageWarning, match="no sum of two values")
    with nullcontext() if norms in WIDE else told:
        made = quantized(norms, tmp_path, "int16")
    values = {each.name: each.output[0] for each in BLOCKS[norms]}
    wide = {
        values[row.name.partition("#")[0]] for row in made.report.layers if row.dtype == "int16"
    }
    assert wide == WIDE.get(norms, set())
    assert not made.report.left
    assert made.report.narrow_sums == 0


@pytest.mark.parametrize("norms", WIDE)
def test_so_they_lose_less_and_the_report_says_so_before(norms: str, tmp_path: Path) -> None:
    narrow, wide = (quantized(norms, tmp_path, each).report for each in ("own", "int16"))
    assert narrow.sqnr is not None
    assert wide.sqnr is not None
    assert wide.sqnr > narrow.sqnr + 5
    assert narrow.narrow_sums == 4
    hint = "to try: --residual int16"
    assert (hint in str(narrow)) == (narrow.sqnr < 20)
    assert hint not in str(wide)


@pytest.mark.parametrize("norms", WIDE)
def test_the_file_is_what_is_in_memory_in_tvms_integers(norms: str, tmp_path: Path) -> None:
    made = quantized(norms, tmp_path, "int16")
    made.save(tmp_path / "q.onnx")
    with pytest.raises(BoundaryError) as error:
        tinyai.compile(tmp_path / "q.onnx", tmp_path / "net.so")
    assert error.value.hint.startswith("--rounding upward")
    target = "tinyai -rounding=upward"
    of_file = tinyai.Model(tinyai.compile(tmp_path / "q.onnx", tmp_path / "net.so", target))
    in_memory = network_of(made.model, "net", "upward").graph
    for sample in SAMPLES:
        (wanted,) = run_graph(in_memory, [sample["x"]])
        np.testing.assert_array_equal(of_file(sample)[0], wanted)
