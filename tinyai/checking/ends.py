"""Code whose inputs and outputs are integers where its model has floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tinyai.checking.opponents import Sample
from tinyai.ir import Array
from tinyai.network import Network, Port


@dataclass(frozen=True)
class EndsOfCode:
    """``model`` has the ends of the source model, ``code`` those of the code: the same, or integers
    in place of floats that are quantized first, or dequantized last."""

    model: Network
    code: Network

    def to_code(self, sample: Sample) -> Sample:
        """A sample of the model's as the code takes it."""
        ports = zip(sample, self.model.inputs, self.code.inputs, strict=True)
        return tuple(_steps(x, mine) if own.type != mine.type else x for x, own, mine in ports)

    def to_model(self, sample: Sample) -> Sample:
        """What the code takes as the model does: real numbers that are exactly such steps."""
        ports = zip(sample, self.model.inputs, self.code.inputs, strict=True)
        return tuple(_real(x, mine) if own.type != mine.type else x for x, own, mine in ports)

    def results(self, outputs: Sequence[Array]) -> list[Array]:
        """The code's outputs as the model has them."""
        ports = zip(outputs, self.model.outputs, self.code.outputs, strict=True)
        return [_real(x, mine) if own.type != mine.type else x for x, own, mine in ports]


def _scale(port: Port) -> tuple[np.float32, int]:
    assert port.quant is not None
    (scale,) = port.quant.scale
    return np.float32(scale), port.quant.zero_point


def _real(value: Array, port: Port) -> Array:
    scale, zero = _scale(port)
    return np.asarray((value.astype(np.int32) - zero).astype(np.float32) * scale)


def _steps(value: Array, port: Port) -> Array:
    scale, zero = _scale(port)
    low, high = port.type.dtype.range
    steps = np.clip(np.rint(value / scale) + zero, low, high)
    return np.asarray(steps.astype(port.type.dtype.numpy))
