"""``tinyai tune``: what is measured, what is written, and where a stopped run goes on. Times are
noise here, so that none is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.support.example_graphs import Qnn
from tests.support.example_graphs import tiled_network as network
from tinyai.backend import compile_graph
from tinyai.cli import main
from tinyai.codegen.schedules import read_tuning, write_tuning
from tinyai.codegen.shapes.schedule import Schedule, Tile
from tinyai.errors import OptionError, TinyAIError
from tinyai.ir import Builder, DType, Graph, Type
from tinyai.reference import run_graph
from tinyai.runtime import tuner
from tinyai.runtime.layers import random_inputs, run_timed
from tinyai.runtime.runner import load
from tinyai.runtime.toolchain import Toolchain
from tinyai.runtime.tuner import MeasuredLayer, layers_of, measure, side_by_side, tune_layers
from tinyai.target import Target

GENERIC = Target(isa="generic")


def narrow() -> Graph:
    """Layers whose panels threads can share, and one of few channels."""
    net = Qnn(Builder("narrow"), "NHWC", np.random.default_rng(5))
    image = net.builder.input(Type((1, 6, 6, 8), DType.INT8))
    few = net.conv(image, 5, 3, "few")
    return net.builder.graph([few, net.conv(net.conv(image, 40, 1, "wide"), 72, 3, "deep")])


@pytest.mark.parametrize(
    ("build", "isa", "threads"),
    [
        (network, "native", 1),
        (network, "generic", 1),
        (narrow, "native", 2),
        (narrow, "generic", 2),
    ],
)
def test_every_candidate_computes_what_the_reference_does(
    build: Callable[[], Graph], isa: str, threads: int
) -> None:
    for layer in layers_of(build(), Target(isa=isa, threads=threads)):
        found = tuner.candidates(layer)
        compiled = side_by_side(layer, found, outputs=len(found))
        _, results = run_timed(compiled, load(compiled.source.text, Toolchain()), 1)
        alone = side_by_side(layer, found[:1], outputs=1).graph
        (expected,) = run_graph(alone, random_inputs(alone))
        for schedule, result in zip(found, results, strict=True):
            np.testing.assert_array_equal(result, expected, str(schedule))


def test_ways_to_share_a_layer_and_to_see_its_outputs_are_candidates() -> None:
    layers = layers_of(narrow(), Target(isa="generic", threads=2))
    few, *others = (tuner.candidates(layer) for layer in layers)
    assert {schedule.together for schedule in few} == {None, 2, 1}
    assert {schedule.by_panels for schedule in few} == {None}
    for schedules in others:
        assert {schedule.together for schedule in schedules} == {None}
        assert {schedule.by_panels for schedule in schedules} == {None, True}


def test_schedules_that_make_equal_code_for_tiles_are_one_candidate() -> None:
    net = Qnn(Builder("deep"), "NHWC", np.random.default_rng(5))
    image = net.builder.input(Type((1, 14, 14, 64), DType.UINT8))
    graph = net.builder.graph([net.conv(image, 96, 3, "conv")])
    (layer,) = layers_of(graph, Target(isa="amx"))
    found = tuner.candidates(layer)
    codes = {(*(tile.channels for tile in each.panels), each.stripe) for each in found}
    assert len(found) == len(codes) > 1
    (vectors,) = layers_of(graph, Target(isa="avx512vnni"))
    assert len(tuner.candidates(vectors)) > len(found)


def fake(layer: tuner.TunableLayer, seconds: float, toolchain: Toolchain) -> MeasuredLayer:
    """A measurement whose last candidate is the fastest."""
    found = tuner.candidates(layer)[:3]
    return MeasuredLayer(
        layer.key, layer.node.sources, found, tuple(3.0 - n for n in range(len(found)))
    )


def test_tuning_writes_the_fastest_schedule_of_each_layer(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    measured = tune_layers([(network(), GENERIC)], file, seconds=0)
    tuning = read_tuning(file)
    assert [each.key for each in measured] == [each.key for each in layers_of(network(), GENERIC)]
    for each in measured:
        assert len(each.schedules) == len(each.microseconds) > 1
        assert tuning[each.key] == each.schedules[each.chosen]
    compile_graph(network(), replace(GENERIC, tuning=str(file)))


def test_a_stopped_run_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tuning.json"
    graphs = [(network(), GENERIC)]
    first, second = (layer.key for layer in layers_of(*graphs[0]))

    def stopped(layer: tuner.TunableLayer, *rest: Any) -> MeasuredLayer:
        if layer.key == second:
            raise KeyboardInterrupt
        return fake(layer, *rest)

    monkeypatch.setattr(tuner, "measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        tune_layers(graphs, file)
    assert list(read_tuning(file)) == [first]
    monkeypatch.setattr(tuner, "measure", fake)
    assert [each.key for each in tune_layers(graphs, file)] == [second]
    assert set(read_tuning(file)) == {first, second}
    before = file.read_bytes()
    monkeypatch.setattr(tuner, "measure", lambda *_: pytest.fail("it was measured again"))
    assert tune_layers(graphs, file) == ()
    assert file.read_bytes() == before


def test_equal_layers_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "measure", fake)
    graphs = [(network("one"), GENERIC), (network("two"), GENERIC)]
    assert len(tune_layers(graphs, tmp_path / "t.json")) == 2


def test_the_cost_models_choice_stays_where_another_is_hardly_faster() -> None:
    found = tuple(Schedule((Tile(n, 16),), 9, unrolled=False) for n in (1, 2, 3))
    assert MeasuredLayer("a", (), found, (10.0, 9.9, 11.0)).chosen == 0
    assert MeasuredLayer("a", (), found, (10.0, 9.5, 9.0)).chosen == 2


def test_results_that_differ_are_never_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    (layer, _) = layers_of(network(), GENERIC)
    real = tuner.run_timed

    def wrong(compiled: Any, library: Any, runs: int) -> Any:
        times, results = real(compiled, library, runs)
        assert len(results) > 1, "it was timed"
        return times, [*results[:-1], results[-1] + 1]

    monkeypatch.setattr(tuner, "run_timed", wrong)
    with pytest.raises(TinyAIError, match="results of conv2d") as raised:
        measure(layer, 0, Toolchain())
    assert "differ" in str(raised.value.found)


def test_a_file_of_another_machine_is_not_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    write_tuning(file, {}, "this one")
    with pytest.raises(OptionError, match="tuning file") as raised:
        tune_layers([(network(), GENERIC)], file)
    assert raised.value.found == "machine 'this one'"


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "measure", lambda *_: pytest.fail("it was measured"))
    with pytest.raises(OptionError, match="tuning file"):
        tune_layers([(network(), GENERIC)], tmp_path / "nowhere" / "t.json")


# --- The command ---------------------------------------------------------------------------------


@pytest.fixture
def kws() -> str:
    pytest.importorskip("tvm.relay")
    from tests.support.prequantized import tflite_path

    return str(tflite_path("kws_ref_model"))


def test_the_command_writes_a_file_that_the_target_takes(
    tmp_path: Path, kws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "measure", fake)
    file = str(tmp_path / "tuning.json")
    command = ["tune", kws, "--output", file, "--target", "tinyai -isa=generic -threads=2"]
    shown = CliRunner().invoke(main, command, env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    tuning = read_tuning(file)
    assert len(tuning) > 1
    assert all(key.endswith("; threads 2") for key in tuning)
    assert "functional_1/" in shown.output
    assert f"{len(tuning)}/{len(tuning)}" not in shown.output  # no bar without a terminal
    used = f"tinyai -isa=generic -threads=2 -tuning={file}"
    timed = CliRunner().invoke(main, ["bench", kws, "--runs", "1", "--target", used])
    assert timed.exit_code == 0, timed.output
    again = CliRunner().invoke(main, command)
    assert again.exit_code == 0, again.output
    assert "tuning.json has every layer" in again.output


@pytest.mark.parametrize("seconds", [float("nan"), -1.0])
def test_seconds_that_are_none_are_an_error(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(OptionError, match="seconds\n  found:"):
        tune_layers([], tmp_path / "tuning.json", seconds=seconds)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_nested_too_deeply_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(OptionError, match="maximum recursion depth"):
        read_tuning(tmp_path / "deep.json")


def test_a_bad_file_is_an_error_with_exit_code_2(tmp_path: Path, kws: str) -> None:
    file = tmp_path / "tuning.json"
    file.write_text("nothing of the kind")
    shown = CliRunner().invoke(main, ["tune", kws, "--output", str(file)])
    assert shown.exit_code == 2
    assert "tuning file" in shown.output
    assert file.read_text() == "nothing of the kind"
