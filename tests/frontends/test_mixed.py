"""The damage that each layer does alone, and which layers a goal leaves in float."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

import tinyai
from tests.support.oracle import oracle, runner
from tinyai import Mixed, QuantConfig
from tinyai.errors import OptionError
from tinyai.frontends.relay import regions
from tinyai.frontends.relay.quantize import Quantized

LAYERS = 4


def network(damage: str = "", at: int = 2) -> tvm.IRModule:
    """Convolutions of which one is damaged: ``weights`` has large ones for a channel that is always
    0; ``range`` has a channel of results that is much larger than the others, but read by nobody;
    ``values`` has a channel of results that is much larger than the others, and a reader that
    divides it again."""
    rng = np.random.default_rng(0)
    weights = [0.3 * rng.normal(size=(8, 8, 3, 3)).astype("float32") for _ in range(LAYERS)]
    if damage == "weights":
        weights[at - 1][7], weights[at][:, 7] = 0, 1000
    if damage == "range":
        weights[at][3] *= 300
        weights[at + 1][:, 3] = 0
    if damage == "values":
        weights[at][3] *= 1000
        weights[at + 1][:, 3] /= 1000
    value = relay.var("x", shape=(1, 8, 8, 8))
    for number, weight in enumerate(weights):
        span = relay.Span(relay.SourceName(f"conv{number}"), 0, 0, 0, 0)
        shape = {"channels": 8, "kernel_size": (3, 3), "padding": (1, 1)}
        conv = relay.nn.conv2d(value, relay.const(weight), **shape)
        value = relay.nn.relu(relay.Call(conv.op, conv.args, conv.attrs, None, span))
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(value), value))


@functools.cache
def values(count: int = 4) -> tuple[dict[str, Any], ...]:
    rng = np.random.default_rng(1)
    return tuple({"x": rng.normal(size=(1, 8, 8, 8)).astype("float32")} for _ in range(count))


# Equalized channels of activations would repair what is damaged here.
CONFIG = QuantConfig(observer="minmax", equalize_activations=False)


@functools.cache
def calibrated(damage: str) -> tinyai.Calibration:
    return tinyai.calibrate(network(damage), None, values(), CONFIG)


@functools.cache
def found(damage: str) -> Quantized:
    return tinyai.quantize(network(damage), None, calibrated(damage), CONFIG, mixed=Mixed(sqnr=25))


def names(rows: Any) -> list[str]:
    return [row.name for row in rows]


@pytest.mark.long
@pytest.mark.parametrize("damage", ["weights", "values"])
def test_the_layer_that_was_damaged_is_the_worst(damage: str) -> None:
    report = tinyai.quantize(network(damage), None, calibrated(damage), CONFIG, rank=True).report
    first, second = report.ranking[:2]
    assert first.name == "conv2"
    assert first.alone is not None
    assert second.alone is not None
    assert first.alone < 12
    assert second.alone > first.alone + 5
    assert names(report.ranking) != names(report.layers)
    assert {*names(report.ranking)} == {*names(report.layers)}
    assert "damage 1: conv2: " in str(report)
    assert json.loads(report.json())["layers"][3]["alone"] == first.alone


@pytest.mark.long
def test_a_layer_alone_makes_the_noise_of_its_integers() -> None:
    """All others left in float by name, tinyai's own code makes the noise that the switch does."""
    ranked = tinyai.quantize(network(), None, calibrated(""), CONFIG, rank=True).report.layers
    last = replace(CONFIG, float_layers=("conv0", "conv1", "conv2"))
    # The last convolution with its input in integers: two layers of the ranking.
    alone = tinyai.quantize(network(), None, calibrated(""), last).report.sqnr
    assert alone is not None
    rows = {row.name: row.alone or 0.0 for row in ranked}
    noise = sum(10 ** (-rows[name] / 10) for name in ("conv2", "conv3"))
    # conv2's own weights are in float in the one and not in the other.
    assert alone == pytest.approx(-10 * math.log10(noise), abs=2.5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("damage", "left"), [("weights", ["conv2"]), ("values", ["conv2", "conv3"])]
)
def test_a_goal_leaves_the_damaged_layer_in_float(damage: str, left: list[str]) -> None:
    report = found(damage).report
    assert report.mixed is not None
    assert report.mixed.reached
    assert names(report.mixed.layers) == ["conv2"]
    assert report.sqnr is not None
    assert report.sqnr >= 25
    (choice,) = report.mixed.layers
    assert ("it and its readers" in choice.reason) == (len(left) == 2)
    convolutions = [each for each in report.left if each.operator == "nn.conv2d"]
    assert names(convolutions) == left
    assert all("mixed precision" in each.reason for each in convolutions)
    assert "goal: SQNR of 25 dB, reached with 1 layer left in float" in str(report)
    assert json.loads(report.json())["mixed"]["layers"][0]["name"] == "conv2"


@pytest.mark.long
def test_a_layer_whose_values_are_damaged_has_16_bits_and_stays_in_the_region() -> None:
    made = found("range")
    assert made.report.mixed is not None
    assert made.report.mixed.reached
    (choice,) = made.report.mixed.layers
    assert (choice.name, choice.dtype) == ("conv2", "int16")
    assert made.report.left == ()
    assert {row.name for row in made.report.layers if row.dtype == "int16"} == {"conv1", "conv2"}
    assert "reached with 1 layer at 16 bits" in str(made.report)
    assert len(regions(tinyai.partition_for_tinyai(made.module, strict=True))) == 1
    sample = values()[0]
    ours, theirs = runner(tinyai.build(made.module))(sample), oracle(made.integers(), sample)
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.long
def test_the_integers_around_a_float_layer_are_tvms() -> None:
    made, sample = found("weights"), values()[0]
    ours, theirs = runner(tinyai.build(made.module))(sample), oracle(made.integers(), sample)
    # Floats between the integers are TVM's on both sides.
    np.testing.assert_array_equal(ours[0], theirs[0])


def test_what_reaches_the_goal_at_once_has_no_layer_in_float() -> None:
    report = tinyai.quantize(network(), None, calibrated(""), CONFIG, mixed=Mixed(sqnr=15)).report
    assert report.mixed is not None
    assert (report.mixed.reached, report.mixed.layers, report.left) == (True, (), ())


def test_a_goal_that_cannot_be_reached_is_told() -> None:
    report = tinyai.quantize(network(), None, calibrated(""), CONFIG, mixed=Mixed(sqnr=150)).report
    assert report.mixed is not None
    assert not report.mixed.reached
    assert report.mixed.layers
    assert "not reached" in str(report)


@pytest.mark.long
def test_agreement_is_a_goal_too() -> None:
    goal = Mixed(agreement=0.97)
    report = tinyai.quantize(
        network("values"), None, calibrated("values"), CONFIG, mixed=goal
    ).report
    before = tinyai.quantize(network("values"), None, calibrated("values"), CONFIG).report
    assert before.outputs[0].agreement < 0.97 <= report.outputs[0].agreement
    assert report.mixed is not None
    assert "agreement of 97.0%" in str(report.mixed)


@pytest.mark.parametrize("bad", [{}, {"sqnr": -1}, {"agreement": 2}, {"sqnr": "much"}])
def test_a_bad_goal_is_told(bad: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="Mixed"):
        Mixed(**bad)
