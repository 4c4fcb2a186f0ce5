"""Float networks and samples on which quantizers are compared.

Four are those of MLPerf Tiny, in a folder beside the project; the others are the ONNX builder's, of
seeded weights, with batch norm, at 96 by 96 pixels. Samples are seeded: the first ``CALIBRATED``
are for calibration, the others are not seen before the comparison.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnxruntime import quantization

from benchmarks import onnx_networks
from benchmarks.bench_networks import MODELS

Array = npt.NDArray[Any]
CALIBRATED, UNSEEN = 32, 64
# Of trained networks: with 64 samples, kws moves by a decibel where the last bit of a value does.
UNSEEN_BY_TRAINED = 512
SIZE = 96


@dataclass(frozen=True)
class FloatNetwork:
    """``proto`` makes the model, ``make`` so many samples for its one input. ``int8`` is the
    TFLite file that comes with it, if one does; such networks are trained. tinyai reads ``file`` in
    place of the model, if there is one; ``tflite`` is the same network for LiteRT's quantizer."""

    name: str
    proto: Callable[[], onnx.ModelProto]
    make: Callable[[int], list[Array]]
    int8: Path | None = None
    file: Path | None = None
    tflite: Path | None = None

    @functools.cached_property
    def model(self) -> onnx.ModelProto:
        return self.proto()

    @property
    def input(self) -> str:
        return str(self.model.graph.input[0].name)

    @functools.cached_property
    def samples(self) -> list[Array]:
        return self.make(CALIBRATED + (UNSEEN_BY_TRAINED if self.int8 else UNSEEN))

    @property
    def calibration(self) -> list[dict[str, Array]]:
        return [{self.input: each} for each in self.samples[:CALIBRATED]]

    @property
    def unseen(self) -> list[dict[str, Array]]:
        return [{self.input: each} for each in self.samples[CALIBRATED:]]


# --- Samples ------------------------------------------------------------------------------------


def noisy(values: Array, deviation: float, count: int) -> list[Array]:
    """Rows of ``values`` in turn, with normal noise."""
    rng = np.random.default_rng(0)
    rows = (values[i % len(values)] for i in range(count))
    return [(row + deviation * rng.normal(size=row.shape)).astype("float32")[None] for row in rows]


def images(size: int, scale: float, count: int) -> list[Array]:
    """Coarse patches and fine noise, from 0 to ``scale``."""
    rng = np.random.default_rng(0)
    patches = [rng.uniform(0, 1, (8, 8, 3)) for _ in range(count)]
    wide = (each.repeat(size // 8, 0).repeat(size // 8, 1) for each in patches)
    noise = (each + 0.1 * rng.normal(size=each.shape) for each in wide)
    return [np.clip(scale * each, 0, scale).astype("float32")[None] for each in noise]


def recorded(key: str) -> Array:
    with np.load(MODELS / "sample_inputs.npz") as values:
        return np.asarray(values[key])


def words(count: int) -> list[Array]:
    """With the input's scale and zero point in the int8 file."""
    values = (recorded("kws_int8").astype("float32") - 83) * 0.5847029
    return noisy(values.reshape(-1, 49, 10, 1), 5, count)


def anomalies(count: int) -> list[Array]:
    return noisy(recorded("ad_float"), 0.5, count)


# --- Networks -----------------------------------------------------------------------------------


def _trained(name: str, floats: str, int8: str, make: Callable[[int], list[Array]]) -> FloatNetwork:
    file = MODELS / floats
    tflite = file.with_suffix(".tflite")
    return FloatNetwork(name, lambda: onnx.load(file), make, MODELS / int8, tflite=tflite)


def _built(build: Callable[..., onnx.ModelProto]) -> FloatNetwork:
    def make(count: int) -> list[Array]:
        return list(onnx_networks.images(SIZE, count))

    return FloatNetwork(build.__name__, lambda: build(size=SIZE, norm=True), make)


NETWORKS = {
    each.name: each
    for each in (
        _trained("kws", "kws_ref_model_float32.onnx", "kws_ref_model.tflite", words),
        _trained("ad01", "ad01_fp32.onnx", "ad01_int8.tflite", anomalies),
        _trained(
            "ResNet8",
            "pretrainedResnet.onnx",
            "pretrainedResnet_quant.tflite",
            lambda count: images(32, 255, count),
        ),
        _trained(
            "vww", "vww_96_float.onnx", "vww_96_int8.tflite", lambda count: images(96, 1, count)
        ),
        _built(onnx_networks.mobilenet_v1),
        _built(onnx_networks.mobilenet_v2),
        _built(onnx_networks.resnet18),
        _built(onnx_networks.squeezenet),
    )
}
TRAINED = tuple(name for name, network in NETWORKS.items() if network.int8 is not None)


# --- How near to the floats -------------------------------------------------------------------


def sqnr(signal: Sequence[Array], values: Sequence[Array]) -> float:
    """Signal to quantization noise in dB, over all samples."""
    wide, other = (
        np.concatenate([each.reshape(-1).astype(np.float64) for each in some])
        for some in (signal, values)
    )
    return float(10 * np.log10((wide**2).sum() / ((wide - other) ** 2).sum()))


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """As ONNX Runtime wants a model that it shall quantize: with batch norm folded, and shapes."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.onnx", Path(folder) / "made.onnx"
        onnx.save(model, given)
        quantization.quant_pre_process(str(given), str(made), skip_symbolic_shape=True)
        return onnx.load(made)
