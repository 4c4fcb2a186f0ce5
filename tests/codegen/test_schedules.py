"""How layers are cut up: the cost model's choice, and the file that overrules it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.example_graphs import tiled_network as network
from tinyai.backend import compile_graph
from tinyai.codegen.kernels.tiling import cost, schedules, split
from tinyai.codegen.schedules import layer_key, read_tuning, write_tuning
from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.shapes.machine import VECTORS
from tinyai.codegen.shapes.schedule import Schedule, Tile
from tinyai.codegen.shapes.tiling import Tiling
from tinyai.errors import OptionError
from tinyai.ir import DType
from tinyai.ops.window import NHWC, Window
from tinyai.reference import run_graph
from tinyai.runtime.layers import random_inputs
from tinyai.runtime.runner import Runner
from tinyai.target import Target

GENERIC = Target(isa="generic")


def geometry(size: int, channels: int, out: int, kernel: int = 1, groups: int = 1) -> Geometry:
    window = Window((kernel, kernel), padding=(kernel // 2,) * 4)
    numbers = (1, size, size, channels, size, size, out, groups)
    return Geometry(*numbers, window, NHWC, 0, DType.INT8, DType.UINT8, DType.INT32)


def chosen(target: Target) -> dict[str, Schedule]:
    """The cost model's schedules of the network's layers, by what these are."""
    graph = compile_graph(network(), target).graph
    return {
        layer_key(graph, graph.makers[output], target.threads): schedule
        for output, schedule in graph.schedules.items()
    }


def tuning_file(folder: Path, change: Callable[[Schedule], Schedule]) -> Path:
    """The cost model's schedules of the network, each changed."""
    file = folder / "tuning.json"
    tuning = {key: change(schedule) for key, schedule in chosen(GENERIC).items()}
    assert len(tuning) == 2
    write_tuning(file, tuning, "this one")
    return file


# --- The cost model ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (geometry(14, 64, 384), "6x64 6x64 6x64 6x64 6x64 6x64, stripes of 196, written out"),
        (geometry(14, 384, 96), "8x48 8x48, stripes of 196, in a loop"),
        (geometry(14, 256, 512), f"{' '.join(8 * ['6x64'])}, stripes of 196, in a loop"),
        (geometry(3, 256, 128), "5x64 5x64, stripes of 9, in a loop"),
        (geometry(1, 64, 256), "1x128 1x128, stripes of 1, written out"),
    ],
    ids=["wide panels", "even panels", "no short stripe", "few outputs", "one output"],
)
def test_the_cost_model_chooses(layer: Geometry, expected: str) -> None:
    best = schedules(layer, VECTORS, waiting=0, threads=1)[0]
    tiles, stripe, loop = expected.split(", ")
    assert " ".join(map(str, best.panels)) == tiles
    assert f"stripes of {best.stripe}" == stripe
    assert best.unrolled == (loop == "written out")


def test_a_result_that_would_push_the_input_out_of_the_cache_is_computed_in_stripes() -> None:
    best = schedules(geometry(112, 16, 96), VECTORS, waiting=0, threads=1)[0]
    assert best.stripe < 112 * 112
    assert schedules(geometry(28, 16, 96), VECTORS, waiting=0, threads=1)[0].stripe == 28 * 28


def test_sums_that_wait_for_steps_stay_in_the_nearest_cache() -> None:
    layer = geometry(64, 16, 128)
    best = schedules(layer, VECTORS, waiting=4, threads=1)[0]
    assert Tiling(layer, best, VECTORS).waiting_bytes(4) <= 48 * 1024


@pytest.mark.parametrize("waiting", [0, 1, 4])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_candidate_fits_and_the_cheapest_is_the_first(waiting: int, threads: int) -> None:
    for layer in (geometry(7, 3, 100, 3), geometry(1, 40, 300), geometry(40, 16, 96, 3, 2)):
        found = schedules(layer, VECTORS, waiting=waiting, threads=threads)
        assert len(set(found)) == len(found) > 1
        tilings = [Tiling(layer, each, VECTORS) for each in found]
        assert [each.rejection() for each in tilings] == [None] * len(found)
        costs = [cost(each, waiting=waiting, threads=threads) for each in tilings]
        assert costs == sorted(costs)


