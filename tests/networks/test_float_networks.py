"""Float networks that ``tinyai.quantize`` quantizes: one region each, equal to TVM bit for bit, and
as near to the floats as what other quantizers make of them."""

from __future__ import annotations

import functools
import logging
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnxruntime import quantization
from tvm import relay

import tinyai
from benchmarks import onnx_networks
from benchmarks.onnx_networks import INPUT, MOBILENET_V1, MOBILENET_V2
from tests.support.oracle import oracle, runner
from tests.support.paths import MODELS
from tests.support.prequantized import LiteRT
from tinyai.frontends.relay import regions
from tinyai.frontends.relay.floats import Model
from tinyai.frontends.relay.quantize import Quantized
from tinyai.qdq.operands import Grid
from tinyai.quantizer import QuantConfig
from tinyai.quantizer.params import Array
from tinyai.quantizer.points import Points
from tinyai.quantizer.write import Written

# --- Networks of seeded weights, with batch norm ----------------------------------------------

NORM: dict[str, tuple[Callable[..., onnx.ModelProto], dict[str, Any]]] = {
    "mobilenet_v1": (
        onnx_networks.mobilenet_v1,
        {"size": 32, "width": 0.25, "blocks": MOBILENET_V1[:4]},
    ),
    "mobilenet_v2": (
        onnx_networks.mobilenet_v2,
        {"size": 32, "width": 0.25, "stages": MOBILENET_V2[:3]},
    ),
    "resnet18": (onnx_networks.resnet18, {"size": 32, "width": 0.125, "blocks": (2, 1)}),
    "resnet50": (onnx_networks.resnet50, {"size": 32, "width": 0.125, "blocks": (2, 1)}),
    "efficientnet_lite0": (
        onnx_networks.efficientnet_lite0,
        {"size": 32, "width": 0.25, "stages": onnx_networks.EFFICIENTNET_LITE0[2:3]},
    ),
    "squeezenet": (onnx_networks.squeezenet, {"size": 48, "width": 0.25, "fires": ((16,), (32,))}),
}


def imported(proto: onnx.ModelProto) -> tvm.IRModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        mod, params = relay.frontend.from_onnx(proto)
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    return mod


def network(name: str, *, small: bool = True) -> tvm.IRModule:
    if name == "unet":
        return imported(onnx_networks.unet(**({"size": 32, "width": 0.25} if small else {})))
    build, arguments = NORM[name]
    sizes = {**arguments, "classes": 10} if small else {}
    return imported(build(**sizes, norm=True))


def pieces(mod: tvm.IRModule) -> int:
    """Regions of a module of which nothing may stay on the host."""
    return len(regions(tinyai.partition_for_tinyai(mod, strict=True)))


def on_made_up_grids(mod: tvm.IRModule) -> tvm.IRModule:
    """The quantized module, without what takes long: nothing runs."""
    model = Model(mod, None)
    points = Points(model.root, QuantConfig(), model.fold)
    assert points.left == []
    grids = {point.grid: Grid("int8", 0.05 + 0.001 * point.grid, 3) for point in points.points}
    return model.written(Written(points, grids).result)


@pytest.mark.parametrize("name", [*NORM, "unet"])
def test_a_network_with_batch_norm_is_one_region(name: str) -> None:
    assert pieces(on_made_up_grids(network(name))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NORM, "unet"])
def test_a_network_of_full_size_is_one_region(name: str) -> None:
    assert pieces(on_made_up_grids(network(name, small=False))) == 1


