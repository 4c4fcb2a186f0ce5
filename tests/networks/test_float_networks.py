"""Float networks that ``tinyai.quantize`` quantizes: one region each, equal to TVM bit for bit, and
as near to the floats as what other quantizers make of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import tvm

import tinyai
from benchmarks import onnx_networks
from benchmarks.float_networks import NETWORKS, TRAINED, sqnr
from benchmarks.onnx_networks import INPUT, MOBILENET_V1, MOBILENET_V2
from benchmarks.quantizer import by_onnx_runtime, by_tflite, floats, module_of
from tests.support.oracle import oracle, runner
from tests.support.paths import MODELS
from tinyai.frontends.relay import regions
from tinyai.frontends.relay.float_model import RelayModel
from tinyai.frontends.relay.quantize import Quantized
from tinyai.qdq.operands import Grid
from tinyai.quantizer import QuantConfig
from tinyai.quantizer.calibrate import points_of
from tinyai.quantizer.data import Sample
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


def network(name: str, *, small: bool = True) -> tvm.IRModule:
    if name == "unet":
        return module_of(onnx_networks.unet(**({"size": 32, "width": 0.25} if small else {})))
    build, arguments = NORM[name]
    sizes = {**arguments, "classes": 10} if small else {}
    return module_of(build(**sizes, norm=True))


def pieces(mod: tvm.IRModule) -> int:
    """Regions of a module of which nothing may stay on the host."""
    return len(regions(tinyai.partition_for_tinyai(mod, strict=True)))


def on_made_up_grids(mod: tvm.IRModule) -> tvm.IRModule:
    """The quantized module, without what takes long: nothing runs."""
    model = RelayModel(mod, None)
    points = points_of(model, QuantConfig())
    assert points.left == []
    grids = {point.grid: Grid("int8", 0.05 + 0.001 * point.grid, 3) for point in points.points}
    return model.written(Written(points, grids).result)


@pytest.mark.long
@pytest.mark.parametrize("name", [*NORM, "unet"])
def test_a_network_with_batch_norm_is_one_region(name: str) -> None:
    assert pieces(on_made_up_grids(network(name))) == 1


def check_integers(found: Quantized, samples: Sequence[Sample]) -> None:
    """One region, and TVM's integers."""
    assert pieces(found.module) == 1
    run, integers = runner(tinyai.build(found.module)), found.integers()
    for sample in samples:
        for ours, theirs in zip(run(sample), oracle(integers, sample), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.long
@pytest.mark.parametrize("name", ["resnet18", pytest.param("mobilenet_v2", marks=pytest.mark.slow)])
def test_a_network_with_batch_norm_has_tvms_integers(name: str) -> None:
    images = [{INPUT: image} for image in onnx_networks.images(32, 12)]
    found = tinyai.quantize(network(name), None, images[:8], compared=2)
    check_integers(found, images[8:])
    assert found.report.sqnr is not None
    assert found.report.sqnr > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NORM, "unet"])
def test_a_network_of_full_size_is_one_region_with_tvms_integers(name: str) -> None:
    size = 128 if name == "unet" else 224
    images = [{INPUT: image} for image in onnx_networks.images(size, 6)]
    found = tinyai.quantize(network(name, small=False), None, images[:4], compared=2)
    check_integers(found, images[4:])
    assert found.report.left == ()


# --- Trained networks, beside other quantizers ------------------------------------------------

SOME = [
    pytest.param(name, marks=pytest.mark.slow if name in ("ResNet8", "vww") else ())
    for name in TRAINED
]


@functools.lru_cache
def quantized(name: str) -> Quantized:
    if not MODELS.is_dir():
        pytest.skip("no folder of models beside the project")
    network = NETWORKS[name]
    return tinyai.quantize(module_of(network.model), None, network.calibration, compared=2)


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_a_trained_float_network_is_one_region_with_tvms_integers(name: str) -> None:
    found = quantized(name)
    assert found.report.left == ()
    check_integers(found, NETWORKS[name].unseen[:4])


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_the_noise_is_no_more_than_that_of_other_quantizers(name: str) -> None:
    found, network = quantized(name), NETWORKS[name]
    signal, run = [each[0] for each in floats(network)], runner(tinyai.build(found.module))
    ours = sqnr(signal, [run(each)[0] for each in network.unseen])
    assert ours > sqnr(signal, [each[0] for each in by_onnx_runtime(network)])
    assert network.int8 is not None
    given = by_tflite(network.int8.read_bytes(), network)
    assert ours > sqnr(signal, [each[0] for each in given])
