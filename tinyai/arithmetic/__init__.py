"""Whose integers are computed: a file a framework, each held against that framework bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tinyai.arithmetic.onnx import OnnxArithmetic
from tinyai.arithmetic.tflite import TfliteArithmetic
from tinyai.arithmetic.torch import TorchArithmetic
from tinyai.arithmetic.tvm import TvmArithmetic
from tinyai.builders import Arithmetic
from tinyai.source import Rounding

_OTHERS: Mapping[str, type[Arithmetic]] = MappingProxyType(
    {"tflite": TfliteArithmetic, "onnx": OnnxArithmetic, "torch": TorchArithmetic}
)


def arithmetic_of(rounding: Rounding) -> Arithmetic:
    """TVM's, under the rounding and the type that it computes in, where no other is named."""
    if rounding.mode in _OTHERS:
        return _OTHERS[rounding.mode]()
    return TvmArithmetic(rounding.ties, rounding.compute_dtype)
