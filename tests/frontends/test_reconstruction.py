"""Weights and biases by what layers compute on samples: ``rounding`` and ``correct_bias``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

import tinyai
from benchmarks.float_networks import sqnr
from tests.support.oracle import oracle, runner
from tinyai import QuantConfig
from tinyai.frontends.relay.float_model import RelayModel
from tinyai.quantizer.calibrate import points_of
from tinyai.quantizer.data import CalibrationError
from tinyai.quantizer.float_runner import Observed
from tinyai.quantizer.layers import PLACES, layers
from tinyai.quantizer.params import Array


def drawn(*shape: int) -> Any:
    """The same for a shape, whatever was drawn before."""
    return relay.const(np.random.default_rng(shape).normal(size=shape).astype("float32"))


def one(body: relay.Expr) -> tvm.IRModule:
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))


CONVOLUTIONS = {
    "NCHW": ((1, 3, 9, 8), (4, 3, 3, 2), {"padding": (1, 0, 2, 1), "strides": (2, 1)}),
    "groups": ((1, 4, 6, 6), (6, 2, 3, 3), {"groups": 2, "dilation": (2, 1)}),
    "depthwise NHWC": (
        (1, 7, 7, 5),
        (3, 3, 5, 1),
        {"groups": 5, "data_layout": "NHWC", "kernel_layout": "HWOI", "padding": (1, 1)},
    ),
    "NHWC": ((1, 5, 5, 3), (2, 2, 3, 4), {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
}


@pytest.mark.parametrize("name", [*CONVOLUTIONS, "dense"])
def test_a_layer_is_a_product_of_its_rows_and_its_matrix(name: str) -> None:
    if name == "dense":
        mod, shape = one(relay.nn.dense(relay.var("x", shape=(2, 7)), drawn(3, 7))), (2, 7)
        channels = 1
    else:
        shape, kernel, attributes = CONVOLUTIONS[name]
        layout = attributes.get("data_layout", "NCHW")
        channels = layout.index("C")
        kind = attributes.get("kernel_layout", "OIHW")
        size = tuple(kernel[kind.index(axis)] for axis in "HW")
        data = relay.var("x", shape=shape)
        attributes = {**attributes, "kernel_size": size, "channels": kernel[kind.index("O")]}
        mod = one(relay.nn.conv2d(data, drawn(*kernel), **attributes))
    model = RelayModel(mod, None)
    points = points_of(model, QuantConfig())
    (layer,) = layers(points)
    np.testing.assert_array_equal(layer.unmatrix(layer.matrix(layer.weights)), layer.weights)
    values = np.random.default_rng(0).normal(size=shape).astype("float32")
    (result,) = Observed.of(model, points).runner.run({"x": values})
    rows: Array = layer.rows(values) @ layer.matrix(layer.weights).transpose(0, 2, 1)
    ours = np.concatenate([*rows], axis=-1)  # [places, channels]
    wanted = np.moveaxis(result, channels, -1).reshape(ours.shape)
    np.testing.assert_allclose(ours, wanted, atol=1e-4)


def test_of_a_large_image_some_places_are_looked_at() -> None:
    data = relay.var("x", shape=(1, 1, 64, 64))
    model = RelayModel(one(relay.nn.conv2d(data, drawn(2, 1, 1, 1))), None)
    (layer,) = layers(points_of(model, QuantConfig()))
    values = np.arange(64 * 64.0).reshape(1, 1, 64, 64)
    found = layer.rows(values).reshape(-1)
    assert PLACES / 2 < len(found) <= PLACES
    assert len({*np.diff(found)}) == 1


def network() -> tvm.IRModule:
    """Two layers without and with a bias on images that are far from 0 on average."""
    data = relay.var("x", shape=(1, 8, 6, 6))
    first = relay.nn.relu(relay.nn.conv2d(data, drawn(16, 8, 3, 3), channels=16))
    second = relay.nn.conv2d(first, drawn(12, 16, 1, 1))
    pooled = relay.nn.global_avg_pool2d(relay.nn.bias_add(second, drawn(12)))
    return one(relay.nn.batch_flatten(pooled))


def samples(count: int, seed: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    shared = rng.uniform(0, 2, (count, 1, 6, 6))
    images = shared + rng.uniform(0, 0.5, (count, 8, 6, 6))
    return [{"x": image[None].astype("float32")} for image in images]


# What looks at samples, switched off: tests switch on what they are about.
ALONE: Any = {"rounding": "nearest", "correct_bias": False, "equalize_activations": False}


def noise_of(config: QuantConfig) -> float:
    mod, unseen = network(), samples(16, 2)
    floats = runner(relay.build(mod, target="llvm"))
    found = tinyai.quantize(mod, None, samples(8, 1), config, compared=1)
    run = runner(tinyai.build(found.module))
    results = [run(each)[0] for each in unseen]
    if config.correct_bias:
        np.testing.assert_array_equal(results[0], oracle(found.integers(), unseen[0])[0])
    return sqnr([floats(each)[0] for each in unseen], results)


@pytest.mark.long
@pytest.mark.parametrize("per_channel", [True, False])
def test_rounding_and_biases_by_samples_bring_integers_nearer_to_floats(per_channel: bool) -> None:
    plain = QuantConfig(per_channel=per_channel, **ALONE)
    adaptive = replace(plain, rounding="adaptive")
    least = noise_of(plain) + 1
    assert noise_of(adaptive) > least
    if per_channel:
        assert noise_of(replace(plain, correct_bias=True)) > least
        assert noise_of(replace(adaptive, correct_bias=True)) > least


@pytest.mark.long
@pytest.mark.parametrize("changes", [{"rounding": "adaptive"}, {"correct_bias": True}])
def test_layers_are_ranked_with_the_weights_and_biases_that_they_get(changes: Any) -> None:
    seen, nearest = samples(8, 1), QuantConfig(**ALONE)
    plain, changed = (
        tinyai.quantize(network(), None, seen, config, rank=True).report.layers
        for config in (nearest, replace(nearest, **changes))
    )
    gains = [(b.alone or 0) - (a.alone or 0) for a, b in zip(plain, changed, strict=True)]
    assert [gain for row, gain in zip(plain, gains, strict=True) if row.operator == "input"] == [0]
    assert min(gain for row, gain in zip(plain, gains, strict=True) if "conv" in row.operator) > 1


def test_a_calibration_without_samples_does_not_do_for_it() -> None:
    mod, config = network(), QuantConfig(**ALONE)
    calibration = tinyai.calibrate(mod, None, samples(2, 1), config, compared=0)
    with pytest.raises(CalibrationError, match=r"compared=32"):
        tinyai.quantize(mod, None, calibration)
