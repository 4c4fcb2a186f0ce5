"""Small quantized ONNX models, written as onnxruntime.quantization writes them.

A model is its float nodes; ``quantized`` puts DequantizeLinear in front of every input and constant
and QuantizeLinear after every output, with ranges that it measures with ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tinyai.checking.onnxruntime import exact_session

Array = npt.NDArray[Any]
TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "float32": TensorProto.FLOAT}


@dataclass(frozen=True)
class Model:
    """Float nodes with their inputs' shapes, and constants: those in ``weights`` are quantized,
    along an axis or (None) as a whole; those in ``biases`` to int32 with the scale of the input and
    the weights that are named; those in ``plain`` stay."""

    nodes: tuple[NodeProto, ...]
    inputs: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...] = ("y",)
    weights: Mapping[str, tuple[Array, int | None]] = field(default_factory=dict)
    biases: Mapping[str, tuple[Array, str, str]] = field(default_factory=dict)
    plain: Mapping[str, Array] = field(default_factory=dict)
    same_scale: bool = False
    zero_lowest: bool = False


@dataclass(frozen=True)
class Scale:
    scale: Array
    zero_point: Array


def scale_of(values: Array, dtype: str, axis: int | None = None) -> Scale:
    """From the range of values: symmetric per channel for weights, else with a zero point."""
    limits = np.iinfo(dtype)
    if axis is not None:
        others = tuple(d for d in range(values.ndim) if d != axis)
        scale = np.maximum(np.abs(values).max(axis=others), 1e-3) / 127
        zero = np.zeros(len(scale)) + (128 if dtype == "uint8" else 0)
        return Scale(scale.astype(np.float32), zero.astype(dtype))
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.01)
    scale = np.float32((high - low) / 255)
    zero = np.clip(np.rint(limits.min - low / scale), limits.min, limits.max)
    return Scale(np.array(scale), np.array(zero).astype(dtype))


def steps(values: Array, scale: Scale, axis: int | None) -> Array:
    shape = [-1 if d == axis else 1 for d in range(values.ndim)] if axis is not None else []
    limits = np.iinfo(scale.zero_point.dtype)
    real = np.rint(values / scale.scale.reshape(shape)) + scale.zero_point.reshape(shape)
    return np.clip(real, limits.min, limits.max).astype(scale.zero_point.dtype)


def quantized(
    model: Model, dtype: str, *, weight_dtype: str = "int8", seed: int = 0
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model in QDQ form with integer inputs and outputs, and random inputs for it."""
    rng = np.random.default_rng(seed)
    graph = _Graph(model, dtype, weight_dtype)
    limits = np.iinfo(dtype)
    inputs = {
        name: rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
        for name, shape in model.inputs.items()
    }
    floats = run_onnx(graph.proto(None), inputs)
    return graph.proto(floats), inputs


class _Graph:
    def __init__(self, model: Model, dtype: str, weight_dtype: str) -> None:
        self.model, self.dtype = model, dtype
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = dict(model.plain)
        self.scales: dict[str, Scale] = {}
        for place, (name, shape) in enumerate(model.inputs.items()):
            place = 0 if model.same_scale else place
            values = np.linspace(-0.9 - 0.3 * place, 1.1 + 0.2 * place, num=int(np.prod(shape)))
            values = values.clip(0) if model.zero_lowest else values
            self.dequantize(name, scale_of(values, dtype))
        for name, (values, axis) in model.weights.items():
            scale = scale_of(values, weight_dtype, axis)
            self.constants[name] = steps(values, scale, axis)
            self.dequantize(name, scale, axis)
        for name, (values, data, weights) in model.biases.items():
            scale = (self.scales[data].scale * self.scales[weights].scale).astype(np.float32)
            zero = np.zeros(scale.shape, np.int32)
            self.constants[name] = np.rint(values / scale).astype(np.int32)
            self.dequantize(name, Scale(scale, zero), 0 if scale.ndim else None)

    def dequantize(self, name: str, scale: Scale, axis: int | None = None) -> None:
        self.scales[name] = scale
        self.constants[f"{name}_scale"] = scale.scale
        self.constants[f"{name}_zero"] = scale.zero_point
        attrs = {} if axis is None else {"axis": axis}
        self.nodes.append(
            helper.make_node(
                "DequantizeLinear",
                [name, f"{name}_scale", f"{name}_zero"],
                [f"{name}_float"],
                name=f"{name}_dequantize",
                **attrs,
            )
        )

    def proto(self, floats: list[Array] | None) -> onnx.ModelProto:
        """With the outputs as floats, or quantized for these ranges."""
        nodes, constants, outputs = list(self.nodes), dict(self.constants), []
        for node in self.model.nodes:
            copied = NodeProto()
            copied.CopyFrom(node)
            for place, name in enumerate(copied.input):
                copied.input[place] = f"{name}_float" if name in self.scales else name
            nodes.append(copied)
        for place, name in enumerate(self.model.outputs):
            if floats is None:
                outputs.append(_info(name, "float32", None))
                continue
            first = self.scales[next(iter(self.model.inputs))]
            same = self.model.same_scale
            scale = first if same else scale_of(floats[place] * 0.9, self.dtype)
            constants[f"{name}_scale"], constants[f"{name}_zero"] = scale.scale, scale.zero_point
            outputs.append(_info(f"{name}_steps", self.dtype, floats[place].shape))
            nodes.append(
                helper.make_node(
                    "QuantizeLinear",
                    [name, f"{name}_scale", f"{name}_zero"],
                    [f"{name}_steps"],
                    name=f"{name}_quantize",
                )
            )
        inputs = [_info(n, self.dtype, shape) for n, shape in self.model.inputs.items()]
        tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
        graph = helper.make_graph(nodes, "model", inputs, outputs, tensors)
        opsets = [helper.make_opsetid("", 15), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _info(name: str, dtype: str, shape: tuple[int, ...] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TYPES[dtype], shape)


def run_onnx(proto: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """Outputs of a model on ONNX Runtime's CPU."""
    session = exact_session(proto.SerializeToString(), keeps_int8=False)
    return list(session.run(None, dict(inputs)))
