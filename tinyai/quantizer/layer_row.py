"""What became of one quantized value: a row of the report, a line of its plots."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerRow:
    """A quantized value: the layer's name in the source model and its operator.

    ``sqnr`` is the ratio of signal to quantization noise in dB, the noise of the layers before
    included; None where there is none. ``low`` and ``high`` are the least and the largest float
    that were seen; ``used`` is the share of the grid's range between them, ``saturated`` that of
    values outside of the grid. ``alone`` is the SQNR of the worst result where this layer alone is
    quantized, infinite where that makes no noise, None where nobody asked.
    """

    name: str
    operator: str
    type: str
    dtype: str
    scale: float
    zero_point: int
    low: float
    high: float
    used: float
    saturated: float
    sqnr: float | None
    alone: float | None = None
