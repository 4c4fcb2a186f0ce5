"""torch's quantization for TVM's importer of exported programs, which does not know it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

# By the names of torch's operators: what ``from_exported_program(custom_convert_map=...)`` takes.
_NAMES = (
    "quantize_per_tensor",
    "quantize_per_channel",
    "dequantize_per_tensor",
    "dequantize_per_channel",
)


def torch_converters() -> dict[str, Callable[[Any, Any], Any]]:
    """What ``from_exported_program`` takes as ``custom_convert_map``: the operators that torch's
    PT2E quantization puts into a program."""
    return {f"{name}.default": _converter(name) for name in _NAMES}


def _converter(name: str) -> Callable[[Any, Any], Any]:
    def convert(node: Any, importer: Any) -> Any:
        given = dict(zip(_arguments(name), node.args, strict=False)) | dict(node.kwargs)
        emit = importer.block_builder.emit
        scale, zero_point = (_operand(given[n], importer, n) for n in ("scale", "zero_point"))
        axis = int(given.get("axis", -1))
        data = importer.env[given["input"]]
        if name.startswith("dequantize"):
            return emit(relax.op.dequantize(data, scale, zero_point, axis, "float32"))
        dtype, low, high = str(given["dtype"]).removeprefix("torch."), given["qmin"], given["qmax"]
        value = emit(relax.op.quantize(data, scale, zero_point, axis, dtype))
        limits = np.iinfo(dtype)
        if (low, high) == (limits.min, limits.max):
            return value
        return emit(relax.op.clip(value, int(low), int(high)))

    return convert


def _arguments(name: str) -> tuple[str, ...]:
    axis = ("axis",) * name.endswith("channel")
    return "input", "scale", "zero_point", *axis, "qmin", "qmax", "dtype"


def _operand(value: Any, importer: Any, name: str) -> Any:
    """A number, or a tensor of the program."""
    dtype = "float32" if name == "scale" else "int32"
    if isinstance(value, int | float):
        return relax.const(value, dtype)
    read = importer.env[value]
    if str(read.ty.dtype) == dtype:
        return read
    return importer.block_builder.emit(relax.op.astype(read, dtype))