@pytest.mark.parametrize("name", ["resnet18", pytest.param("mobilenet_v2", marks=pytest.mark.slow)])
def test_a_network_with_batch_norm_has_tvms_integers(name: str) -> None:
    mod = network(name)
    images = [{INPUT: image} for image in onnx_networks.images(32, 12)]
    found = tinyai.quantize(mod, None, images[:8], compared=2)
    assert pieces(found.module) == 1
    run, integers = runner(tinyai.build(found.module)), found.integers()
    for image in images[8:]:
        for ours, theirs in zip(run(image), oracle(integers, image), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert found.report.sqnr is not None
    assert found.report.sqnr > 20


# --- Trained networks, beside other quantizers ------------------------------------------------


def noisy(values: Array, deviation: float, count: int = 32) -> list[Array]:
    rng = np.random.default_rng(0)
    rows = (values[i % len(values)] for i in range(count))
    return [(row + deviation * rng.normal(size=row.shape)).astype("float32")[None] for row in rows]


def images(size: int, scale: float) -> list[Array]:
    """Coarse patches and fine noise."""
    rng = np.random.default_rng(0)
    patches = (rng.uniform(0, 1, (8, 8, 3)) for _ in range(32))
    wide = (each.repeat(size // 8, 0).repeat(size // 8, 1) for each in patches)
    noise = (each + 0.1 * rng.normal(size=each.shape) for each in wide)
    return [np.clip(scale * each, 0, scale).astype("float32")[None] for each in noise]


def recorded(key: str) -> Array:
    with np.load(MODELS / "sample_inputs.npz") as values:
        return np.asarray(values[key])


def words() -> Array:
    """With the input's scale and zero point in the int8 file."""
    return ((recorded("kws_int8").astype("float32") - 83) * 0.5847029).reshape(-1, 49, 10, 1)


@dataclass(frozen=True)
class Trained:
    floats: str
    int8: str
    samples: Callable[[], list[Array]]


TRAINED = {
    "kws": Trained("kws_ref_model_float32.onnx", "kws_ref_model.tflite", lambda: noisy(words(), 5)),
    "ad": Trained(
        "ad01_fp32.onnx", "ad01_int8.tflite", lambda: noisy(recorded("ad_float"), 0.5, 64)
    ),
    "ic": Trained(
        "pretrainedResnet.onnx", "pretrainedResnet_quant.tflite", lambda: images(32, 255)
    ),
    "vww": Trained("vww_96_float.onnx", "vww_96_int8.tflite", lambda: images(96, 1)),
}
SOME = [
    pytest.param(name, marks=pytest.mark.slow if name in ("ic", "vww") else ()) for name in TRAINED
]


@functools.lru_cache
def quantized(name: str) -> Quantized:
    if not MODELS.is_dir():
        pytest.skip("no folder of models beside the project")
    samples = TRAINED[name].samples()
    calibration = [{"input_1": sample} for sample in samples[: len(samples) // 2]]
    return tinyai.quantize(MODELS / TRAINED[name].floats, None, calibration, compared=2)


def unseen(name: str) -> list[Array]:
    samples = TRAINED[name].samples()
    return samples[len(samples) // 2 :]


@pytest.mark.parametrize("name", SOME)
def test_a_trained_float_network_is_one_region_with_tvms_integers(name: str) -> None:
    found = quantized(name)
    assert found.report.left == ()
    assert pieces(found.module) == 1
    run, integers = runner(tinyai.build(found.module)), found.integers()
    for sample in unseen(name)[:4]:
        inputs = {"input_1": sample}
        for ours, theirs in zip(run(inputs), oracle(integers, inputs), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def sqnr(signal: list[Array], values: list[Array]) -> float:
    wide = np.concatenate([each.reshape(-1) for each in signal]).astype(np.float64)
    other = np.concatenate([each.reshape(-1) for each in values])
    return float(10 * np.log10((wide**2).sum() / ((wide - other) ** 2).sum()))


class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, samples: list[Array]) -> None:
        self.feeds = iter([{"input_1": sample} for sample in samples])

    def get_next(self) -> dict[str, Array] | None:
        return next(self.feeds, None)


def by_onnx_runtime(file: Path, calibration: list[Array], samples: list[Array]) -> list[Array]:
    """Of its own quantizer, per channel in QDQ form, with int8 kernels."""
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory() as folder:
            whole, made = Path(folder) / "whole.onnx", Path(folder) / "made.onnx"
            quantization.quant_pre_process(str(file), str(whole), skip_symbolic_shape=True)
            int8 = quantization.QuantType.QInt8
            quantization.quantize_static(
                str(whole),
                str(made),
                Reader(calibration),
                quant_format=quantization.QuantFormat.QDQ,
                activation_type=int8,
                weight_type=int8,
                per_channel=True,
            )
            options = onnxruntime.SessionOptions()
            options.add_session_config_entry("session.qdqisint8allowed", "1")
            session = onnxruntime.InferenceSession(str(made), options)
    finally:
        logging.disable(logging.NOTSET)
    return [session.run(None, {"input_1": each})[0] for each in samples]


def by_tflite(file: Path, samples: list[Array]) -> list[Array]:
    """The int8 file that comes with the network, on LiteRT's reference kernels."""
    run = LiteRT(file.read_bytes())
    (given,), (result,) = (
        run._interpreter.get_input_details(),
        run._interpreter.get_output_details(),
    )
    (scale, zero), (out_scale, out_zero) = given["quantization"], result["quantization"]
    outputs = []
    for sample in samples:
        steps = np.clip(np.rint(sample / scale) + zero, -128, 127).astype(np.int8)
        (value,) = run(steps.reshape(given["shape"]))
        outputs.append((value.astype(np.float64) - out_zero) * out_scale)
    return outputs


# What the default observer does not reach yet: 28.25 dB on vww, where ONNX Runtime has 30.72.
SHORT = pytest.mark.xfail(strict=True, reason="the observer mse cuts what minmax keeps of vww")


@pytest.mark.parametrize(
    "name",
    [
        *(each for each in SOME if each.values != ("vww",)),
        pytest.param("vww", marks=[pytest.mark.slow, SHORT]),
    ],
)
def test_the_noise_is_no_more_than_that_of_other_quantizers(name: str) -> None:
    found, trained, samples = quantized(name), TRAINED[name], unseen(name)
    floats = onnxruntime.InferenceSession(str(MODELS / trained.floats))
    signal = [floats.run(None, {"input_1": each})[0] for each in samples]
    run = runner(tinyai.build(found.module))
    ours = sqnr(signal, [run({"input_1": each})[0] for each in samples])
    all_samples = trained.samples()
    calibration = all_samples[: len(all_samples) // 2]
    assert ours > sqnr(signal, by_onnx_runtime(MODELS / trained.floats, calibration, samples)) - 0.5
    assert ours > sqnr(signal, by_tflite(MODELS / trained.int8, samples)) - 0.5
