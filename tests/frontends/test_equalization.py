"""Channels between layers are made alike, and the float network stays the same."""

from __future__ import annotations

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
from tinyai.quantizer.equalization import Equalizer
from tinyai.quantizer.folding import Folding
from tinyai.quantizer.params import Array

CHANNELS = 12


def const(values: Array) -> Any:
    return relay.const(values.astype("float32"))


def network(activate: Any = relay.nn.relu, third: float = 1.0) -> tvm.IRModule:
    """A chain with a depthwise layer, whose channels' ranges are of very different sizes; the
    weights of the first layer's third channel are multiplied."""
    rng = np.random.default_rng(0)
    unequal = [np.exp(rng.uniform(-3, 3, CHANNELS)) for _ in range(2)]

    def biased(value: Any, bias: Array) -> Any:
        return relay.nn.bias_add(value, const(bias))

    x = relay.var("x", shape=(1, 3, 6, 6))
    first = rng.normal(size=(CHANNELS, 3, 1, 1)) * unequal[0][:, None, None, None]
    first[2] *= third
    y = activate(biased(relay.nn.conv2d(x, const(first)), 0.1 * unequal[0]))
    ratio = unequal[1] / unequal[0]
    middle = rng.normal(size=(CHANNELS, 1, 3, 3)) * ratio[:, None, None, None]
    sizes = {"groups": CHANNELS, "channels": CHANNELS, "kernel_size": (3, 3), "padding": (1, 1)}
    y = activate(biased(relay.nn.conv2d(y, const(middle), **sizes), 0.1 * unequal[1]))
    last = rng.normal(size=(5, CHANNELS, 1, 1)) / unequal[1][:, None, None]
    y = biased(relay.nn.conv2d(y, const(last)), rng.normal(size=5))
    return tvm.IRModule.from_expr(relay.Function([x], y))


def samples(count: int, seed: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(1, 3, 6, 6)).astype("float32")} for _ in range(count)]


def floats(mod: tvm.IRModule) -> list[Array]:
    run = runner(relay.build(mod, target="llvm"))
    return [run(each)[0] for each in samples(8, 2)]


def test_the_float_network_stays_the_same_and_channels_become_alike() -> None:
    mod = network()
    model = RelayModel(mod, None)
    equalizer = Equalizer(Folding(model.root, model.fold).result, model.fold)
    assert len(equalizer.pairs) == 2
    root = points_of(model, QuantConfig(equalize=True)).root
    for one, other in zip(floats(mod), floats(model.written(root)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    weights = Equalizer(root, model.fold)
    for pair in weights.pairs:
        ranges = []
        for layer, axis in ((pair.first, pair.before), (pair.second, pair.after)):
            array = np.asarray(layer["weight"].value)  # type: ignore[attr-defined]
            along = tuple(d for d in range(array.ndim) if d != axis)
            ranges.append(np.abs(array).max(axis=along))
        np.testing.assert_allclose(*ranges, rtol=0.01)


@pytest.mark.long
def test_weights_of_one_scale_lose_less() -> None:
    mod, noise = network(), []
    for equalize in (False, True):
        config = QuantConfig(per_channel=False, equalize=equalize)
        found = tinyai.quantize(mod, None, samples(8, 1), config, compared=1)
        run = runner(tinyai.build(found.module))
        results = [run(each)[0] for each in samples(8, 2)]
        noise.append(sqnr(floats(mod), results))
    np.testing.assert_array_equal(results[0], oracle(found.integers(), samples(8, 2)[0])[0])
    assert noise[1] > noise[0] + 10, noise


def test_a_calibration_of_the_equalized_model_serves_it_alone() -> None:
    mod, config = network(), QuantConfig(equalize=True)
    calibration = tinyai.calibrate(mod, None, samples(4, 1), config, compared=1)
    assert tinyai.quantize(mod, None, calibration, config).report.sqnr is not None
    with pytest.raises(tinyai.errors.TinyAIError, match="another model"):
        tinyai.quantize(mod, None, calibration, QuantConfig())


@pytest.mark.parametrize(
    "between",
    [
        lambda value: relay.clip(value, 0, 6),
        relay.sigmoid,
        lambda value: relay.nn.relu(value) + const(np.ones(1)),
        lambda value: relay.nn.pad(value, ((0, 0), (0, 0), (0, 0), (0, 0)), 1.0),
    ],
)
def test_what_is_not_the_same_for_scaled_channels_ends_a_pair(between: Any) -> None:
    model = RelayModel(network(between), None)
    root = Folding(model.root, model.fold).result
    equalizer = Equalizer(root, model.fold)
    assert equalizer.pairs == []
    assert equalizer.result is root


def test_a_channel_that_is_as_good_as_dead_is_left_as_it_is() -> None:
    """Made like its neighbours its values would be huge."""
    model = RelayModel(network(third=1e-9), None)
    root = points_of(model, QuantConfig(equalize=True)).root
    weights = Equalizer(root, model.fold)
    first = np.asarray(weights.pairs[0].first["weight"].value)  # type: ignore[attr-defined]
    largest = np.abs(first).max(axis=(1, 2, 3))
    assert largest[2] < 1e-6 * np.delete(largest, 2).min()
