"""``make demo`` on the digits network: its figures, its files, and its exit code."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from pathlib import Path

import numpy as np
import pytest
import tvm
from rich.console import Console

from benchmarks import demo, workloads
from tests.support.c_checks import generate_wrong_weights
from tests.support.disk import cache_folder

# TVM's importer reads onnx.mapping, which onnx deprecates, and calibrates in forked processes.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:.mapping\.\w+. is now deprecated:DeprecationWarning",
    "ignore:This process .* is multi-threaded, use of fork:DeprecationWarning",
)
CACHE = cache_folder() / "demo"


@functools.cache
def few_digits() -> workloads.Workload:
    """The digits network with the first 40 of its samples."""
    work = workloads.digits(CACHE)
    assert work.labels is not None
    return dataclasses.replace(work, samples=work.samples[:40], labels=work.labels[:40])


def digits(_: Path) -> workloads.Workload:
    return few_digits()


def run_demo(folder: Path, *, cost: bool = True) -> tuple[int, str, dict]:
    """Exit code, printed text and JSON of the demo on the digits network."""
    text = io.StringIO()
    console = Console(file=text, width=120)
    code = demo.demo([digits], folder, CACHE, console, cost=cost)
    return code, text.getvalue(), json.loads((folder / "demo.json").read_text())


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str, dict]:
    folder = tmp_path_factory.mktemp("demo")
    return folder, *run_demo(folder)


@pytest.mark.long
def test_demo_succeeds_where_every_result_is_equal_to_tvms(shown) -> None:
    _, code, text, report = shown
    (network,) = report["networks"]
    assert code == 0
    assert report["equal"] is True
    assert (network["difference"], network["integer_difference"]) == (0, 0)
    assert network["distinct_integers"] > 8
    assert "Equal to TVM, bit for bit." in text


@pytest.mark.long
def test_demo_reports_the_partition_the_code_and_the_accuracy(shown) -> None:
    folder, _, text, report = shown
    (network,) = report["networks"]
    assert network["regions"] == 1
    assert network["inside"]["nn.conv2d"] == 9
    assert network["outside"] == {"add": 1, "nn.dense": 1}
    (source,) = folder.glob("*.c")
    assert network["c_lines"] == source.read_text().count("\n")
    assert network["weight_bytes"] > 10_000
    assert network["arena_bytes"] % 64 == 0 < network["arena_bytes"]
    accuracy = network["accuracy"]
    assert accuracy["images"] == 40
    assert accuracy["int8_on_tinyai"] == accuracy["int8_on_tvm"]
    assert abs(accuracy["int8_on_tvm"] - accuracy["float_on_tvm"]) <= 2
    assert "9 nn.conv2d" in " ".join(text.replace("│", " ").split())


@pytest.mark.long
def test_demo_measures_latency_build_time_and_memory(shown) -> None:
    _, _, _, report = shown
    (network,) = report["networks"]
    assert network["ratio"] == pytest.approx(network["tinyai_ms"] / network["tvm_ms"])
    assert network["tvm_ms"] > 0
    assert network["cost"]["seconds"] > 0
    # TVM alone takes more than 64 MiB: less would mean that the wrong process was watched.
    assert 64 < network["cost"]["peak_mib"] < 1536


def test_demo_says_how_many_results_are_equal_before_it_measures(shown) -> None:
    _, _, text, _ = shown
    equal = text.index("digits: 40 of 40 results equal TVM's, bit for bit")
    assert equal < text.index("measuring accuracy and latency")


def test_demo_leaves_a_library_that_computes_the_same_and_nothing_half_written(shown) -> None:
    folder, _, _, report = shown
    (network,) = report["networks"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["demo.json", *network["files"]]
    )
    library = tvm.runtime.load_module(str(folder / "digits.so"))
    work = few_digits()
    found = workloads.outputs(workloads.executor_of(library), work.input, work.samples)
    assert (
        np.sum(found.reshape(40, -1).argmax(axis=1) == work.labels)
        == (network["accuracy"]["int8_on_tinyai"])
    )


@pytest.mark.long
def test_demo_fails_where_the_generated_code_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_wrong_weights(monkeypatch)
    monkeypatch.setattr(demo, "build_cost", lambda *_: pytest.fail("built again"))
    code, text, report = run_demo(tmp_path, cost=False)
    (network,) = report["networks"]
    assert code == 1
    assert report["equal"] is False
    assert network["integer_difference"] > 0
    assert network["cost"] is None
    assert "loaded library" not in text
    assert "error: digits differs from TVM" in text


def test_network_that_has_died_out_is_a_failure(shown) -> None:
    _, _, _, report = shown
    (network,) = report["networks"]
    figures = demo.Figures(**{**network, "distinct_integers": 1})
    assert figures.problems == ["digits has died out: its integers are all the same"]
    assert demo.Figures(**network).problems == []


def test_he_parameters_keep_a_depthwise_layer_at_the_variance_of_its_input() -> None:
    channels = 64
    data = tvm.relay.var("data", shape=(1, 16, 16, channels))
    weight = tvm.relay.var("weight", shape=(3, 3, channels, 1))
    body = tvm.relay.nn.conv2d(
        data, weight, groups=channels, channels=channels, kernel_size=(3, 3),
        data_layout="NHWC", kernel_layout="HWOI",
    )  # fmt: skip
    mod = tvm.IRModule.from_expr(tvm.relay.Function([data, weight], body))
    drawn = workloads.he_parameters(mod)["weight"].numpy()
    assert drawn.std() == pytest.approx(np.sqrt(2 / 9), rel=0.1)
