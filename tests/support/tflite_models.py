"""TFLite files of one int8 operator, built by hand, to compare with LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support.oracle import Array


@dataclass(frozen=True)
class Tensor:
    """An int8 tensor: a shape, and its quantization. With ``data``, int8 or int32, a constant."""

    shape: tuple[int, ...]
    scale: float
    zero_point: int = 0
    data: Array | None = None


def one_operator(
    kind: str,
    inputs: Sequence[Tensor],
    output: Tensor,
    options: Any = None,
    indices: Sequence[int] = (),
) -> bytes:
    """A file of the builtin operator ``kind`` (a name of ``schema.BuiltinOperator``).

    ``indices`` become one more input, a constant of int32; ``options`` is the table of the
    operator's options (a ``...OptionsT`` of the schema).
    """
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.buffers = 3, [schema.BufferT()]
    names = [f"x{number}" for number in range(len(inputs))]
    tensors = [_quantized(*pair) for pair in zip(names, inputs, strict=True)]
    for tensor, of in zip(tensors, inputs, strict=True):
        if of.data is not None:
            tensor.type = getattr(schema.TensorType, of.data.dtype.name.upper())
            tensor.buffer = len(model.buffers)
            model.buffers.append(schema.BufferT())
            model.buffers[-1].data = np.frombuffer(of.data.tobytes(), np.uint8)
    if indices:
        constant = schema.TensorT()
        constant.shape, constant.type, constant.name = [len(indices)], schema.TensorType.INT32, "i"
        constant.buffer = len(model.buffers)
        model.buffers.append(schema.BufferT())
        model.buffers[-1].data = np.frombuffer(np.array(indices, np.int32).tobytes(), np.uint8)
        tensors.append(constant)
    tensors.append(_quantized("y", output))
    node, code = schema.OperatorT(), schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, kind)
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)
    node.inputs, node.outputs = list(range(len(tensors) - 1)), [len(tensors) - 1]
    if options is not None:
        name = type(options).__name__.removesuffix("T")
        node.builtinOptionsType = getattr(schema.BuiltinOptions, name)
        node.builtinOptions = options
    graph.tensors, graph.operators = tensors, [node]
    graph.inputs = [i for i, of in enumerate(inputs) if of.data is None]
    graph.outputs = node.outputs
    model.operatorCodes, model.subgraphs = [code], [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _quantized(name: str, of: Tensor) -> schema.TensorT:
    tensor, quantization = schema.TensorT(), schema.QuantizationParametersT()
    quantization.scale = np.array([of.scale], np.float32)
    quantization.zeroPoint = np.array([of.zero_point], np.int64)
    tensor.shape, tensor.type, tensor.name = list(of.shape), schema.TensorType.INT8, name
    tensor.quantization = quantization
    return tensor


def every_value(shape: tuple[int, ...] = (1, 16, 16, 1)) -> Array:
    """All int8 in a tensor of 256 elements."""
    return np.arange(-128, 128).astype(np.int8).reshape(shape)
