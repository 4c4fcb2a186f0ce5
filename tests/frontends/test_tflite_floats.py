"""Float operators of .tflite files, as ONNX Runtime runs them for the quantizer, beside LiteRT."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tflite
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

import tinyai
from tinyai.errors import ModelError, OptionError, UsageWarning
from tinyai.frontends.faults import Fault
from tinyai.frontends.files import read_file
from tinyai.frontends.onnx.float_model import FileModel
from tinyai.frontends.onnx.framework import framework_of as onnx_framework_of
from tinyai.frontends.tflite.litert import framework_of
from tinyai.frontends.tflite.sparse import densified
from tinyai.ir import Array
from tinyai.qdq.operands import is_call
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.quantize import quantized


@dataclass(frozen=True)
class Tensor:
    """Of float32, or of its ``data``, which may be sparse."""

    shape: tuple[int, ...]
    data: Array | None = None
    sparsity: schema.SparsityParametersT | None = None


@dataclass(frozen=True)
class Operator:
    """By the numbers of its tensors."""

    kind: str
    inputs: tuple[int, ...]
    output: int
    options: Any = None


def file_of(tensors: Sequence[Tensor], operators: Sequence[Operator]) -> bytes:
    """Tensor 0 is the input, the last one the output."""
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.buffers = 3, [schema.BufferT()]
    graph.tensors, graph.operators, model.operatorCodes = [], [], []
    for number, each in enumerate(tensors):
        made = schema.TensorT()
        made.name, made.shape, made.sparsity = f"t{number}", list(each.shape), each.sparsity
        if each.data is not None:
            made.type = getattr(schema.TensorType, each.data.dtype.name.upper())
            made.buffer = len(model.buffers)
            model.buffers.append(schema.BufferT())
            model.buffers[-1].data = np.frombuffer(each.data.tobytes(), np.uint8)
        graph.tensors.append(made)
    for number, each in enumerate(operators):
        code, node = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = getattr(schema.BuiltinOperator, each.kind)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        node.opcodeIndex, node.inputs, node.outputs = number, list(each.inputs), [each.output]
        if each.options is not None:
            name = type(each.options).__name__.removesuffix("T")
            node.builtinOptionsType = getattr(schema.BuiltinOptions, name)
            node.builtinOptions = each.options
        model.operatorCodes.append(code)
        graph.operators.append(node)
    graph.inputs, graph.outputs = [0], [len(tensors) - 1]
    model.subgraphs = [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def by_litert(content: bytes, x: Array) -> Array:
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


def require_near(content: bytes, folder: Path, least: float = -3.0) -> Array:
    """What LiteRT computes, and so do we."""
    (folder / "net.tflite").write_bytes(content)
    model = FileModel(read_file(folder / "net.tflite"))
    (spec,) = model.inputs
    x = np.random.default_rng(0).uniform(least, 3, spec.shape).astype(np.float32)
    wanted = by_litert(content, x)
    (found,) = model.runner(model.root).run({spec.name: x})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    return wanted


def bilinear(corners: bool, centres: bool) -> schema.ResizeBilinearOptionsT:
    options = schema.ResizeBilinearOptionsT()
    options.alignCorners, options.halfPixelCenters = corners, centres
    return options


@pytest.mark.parametrize(("corners", "centres"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("size", [(7, 9), (10, 15), (3, 2), (1, 1)])
def test_images_are_resized_bilinearly(
    size: tuple[int, int], corners: bool, centres: bool, tmp_path: Path
) -> None:
    sizes = Tensor((2,), np.array(size, np.int32))
    tensors = [Tensor((1, 5, 6, 3)), sizes, Tensor((1, *size, 3))]
    operator = Operator("RESIZE_BILINEAR", (0, 1), 2, bilinear(corners, centres))
    require_near(file_of(tensors, [operator]), tmp_path)


@pytest.mark.parametrize("turned", [False, True])
def test_one_matrix_multiplies_all_rows(turned: bool, tmp_path: Path) -> None:
    weights = np.random.default_rng(1).normal(size=(3, 7) if turned else (7, 3))
    options = schema.BatchMatMulOptionsT()
    options.adjX, options.adjY = False, turned
    right = Tensor(weights.shape, weights.astype(np.float32))
    tensors = [Tensor((2, 1, 4, 7)), right, Tensor((2, 1, 4, 3))]
    require_near(file_of(tensors, [Operator("BATCH_MATMUL", (0, 1), 2, options)]), tmp_path)


def test_what_is_read_otherwise_than_litert_runs_it_is_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for name, width in (("read", 3), ("run", 3), ("wide", 4)):
        right = Tensor((7, width), rng.normal(size=(7, width)).astype(np.float32))
        tensors = [Tensor((4, 7)), right, Tensor((4, width))]
        operator = Operator("BATCH_MATMUL", (0, 1), 2, schema.BatchMatMulOptionsT())
        (tmp_path / f"{name}.tflite").write_bytes(file_of(tensors, [operator]))
    samples = [{"t0": rng.normal(size=(4, 7)).astype(np.float32)} for _ in range(3)]
    model = read_file(tmp_path / "read.tflite")
    made = quantized(
        FileModel(model, framework_of(tmp_path / "read.tflite")), samples, QuantConfig()
    )
    assert made.report.read_alike == "exact" or float(made.report.read_alike[:-3]) > 100
    assert "own framework" not in str(made.report)
    for name, told in (("run", "result 0 on the first sample"), ("wide", r"has \[\(4, 4\)\]")):
        other = FileModel(model, framework_of(tmp_path / f"{name}.tflite"))
        with pytest.warns(UsageWarning, match=told):
            quantized(other, samples, QuantConfig())


def test_that_its_framework_does_not_run_a_model_is_told(tmp_path: Path) -> None:
    """What was read is quantized: that nobody compared it is in the report."""
    rng = np.random.default_rng(1)
    right = Tensor((7, 3), rng.normal(size=(7, 3)).astype(np.float32))
    for name, operands in (("read", (0, 1)), ("broken", (0,))):
        operator = Operator("BATCH_MATMUL", operands, 2, schema.BatchMatMulOptionsT())
        tensors = [Tensor((4, 7)), right, Tensor((4, 3))]
        (tmp_path / f"{name}.tflite").write_bytes(file_of(tensors, [operator]))
    model = read_file(tmp_path / "read.tflite")
    samples = [{"t0": rng.normal(size=(4, 7)).astype(np.float32)} for _ in range(3)]
    for make in (framework_of, onnx_framework_of):
        made = quantized(FileModel(model, make(tmp_path / "broken.tflite")), samples, QuantConfig())
        assert "cannot run" in made.report.read_alike
        assert f"own framework: {made.report.read_alike}" in str(made.report)
        assert json.loads(made.report.json())["read_alike"].startswith("not compared")


def test_a_reciprocal_root(tmp_path: Path) -> None:
    tensors = [Tensor((2, 5)), Tensor((2, 5))]
    require_near(file_of(tensors, [Operator("RSQRT", (0,), 1)]), tmp_path, 0.1)


def test_a_layer_norm_as_tensorflow_spells_it_is_one_call(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    shape, one = (4, 12), (4, 1)
    gamma, beta = (Tensor((12,), rng.normal(size=12).astype(np.float32)) for _ in range(2))
    epsilon, axes = Tensor((), np.float32(1e-3)), Tensor((1,), np.array([1], np.int32))
    keep = schema.ReducerOptionsT()
    keep.keepDims = True
    product, addition = schema.MulOptionsT(), schema.AddOptionsT()
    middle = [Tensor(each) for each in (one, shape, one, one, one, shape, shape, shape, shape)]
    tensors = [Tensor(shape), gamma, beta, epsilon, axes, *middle, Tensor(shape)]
    operators = [
        Operator("MEAN", (0, 4), 5, keep),
        Operator("SQUARED_DIFFERENCE", (0, 5), 6, schema.SquaredDifferenceOptionsT()),
        Operator("MEAN", (6, 4), 7, keep),
        Operator("ADD", (7, 3), 8, addition),
        Operator("RSQRT", (8,), 9),
        Operator("MUL", (9, 1), 10, product),
        Operator("MUL", (0, 10), 11, product),
        Operator("MUL", (5, 10), 12, product),
        Operator("SUB", (2, 12), 13, schema.SubOptionsT()),
        Operator("ADD", (11, 13), 14, addition),
    ]
    require_near(file_of(tensors, operators), tmp_path)
    (output,) = read_file(tmp_path / "net.tflite").outputs
    assert is_call(output.expr, "layer_norm")


def test_what_no_reader_takes_is_told_with_what_to_do(tmp_path: Path) -> None:
    right = Tensor((5, 4), np.ones((5, 4), np.float32))
    tensors = [Tensor((2, 3, 5)), right, Tensor((2, 3, 4)), Tensor((2, 3, 4))]
    product = Operator("BATCH_MATMUL", (0, 1), 2, schema.BatchMatMulOptionsT())
    file = tmp_path / "net.tflite"
    file.write_bytes(file_of(tensors, [product, Operator("SEGMENT_SUM", (2,), 3)]))
    with pytest.raises(
        OptionError, match=r"SEGMENT_SUM(.|\n)*quantize an \.onnx file of the model"
    ):
        tinyai.quantize_file(file, [{"t0": np.ones((2, 3, 5), np.float32)}])


# --- Sparse constants ----------------------------------------------------------------------------


def vector(numbers: Sequence[int], bits: int) -> tuple[int, Any]:
    """The type and table of a vector of numbers, of 8, 16 or 32 bits."""
    kind, dtype = {
        8: (schema.Uint8VectorT, np.uint8),
        16: (schema.Uint16VectorT, np.uint16),
        32: (schema.Int32VectorT, np.int32),
    }[bits]
    made = kind()
    made.values = np.array(numbers, dtype)
    return getattr(schema.SparseIndexVector, kind.__name__.removesuffix("T")), made


def sparse(dense: Array, blocks: dict[int, int], bits: int) -> Tensor:
    """A matrix whose last level before the blocks is compressed; ``blocks`` are their sizes, by
    dimension."""
    rows, columns = (size // blocks.get(axis, 1) for axis, size in enumerate(dense.shape))
    high, wide = blocks.get(0, 1), blocks.get(1, 1)
    parts = dense.reshape(rows, high, columns, wide).transpose(0, 2, 1, 3)
    used = parts.any(axis=(2, 3))
    levels = []
    for size in (rows, None, *blocks.values()):
        level = schema.DimensionMetadataT()
        level.format, level.denseSize = schema.DimensionType.DENSE, size or 0
        if size is None:
            level.format = schema.DimensionType.SPARSE_CSR
            segments = [0, *itertools.accumulate(used.sum(axis=1).tolist())]
            level.arraySegmentsType, level.arraySegments = vector(segments, bits)
            level.arrayIndicesType, level.arrayIndices = vector(used.nonzero()[1].tolist(), bits)
        levels.append(level)
    made = schema.SparsityParametersT()
    made.traversalOrder = np.arange(len(levels), dtype=np.int32)
    made.blockMap = np.array([*blocks], np.int32) if blocks else None
    made.dimMetadata = levels
    return Tensor(dense.shape, parts[used].astype(np.float32), made)


def sparse_file(blocks: dict[int, int], bits: int) -> tuple[bytes, Array]:
    rng = np.random.default_rng(2)
    kept = rng.random((8, 12)) < 0.2
    dense = np.where(kept, rng.normal(size=(8, 12)), 0).astype(np.float32)
    tensors = [Tensor((8, 12)), sparse(dense, blocks, bits), Tensor((8, 12)), Tensor((8, 12))]
    add = Operator("ADD", (0, 2), 3, schema.AddOptionsT())
    return file_of(tensors, [Operator("DENSIFY", (1,), 2), add]), dense


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("blocks", [{}, {1: 4}, {0: 2}, {0: 4, 1: 2}])
def test_sparse_constants_are_litert_s(blocks: dict[int, int], bits: int, tmp_path: Path) -> None:
    content, dense = sparse_file(blocks, bits)
    result = require_near(content, tmp_path)
    x = np.random.default_rng(0).uniform(-3, 3, (8, 12)).astype(np.float32)
    np.testing.assert_array_equal(result, x + dense)


def test_bytes_of_sparsity_that_are_wrong_are_damage(tmp_path: Path) -> None:
    """Each byte of the file that tells where values are, one at a time."""
    content, _ = sparse_file({0: 4, 1: 2}, 8)
    rng, file, told = np.random.default_rng(3), tmp_path / "net.tflite", 0
    root = tflite.Model.GetRootAs(content, 0)
    table = root.Subgraphs(0).Tensors(1).Sparsity()._tab
    for at in range(max(0, table.Pos - 200), min(len(content), table.Pos + 200)):
        changed = bytearray(content)
        changed[at] = int(rng.integers(0, 256))
        file.write_bytes(changed)
        try:
            read_file(file)
        except ModelError:
            told += 1
    assert told > 20


def test_a_dense_level_that_is_larger_than_the_tensor_is_refused() -> None:
    content, _ = sparse_file({}, 8)
    sparsity = tflite.Model.GetRootAs(content, 0).Subgraphs(0).Tensors(1).Sparsity()
    with pytest.raises(Fault, match="a dense level of 8"):
        densified(sparsity, np.zeros(3, np.float32), (2, 2), "w")


def test_a_sparse_tensor_of_more_than_a_memory_is_refused() -> None:
    content, _ = sparse_file({}, 8)
    sparsity = tflite.Model.GetRootAs(content, 0).Subgraphs(0).Tensors(1).Sparsity()
    with pytest.raises(Fault, match="536870912 sparse elements"):
        densified(sparsity, np.zeros(3, np.float32), (2**14, 2**15), "w")


def test_what_is_computed_of_constants_is_a_constant(tmp_path: Path) -> None:
    """As the first step of a recurrent layer, whose state begins with zeros: two products, of which
    one knows its operand."""
    rng = np.random.default_rng(2)
    weights, others, state = (
        rng.normal(size=shape).astype(np.float32) for shape in ((8, 4), (8, 6), (1, 6))
    )
    tensors = [
        Tensor((1, 4)),
        *(Tensor(each.shape, each) for each in (weights, others, state)),
        *(Tensor((1, 8)) for _ in range(3)),
    ]
    dense = schema.FullyConnectedOptionsT
    operators = [
        Operator("FULLY_CONNECTED", (0, 1, -1), 4, dense()),
        Operator("FULLY_CONNECTED", (3, 2, -1), 5, dense()),
        Operator("ADD", (4, 5), 6, schema.AddOptionsT()),
    ]
    file = tmp_path / "float.tflite"
    file.write_bytes(file_of(tensors, operators))
    samples = [{"t0": rng.normal(size=(1, 4)).astype(np.float32)} for _ in range(12)]
    quantized = tinyai.quantize_file(file, samples)
    assert not quantized.report.left
    found = tinyai.Model(tinyai.compile(quantized.model, tmp_path / "net.so"))
    x = samples[0]["t0"]
    wanted = x @ weights.T + state @ others.T
    np.testing.assert_allclose(found(x)[0], wanted, atol=0.03 * np.abs(wanted).max())
