"""How far integers of an ONNX file may be from its floats, by the table of ``stretches``."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tests.support.random_onnx import OnnxModel, run
from tests.support.stretches import FLOAT32, ONE, ROUNDINGS
from tinyai.ir import Array

_VOCABULARY = {
    "Add": "add",
    "Sub": "subtract",
    "QLinearAdd": "add",
    "Softmax": "softmax",
    "LogSoftmax": "softmax",
    "QLinearSoftmax": "softmax",
}
# Times that sums may be multiplied by, of which a bias was rounded.
_FACTORS = {"Mul", "Div", "Gemm", "BatchNormalization"}
LARGEST_FACTOR = 8


def bound(model: OnnxModel, mode: str) -> float:
    """Steps of the result. QOperators have no floats: their result is ONNX Runtime's, exactly under
    its own arithmetic, else it was rounded there as well."""
    if model.floats is None and mode == "onnx":
        return 0.0
    counts = Counter(_VOCABULARY.get(op, op) for op in (*model.operators, "quantize"))
    more = sum(row.steps.get(mode, 0.0) * counts[op] for row in ROUNDINGS for op in row.operators)
    factor = LARGEST_FACTOR if _FACTORS & set(model.operators) else 1
    more += 0.5 * factor * model.bias_step / model.scale
    return (1 if model.floats is not None else 2) * ONE + FLOAT32 + more


def steps_off(model: OnnxModel, result: Array) -> float:
    """From what ONNX Runtime makes of the floats, or of the QOperators."""
    if model.floats is None:
        (wanted,) = run(model.integers, model.inputs)
    else:
        (floats,) = run(model.floats, model.inputs)
        limits = np.iinfo(result.dtype)
        wanted = np.clip(floats.astype(float) / model.scale + model.zero, limits.min, limits.max)
    assert result.shape == wanted.shape
    return float(np.abs(result - wanted.astype(np.float64)).max())