def test_panels_are_few_and_even() -> None:
    for blocks in range(1, 70):
        for widest in (1, 2, 3, 4, 8):
            widths = split(blocks, widest)
            assert sum(widths) == blocks
            assert len(widths) == -(-blocks // widest)
            assert widths == tuple(sorted(widths, reverse=True))
            assert widths[0] - widths[-1] <= 1


# --- The file ------------------------------------------------------------------------------------


def narrow(schedule: Schedule) -> Schedule:
    """Panels of 16 channels, three outputs at a time, in stripes of ten."""
    channels = sum(tile.channels for tile in schedule.panels)
    return Schedule((Tile(3, 16),) * (channels // 16), 10, unrolled=False)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_tuning_file_changes_the_code_and_not_the_result(tmp_path: Path, threads: int) -> None:
    graph = network()
    target = Target(isa="generic", threads=threads)
    keys = list(chosen(target))
    small = Schedule((Tile(3, 16), Tile(2, 32)), 10, unrolled=False)
    smaller = Schedule((Tile(3, 16), Tile(1, 16)), 7, unrolled=False)
    write_tuning(tmp_path / "t.json", dict(zip(keys, (small, smaller), strict=True)), "this one")
    tuned = Runner(graph, replace(target, tuning=tmp_path / "t.json"))
    assert tuned.source.text != compile_graph(graph, target, abi="plain").source.text
    assert f"/* cut into {small} */" in tuned.source.text
    assert f"/* cut into {smaller} */" in tuned.source.text
    inputs = random_inputs(graph)
    for result, expected in zip(tuned(*inputs), run_graph(graph, inputs), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_the_same_tuning_is_the_same_code_wherever_its_file_lies(tmp_path: Path) -> None:
    first = tuning_file(tmp_path, narrow)
    second = tmp_path / "other.json"
    second.write_bytes(first.read_bytes())
    texts = {
        compile_graph(network(), Target(tuning=str(file))).source.text
        for file in (first, first, second)
    }
    (text,) = texts
    assert "tuning" not in text
    assert text.count("cut into tiles 3x16") == 3 * 2  # a variant has two such layers


def test_a_file_with_the_cost_models_choice_is_the_code_without_it(tmp_path: Path) -> None:
    file = tuning_file(tmp_path, lambda schedule: schedule)
    tuned = compile_graph(network(), Target(tuning=str(file))).source.text
    assert tuned == compile_graph(network(), Target()).source.text


def test_layers_of_other_networks_may_stand_in_the_file(tmp_path: Path) -> None:
    write_tuning(tmp_path / "t.json", {"another": Schedule((), 0, unrolled=True)}, "this one")
    text = compile_graph(network(), replace(GENERIC, tuning=tmp_path / "t.json")).source.text
    assert text == compile_graph(network(), GENERIC).source.text


def test_the_scalar_kernels_have_no_choice(tmp_path: Path) -> None:
    file = tuning_file(tmp_path, narrow)
    scalar = Target(isa="scalar")
    assert chosen(scalar) == {}
    text = compile_graph(network(), replace(scalar, tuning=str(file))).source.text
    assert text == compile_graph(network(), scalar).source.text


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"panels": (Tile(6, 64),)}, "panels of 64 channels for"),
        ({"panels": (Tile(8, 64),)}, "a tile 8x64"),
        ({"panels": (Tile(0, 48),)}, "a tile 0x48"),
        ({"panels": (Tile(1, 40),)}, "a tile 1x40"),
        ({"stripe": 0}, "stripes of 0 outputs of 25"),
        ({"stripe": 26}, "stripes of 26 outputs of 25"),
        ({"unrolled": True}, "a window of 90 words written out"),
        ({"together": 2}, "2 outputs as one, not 1"),
    ],
)
def test_a_schedule_that_does_not_fit_its_layer_is_refused(
    tmp_path: Path, change: dict[str, Any], found: str
) -> None:
    file = tuning_file(tmp_path, lambda schedule: replace(schedule, **change))
    with pytest.raises(OptionError, match="schedule of conv2d") as raised:
        compile_graph(network(), replace(GENERIC, tuning=str(file)))
    assert found in str(raised.value.found)
    assert str(raised.value.allowed).startswith("for example tiles ")
    assert raised.value.hint


LAYER = {"panels": "6x64", "stripe": 9, "unrolled": False}


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("{", "Expecting property name"),
        ("[]", "version list"),
        ("{}", "version None"),
        ('{"version": 2}', "version 2"),
        ('{"version": 1}', "layers: None"),
        *(
            (json.dumps({"version": 1, "layers": {"a": entry}}), "a: ")
            for entry in (
                None,
                "6x64",
                {"panels": "6x64"},
                LAYER | {"strip": 9},
                LAYER | {"panels": "6x64x1"},
                LAYER | {"panels": "six"},
                LAYER | {"panels": 64},
                LAYER | {"stripe": "9"},
                LAYER | {"stripe": True},
                LAYER | {"unrolled": 1},
                LAYER | {"by_panels": 1},
                LAYER | {"together": True},
                LAYER | {"together": "2"},
            )
        ),
    ],
)
def test_a_file_that_is_no_tuning_is_refused(tmp_path: Path, content: str, found: str) -> None:
    file = tmp_path / "tuning.json"
    file.write_text(content)
    with pytest.raises(OptionError, match="tuning file") as raised:
        compile_graph(network(), Target(tuning=str(file)))
    assert found in str(raised.value.found)
    assert raised.value.allowed
    assert "tinyai tune" in str(raised.value.hint)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"nothing\.json"):
        compile_graph(network(), Target(tuning=tmp_path / "nothing.json"))


def test_a_file_that_calls_an_instruction_set_by_its_old_name_is_gone_on_with(
    tmp_path: Path,
) -> None:
    tuning = {"a": Schedule((Tile(1, 16),), 1, unrolled=False)}
    write_tuning(tmp_path / "old.json", tuning, "a CPU, neon, packed")
    assert read_tuning(tmp_path / "old.json", "a CPU, generic, neon") == tuning
    for other in ("another CPU, generic, neon", "a CPU, generic", "a CPU, scalar, neon"):
        with pytest.raises(OptionError, match="machine 'a CPU, neon, packed'"):
            read_tuning(tmp_path / "old.json", other)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    tuning = {
        "b": Schedule((Tile(6, 64), Tile(8, 32)), 192, unrolled=True),
        "a": Schedule((Tile(1, 16),), 1, unrolled=False),
        "c": Schedule((Tile(1, 16),), 1, unrolled=False, by_panels=False, together=2),
    }
    file = tmp_path / "tuning.json"
    write_tuning(file, tuning, "a machine")
    assert read_tuning(file) == read_tuning(file, "a machine") == tuning
    assert [path.name for path in tmp_path.iterdir()] == ["tuning.json"]
    assert list(json.loads(file.read_text())["layers"]) == ["a", "b", "c"]
