"""Calibration as a value, and as a map over the workers of a cluster: the same bits as at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

import tinyai
from tinyai import Calibration, QuantConfig
from tinyai.errors import EnvironmentProblem, FormatError, OptionError
from tinyai.frontends.relay.quantize import Quantized
from tinyai.quantizer import cluster
from tinyai.quantizer.data import CalibrationError
from tinyai.quantizer.float_runner import Observed

distributed = pytest.importorskip("distributed")

CONFIGS = [QuantConfig(), QuantConfig(observer="average")]
RNG = np.random.default_rng(0)
WEIGHTS = [RNG.normal(size=shape).astype("float32") for shape in ((8, 3, 3, 3), (8, 8, 3, 3))]


def network(factor: float = 1.0) -> tvm.IRModule:
    value = relay.var("x", shape=(1, 3, 8, 8))
    for weight in WEIGHTS:
        shape = {"channels": 8, "kernel_size": (3, 3), "padding": (1, 1)}
        value = relay.nn.conv2d(value, relay.const(factor * weight), **shape)
        value = relay.nn.relu(value)
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(value), value))


def values(count: int = 40, start: int = 0) -> list[dict[str, Any]]:
    rows = (np.random.default_rng(start + n).normal(size=(1, 3, 8, 8)) for n in range(count))
    return [{"x": row.astype("float32")} for row in rows]


def same(one: Quantized, other: Quantized) -> None:
    assert one.report == other.report
    assert one.report.json() == other.report.json()
    assert tvm.ir.save_json(one.module) == tvm.ir.save_json(other.module)


# --- A value ------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.observer)
def test_a_calibration_quantizes_as_its_samples_do(config: QuantConfig, tmp_path: Path) -> None:
    at_once = tinyai.quantize(network(), None, values(), config)
    parts = [tinyai.calibrate(network(), None, values(20, at), config) for at in (0, 20)]
    whole = parts[0].merge(parts[1])
    assert whole.samples == 40
    whole.save(tmp_path / "seen.npz")
    for calibration in (whole, Calibration.load(tmp_path / "seen.npz")):
        same(tinyai.quantize(network(), None, calibration, config), at_once)
    assert [each.name for each in tmp_path.iterdir()] == ["seen.npz"]


@pytest.mark.long
def test_one_calibration_serves_several_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    calibration = tinyai.calibrate(network(), None, values(4))
    monkeypatch.setattr(Observed, "of", None)  # what ran the model is there
    for config in (QuantConfig(observer="percentile"), QuantConfig(dtype="uint8", float_last=True)):
        found = tinyai.quantize(network(), None, calibration, config)
        monkeypatch.undo()
        same(found, tinyai.quantize(network(), None, values(4), config))
        monkeypatch.setattr(Observed, "of", None)


@pytest.mark.long
@pytest.mark.parametrize(
    ("mod", "config", "found"),
    [
        (network(2.0), QuantConfig(), "another model"),
        (network(), QuantConfig(observer="average"), "observer average"),
        (network(), QuantConfig(observer="mse"), "observer mse"),
        (network(), QuantConfig(observer="minmax", float_last=False), "without it"),
    ],
)
def test_a_calibration_that_does_not_fit_is_told(mod: Any, config: Any, found: str) -> None:
    made = QuantConfig(observer="minmax", float_last=found == "without it")
    calibration = tinyai.calibrate(network(), None, values(2), made)
    with pytest.raises(CalibrationError, match=found):
        tinyai.quantize(mod, None, calibration, config)
    if "another" in found:
        with pytest.raises(CalibrationError, match=found):
            calibration.merge(tinyai.calibrate(mod, None, values(2), made))


@pytest.mark.long
@pytest.mark.parametrize(
    ("other", "wanted", "told"),
    [
        (QuantConfig(observer="minmax"), QuantConfig(), "observer mse"),
        (QuantConfig(observer="average"), QuantConfig(observer="average"), "observer average"),
        (QuantConfig(float_last=True), QuantConfig(), "without it"),
    ],
)
def test_what_one_of_two_calibrations_did_not_keep_is_told(
    other: QuantConfig, wanted: QuantConfig, told: str
) -> None:
    first, second = (tinyai.calibrate(network(), None, values(2), c) for c in (None, other))
    for whole in (first.merge(second), second.merge(first)):
        with pytest.raises(CalibrationError, match=told):
            tinyai.quantize(network(), None, whole, wanted)
        assert tinyai.quantize(network(), None, whole, replace(other, observer="minmax"))


@pytest.mark.parametrize("cut", [0, 10, 0.5, 0.99])
def test_a_file_that_is_no_calibration_is_told(cut: float, tmp_path: Path) -> None:
    file = tmp_path / "seen.npz"
    tinyai.calibrate(network(), None, values(2)).save(file)
    content = file.read_bytes()
    file.write_bytes(content[: int(cut if cut > 1 else cut * len(content))])
    with pytest.raises(FormatError, match=r"seen\.npz"):
        Calibration.load(file)
    np.savez(file, x=np.zeros(3))
    with pytest.raises(FormatError, match=r"seen\.npz"):
        Calibration.load(file)


# --- A cluster -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**settings) as made, distributed.Client(made) as client:
        yield client


def builds() -> int:
    return cluster._built.cache_info().misses


@pytest.mark.long
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.observer)
def test_two_workers_see_what_one_process_sees(client: Any, config: QuantConfig) -> None:
    calibration = tinyai.calibrate(network(), None, iter(values()), config, client=client)
    assert calibration.samples == 40
    at_once = tinyai.quantize(network(), None, values(), config)
    same(tinyai.quantize(network(), None, calibration, config), at_once)
    # However many parts and configurations a worker got, it built the model once.
    assert {*client.run(builds).values()} <= {0, 1}
    assert sum(client.run(builds).values()) >= 1


@pytest.mark.long
def test_workers_read_the_files_of_a_folder(client: Any, tmp_path: Path) -> None:
    for number, sample in enumerate(values(20)):
        np.save(tmp_path / f"{number:02}.npy", sample["x"])
    calibration = tinyai.calibrate(network(), None, tmp_path, client=client)
    same(
        tinyai.quantize(network(), None, calibration), tinyai.quantize(network(), None, values(20))
    )


class Killing:
    """Samples of which one kills the worker that has just begun with others."""

    def __init__(self, client: Any, at: int) -> None:
        self.client, self.at, self.killed = client, at, 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number, sample in enumerate(values(160)):
            if number == self.at:
                self.killed = next(iter(self.client.run(os.getpid).values()))
                os.kill(self.killed, signal.SIGKILL)
            yield sample


@pytest.mark.long
def test_a_worker_that_dies_loses_nothing(client: Any) -> None:
    data = Killing(client, 100)
    calibration = tinyai.calibrate(network(), None, data, client=client)
    assert data.killed
    assert calibration.samples == 160
    same(
        tinyai.quantize(network(), None, calibration), tinyai.quantize(network(), None, values(160))
    )


def test_a_bad_sample_is_told_from_a_worker_as_here(client: Any) -> None:
    data = values(20)
    data[17]["x"][0, 0, 0, 0] = np.nan
    for where in (None, client):
        with pytest.raises(CalibrationError, match="sample 17") as caught:
            tinyai.calibrate(network(), None, iter(data), client=where)
        assert "1 of 192 are NaN" in str(caught.value)
    infinite = values(20)
    infinite[18]["x"][:] = 3e38
    with pytest.raises(CalibrationError, match=r"layer '.*' at calibration sample 18") as caught:
        tinyai.calibrate(network(), None, iter(infinite), client=client)
    assert "--float-layers" in str(caught.value)


@pytest.mark.parametrize("given", ["tcp://somewhere", 7])
def test_a_client_of_another_kind_is_told(given: Any) -> None:
    with pytest.raises(OptionError, match="client") as caught:
        tinyai.calibrate(network(), None, values(1), client=given)
    assert "dask.distributed.Client" in str(caught.value)


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(EnvironmentProblem, match=r"tinyai\[cluster\]"):
        tinyai.calibrate(network(), None, values(1), client=object())


def test_a_model_that_cannot_be_pickled_is_told(client: Any) -> None:
    mod = network()
    mod["main"] = mod["main"].with_attr("hook", tvm.get_global_func("runtime.ModuleLoadFromFile"))
    with pytest.raises(OptionError, match="pickled"):
        tinyai.calibrate(mod, None, values(1), client=client)
