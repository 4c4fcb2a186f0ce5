"""Time layer by layer: the library's function and the command."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tinyai
from tests.support.example_graphs import small_network
from tests.support.paths import DIGITS
from tinyai.backend import compile_graph
from tinyai.cli import main
from tinyai.errors import OptionError
from tinyai.ir import Builder, DType, Type
from tinyai.ops import Conv2d, Elementwise, Reshape
from tinyai.ops.steps import Relu
from tinyai.ops.window import Window
from tinyai.reference import run_graph
from tinyai.runtime import layers
from tinyai.runtime.layers import LayerTime, random_inputs, time_layers, times_table
from tinyai.runtime.runner import aligned_bytes, load, pointers
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target


@pytest.mark.parametrize("isa", ["auto", "scalar"])
def test_every_layer_has_its_time_name_and_cost(isa: str) -> None:
    times = time_layers(small_network(), Target(isa=isa), runs=5)
    names = [("image",), ("conv", "residual"), ("pool", "result")]
    assert [each.sources for each in times] == names
    assert all(each.microseconds >= 0 for each in times)
    assert [each.macs for each in times] == [0, 4 * 4 * 2 * 3 * 3 * 2, 0]
    assert times[2].bytes == 4 * 4 * 2 + 4 * 2 * 2 * 2 + 4
    assert times[1].operator.startswith("conv2d(")


def test_a_layer_names_its_row_and_why_no_better_one_serves() -> None:
    builder = Builder("region")
    x = builder.input(Type((1, 4, 4, 8), DType.INT16))
    weight = builder.constant(np.ones((8, 1, 1, 8), np.int8))
    y = builder.add(Conv2d(Window((1, 1))), [x, weight], sources=("conv",))
    flat = builder.add(Reshape((128,)), [y])
    graph = builder.graph([builder.add(Elementwise((128,)), [flat], (Relu(),)), flat])
    times = time_layers(graph, Target(isa="generic"), runs=1)
    assert [each.kernel for each in times] == ["conv2d_patches_scalar", "", "elementwise_scalar"]
    assert [each.slower for each in times] == [
        ("conv2d_tile_generic rejected: data of int16",),
        (),
        (),
    ]
    told = str(times_table("r", times).caption).splitlines()
    assert told[1:] == ["conv: conv2d_tile_generic rejected: data of int16"]
    assert times_table("r", times, layers=False).caption is None
    assert times_table("r", times[1:]).caption is None


@pytest.mark.parametrize("threads", [1, 2])
def test_a_traced_entry_tells_times_only_where_it_is_asked(threads: int) -> None:
    graph = small_network()
    compiled = compile_graph(graph, Target(isa="scalar", threads=threads), abi="traced")
    entry = getattr(load(compiled.source.text, Toolchain()), compiled.source.symbol)
    inputs = random_inputs(compiled.graph)
    arena = aligned_bytes(compiled.source.arena_bytes)
    expected = [each.tobytes() for each in run_graph(graph, inputs)]
    times = np.zeros(len(compiled.graph.nodes) + 1, np.int64)
    assert entry(None, None, None, None) == 0  # answers without a computation
    for place in (None, times.ctypes.data):
        outputs = [np.empty(of.shape, of.dtype.numpy) for of in graph.types(graph.outputs)]
        memory = ctypes.c_void_p(arena.ctypes.data)
        assert entry(pointers(inputs), pointers(outputs), memory, ctypes.c_void_p(place)) == 0
        assert [each.tobytes() for each in outputs] == expected
    assert times[0] > 0
    assert (np.diff(times) >= 0).all()


def test_no_run_is_no_time() -> None:
    with pytest.raises(OptionError, match="runs"):
        time_layers(small_network(), runs=0)


def test_the_table_tells_the_share_of_the_peak_where_it_is_known() -> None:
    times = (
        LayerTime(("a",), "conv2d", "int8[1]", 2.0, 100_000, 10),
        LayerTime(("b",), "elementwise", "int8[1]", 2.0, 0, 10),
    )

    def shares(peak: float | None) -> list[str]:
        (column,) = (c for c in times_table("r", times, peak=peak).columns if c.header == "of peak")
        return [*map(str, column.cells), str(column.footer)]

    assert shares(200.0) == ["25 %", "–", "12 %"]
    assert shares(None) == ["–"] * 3


@pytest.mark.parametrize(("spread", "told"), [(0.1, False), (0.5, True)])
def test_the_table_tells_of_times_that_are_far_apart(spread: float, told: bool) -> None:
    """A layer counts by its share of the time."""
    times = (
        LayerTime(("a",), "conv2d", "int8[1]", 9.0, 100_000, 10, spread=spread),
        LayerTime(("b",), "elementwise", "int8[1]", 1.0, 0, 10),
    )
    for rows in (True, False):
        caption = str(times_table("r", times, layers=rows).caption or "")
        assert ("45% of the median apart" in caption) == told


def test_times_are_measured_in_slices_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    slices, run = [], layers.run_timed

    def counted(compiled: Any, library: Any, runs: int) -> Any:
        slices.append(runs)
        return run(compiled, library, runs)

    monkeypatch.setattr(layers, "run_timed", counted)
    times = time_layers(small_network(), Target(isa="scalar"), runs=25)
    assert slices == [3] * 5 + [2] * 5
    assert all(each.spread >= 0 for each in times)


def test_the_command_prints_a_row_a_layer_or_json(tflite_kws: str) -> None:
    pytest.importorskip("tvm.relay")
    command = ["bench", tflite_kws, "--runs", "3"]
    table = CliRunner().invoke(main, [*command, "--layers"], env={"COLUMNS": "200"})
    assert table.exit_code == 0, table.output
    assert "13 layers" in table.output
    assert "functional_1/average_pooling2d/AvgPool" in table.output
    printed = CliRunner().invoke(main, [*command, "--json"])
    (layers,) = json.loads(printed.stdout).values()
    assert [layer["operator"].split("(")[0] for layer in layers][-2:] == [
        "dense",
        "integer_softmax",
    ]


def test_a_missing_file_is_an_error_with_exit_code_2() -> None:
    pytest.importorskip("tvm.relay")
    result = CliRunner().invoke(main, ["bench", "nothing.tflite"])
    assert result.exit_code == 2
    assert "nothing.tflite" in result.output


@pytest.fixture
def tflite_kws() -> str:
    pytest.importorskip("tvm.relay")
    from tests.support.prequantized import tflite_path

    return str(tflite_path("kws_ref_model"))


@pytest.mark.filterwarnings(r"ignore:.mapping\.\w+. is now deprecated:DeprecationWarning")
@pytest.mark.parametrize("command", [["bench"], ["tune", "--output", "tuning.json"]])
def test_a_float_model_is_told_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*command, str(DIGITS)])
    assert result.exit_code == 1
    assert "found:   a float model: no value of 8 bits, but float32" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "a file cannot be written"),
        (PermissionError(errno.EACCES, "Permission denied"), "the system refuses"),
    ],
)
def test_what_the_system_refuses_is_told_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, told: str
) -> None:
    (tmp_path / "net.tflite").write_bytes(b"a model")
    monkeypatch.chdir(tmp_path)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(sys.modules["tinyai.cli.bench"], "_times", fail)
    result = CliRunner().invoke(main, ["bench", "net.tflite"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {told}\n  found:   [Errno")
    assert "TMPDIR" in result.stderr


CTRL_C = """
import importlib.abc, signal, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {slow!r}:
            signal.raise_signal(signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever runs the tests
sys.meta_path.insert(0, Finder())
"""
SCRIPT = "from tinyai.__main__ import run\nrun()\n"


@pytest.mark.parametrize("how", [["-m", "tinyai"], ["tinyai"]], ids=["module", "script"])
@pytest.mark.parametrize(
    "slow", ["tinyai.imported", "tinyai.target", "click", "tinyai.frontends.tflite.load"]
)
def test_ctrl_c_while_modules_are_imported_is_a_line(
    tmp_path: Path, slow: str, how: list[str]
) -> None:
    """A module that takes long to import asks for the signal when it begins."""
    (tmp_path / "sitecustomize.py").write_text(CTRL_C.format(slow=slow))
    (tmp_path / "tinyai").write_text(SCRIPT)
    (tmp_path / "net.tflite").write_bytes(b"a model")
    command = [sys.executable, *how, "bench", "net.tflite"]
    paths = os.pathsep.join([str(tmp_path), str(Path(tinyai.__file__).parents[1])])
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        check=False,
    )
    assert process.stderr.strip() == "Aborted!"
    assert process.returncode == 130


@pytest.mark.parametrize("kind", ["file", "text"])
def test_ctrl_c_in_other_programs_is_left_to_them(tmp_path: Path, kind: str) -> None:
    text = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import tinyai\n"
        "print(signal.getsignal(signal.SIGINT).__name__)"
    )
    (tmp_path / "program.py").write_text(text)
    what = [tmp_path / "program.py"] if kind == "file" else ["-c", text]
    run = subprocess.run([sys.executable, *what], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "default_int_handler"
