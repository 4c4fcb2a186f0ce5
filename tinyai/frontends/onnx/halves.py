"""Float models of float16, bfloat16 or float64, as those of float32 that the quantizer knows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyai.errors import UsageWarning
from tinyai.frontends.onnx.functions import graphs_of, nodes_of
from tinyai.ir import Array

# Attributes that name a type of elements.
_TYPES = ("to", "dtype")
# How the names of operators of scaled integers begin.
_OF_INTEGERS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinear")


def in_float32(model: Any) -> UsageWarning | None:
    """Make float32 of a model's values of other floats, and say so; None where it has none, or has
    integers, which are scaled in the floats that the file says. Its data are loaded."""
    import onnx

    kinds = onnx.TensorProto
    others = {kinds.FLOAT16: "float16", kinds.BFLOAT16: "bfloat16", kinds.DOUBLE: "float64"}
    if any(node.op_type.startswith(_OF_INTEGERS) for node in nodes_of(model.graph)):
        return None
    found = set()
    for graph in graphs_of(model.graph):
        attributes = [attribute for node in graph.node for attribute in node.attribute]
        tensors = [each.t for each in attributes if each.HasField("t")]
        tensors += [tensor for each in attributes for tensor in each.tensors]
        for value in (*graph.input, *graph.output, *graph.value_info):
            of = value.type.tensor_type
            if of.elem_type in others:
                found.add(of.elem_type)
                of.elem_type = kinds.FLOAT
        for tensor in (*graph.initializer, *tensors):
            if tensor.data_type in others:
                found.add(tensor.data_type)
                wide = onnx.numpy_helper.from_array(_numbers(tensor), tensor.name)
                tensor.CopyFrom(wide)
        for attribute in attributes:
            if attribute.name in _TYPES and attribute.i in others:
                attribute.i = kinds.FLOAT
    if not found:
        return None
    return UsageWarning(
        "floats of the model",
        found=", ".join(sorted(others[kind] for kind in found)),
        allowed="float32, as which they are computed",
        hint="the inputs and outputs of what is made of it are float32",
    )


def _numbers(tensor: Any) -> Array:
    """As float32. Of bfloat16, the upper half of its bits, numpy has but the bits."""
    import onnx

    values = np.asarray(onnx.numpy_helper.to_array(tensor))
    if tensor.data_type == onnx.TensorProto.BFLOAT16:
        bits = values.view(np.uint16).astype(np.uint32) << 16
        return np.asarray(bits.view(np.float32))
    return values.astype(np.float32)
