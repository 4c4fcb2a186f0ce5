"""What .onnx files of transformers are made of, beside products: embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tests.support.onnx_models import run_onnx
from tinyai.errors import OptionError
from tinyai.frontends.files import read_file
from tinyai.frontends.whole import network_of
from tinyai.ir import Array
from tinyai.network import Port
from tinyai.reference import run_graph

RNG = np.random.default_rng(0)
WORDS, WIDTH = 12, 8
IDS = ("ids", TensorProto.INT64, (1, 5))
TABLE = RNG.normal(size=(WORDS, WIDTH)).astype(np.float32)
TABLE[-1] *= 9  # a word that no sample has
WEIGHTS = {"table": TABLE, "w": RNG.normal(size=(WIDTH, 6)).astype(np.float32)}
SAMPLES = [{"ids": RNG.integers(0, WORDS - 1, (1, 5))} for _ in range(4)]


def model(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Array],
    source: tuple[str, int, Sequence[int]] = IDS,
    shape: Sequence[int] = (1, 5, 6),
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info(*source)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A float file of an embedding and a layer."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], "rows"),
        helper.make_node("MatMul", ["rows", "w"], ["y"], "layer"),
    ]
    onnx.save(model(nodes, WEIGHTS), tmp_path / "words.onnx")
    return tmp_path / "words.onnx"


def test_the_grid_of_an_embedding_holds_words_that_no_sample_has(words: Path) -> None:
    file = words.parent / "int8.onnx"
    quantized = tinyai.quantize_file(words, SAMPLES)
    quantized.save(file)
    (rows,) = (each for each in quantized.report.layers if each.name == "rows")
    assert rows.scale * 255 == pytest.approx(TABLE.max() - TABLE.min(), rel=1e-3)
    stored = {each.name: each.data_type for each in onnx.load(file).graph.initializer}
    assert stored["table_quantized"] in (TensorProto.INT8, TensorProto.UINT8)
    assert "table" not in stored
    ids = np.array([[WORDS - 1, 0, -1, 3, -WORDS]])
    (wanted,) = run_onnx(onnx.load(file), {"ids": ids})
    (found,) = run_graph(network_of(read_file(file), "net", "onnx").graph, [ids])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", ["library", "package"])
def test_indices_that_no_word_has_are_an_error(words: Path, kind: str) -> None:
    file, made = words.parent / "int8.onnx", words.parent / "made"
    tinyai.quantize_file(words, SAMPLES).save(file)
    if kind == "package":
        tinyai.emit_c(file, made)
    else:
        made = tinyai.compile(file, made.with_suffix(".so"))
    model, ids = tinyai.Model(made), np.array([[0, 1, 2, 3, WORDS]])
    with pytest.raises(OptionError, match="indices in input 'ids'") as error:
        model.run(ids)
    assert error.value.found == f"0 .. {WORDS}"
    assert error.value.allowed == f"-{WORDS} .. {WORDS - 1}"
    assert model.run(ids - 1)[0].shape == (1, 5, 6)


def test_random_inputs_of_indices_are_within_the_table(words: Path) -> None:
    tinyai.quantize_file(words, SAMPLES).save(words.parent / "int8.onnx")
    result = tinyai.check(words.parent / "int8.onnx", samples=5)
    assert result.equal


def test_a_port_with_limits_is_the_same_behind_json(words: Path) -> None:
    tinyai.quantize_file(words, SAMPLES).save(words.parent / "int8.onnx")
    (port,) = network_of(read_file(words.parent / "int8.onnx"), "net", "onnx").inputs
    assert port.limits == (-WORDS, WORDS - 1)
    assert Port.from_dict(port.to_dict()) == port


def test_elements_of_constants_are_folded_where_there_are_more_than_indices(tmp_path: Path) -> None:
    """BERT's token types: ONNX's reference fails there."""
    types = np.arange(64).reshape(1, 64) % 2
    nodes = [
        helper.make_node("GatherElements", ["types", "places"], ["chosen"], axis=1),
        helper.make_node("Gather", ["table", "chosen"], ["rows"], "rows"),
        helper.make_node("Add", ["x", "rows"], ["y"], "sum"),
    ]
    constants = {"table": TABLE, "types": types, "places": np.array([[5, -1, 0, 2]])}
    source = ("x", TensorProto.FLOAT, (1, 4, WIDTH))
    onnx.save(model(nodes, constants, source, (1, 4, WIDTH)), tmp_path / "types.onnx")
    samples = [{"x": RNG.normal(size=(1, 4, WIDTH)).astype(np.float32)} for _ in range(4)]
    quantized = tinyai.quantize_file(tmp_path / "types.onnx", samples)
    assert [each.name for each in quantized.report.layers][-1] == "sum"
    assert quantized.report.outputs[0].sqnr > 35
