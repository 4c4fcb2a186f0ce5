"""Constants of layers that became integers, as a file with pairs has them."""

from __future__ import annotations

import numpy as np

from tinyai.frontends.onnx.new_nodes import NewNodes
from tinyai.frontends.onnx.sums import Sums
from tinyai.ir import Array
from tinyai.qdq.operands import is_call
from tinyai.quantizer.folding import output_channels
from tinyai.source import Call, Constant


def dequantized(
    new: NewNodes,
    name: str,
    call: Call,
    *,
    is_turned: bool = False,
    shape: tuple[int, ...] | None = None,
) -> str:
    """The result of a DequantizeLinear of constants, which is put in front."""
    steps, scale, zero = (arg.value for arg in call.args if isinstance(arg, Constant))
    axis, values = int(call.attrs["axis"]) % max(steps.ndim, 1), turned(steps, is_turned)
    along = scale.size > 1
    if is_turned and axis >= values.ndim - 2:  # one of the two that change places
        axis = 2 * values.ndim - 3 - axis
    values = values if shape is None else values.reshape(shape)
    return new.dequantized(name, values, scale, zero.astype(steps.dtype), axis if along else None)


def bias_of(new: NewNodes, name: str, sums: Sums) -> str:
    """In the steps of the sums; a bias of floats beside floats."""
    assert sums.bias is not None
    weight, input_scale = sums.product["weight"], sums.input_scale
    channels = sums.product.type.shape[output_channels(sums.product)]
    bias = np.broadcast_to(sums.bias, (int(channels or 0),))
    if input_scale is None or not is_call(weight, "dequantize"):
        return new.number(name, bias, "float32")
    scales = weight["input_scale"]
    assert isinstance(scales, Constant)
    exact = float(np.float32(input_scale)) * scales.value.astype(np.float64)
    limits = np.iinfo(np.int32)
    steps = np.clip(np.rint(bias.astype(np.float64) / exact), limits.min, limits.max)
    scale = exact.astype(np.float32)
    zero = np.zeros(scale.shape, np.int32)
    axis = 0 if scale.size > 1 else None
    return new.dequantized(name, steps.astype(np.int32), scale, zero, axis)


def turned(values: Array, is_turned: bool) -> Array:
    """The last two dimensions in the other order, where a file has them so."""
    return np.ascontiguousarray(values.swapaxes(-1, -2)) if is_turned else values
