"""Time of whole ``tinyai compile`` commands, from the start of the process to its end.

    python -m benchmarks.compile_time --runs 5

*Cold* begins with an empty cache of tinyai's; *warm* with that of another network, which was
compiled once before with the same options, and never this one. Each run has a cache of its own.
Prints medians in seconds: of the clock, of the processors (the compiler's included), and of the
stages that ``-v`` tells, those of Python as one.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks import onnx_networks

MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"
COMPILER = "C compiler"
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
STAGE = re.compile(r"^ *([0-9.]+) s  (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Network:
    """A model, the ``other`` one that fills a warm cache, and the options of both: files of the
    models beside the project, or functions of ``onnx_networks``."""

    model: str
    other: str
    options: tuple[str, ...] = ()

    def command(self, model: Path, output: Path) -> list[str]:
        tinyai = [sys.executable, "-m", "tinyai", "compile", "-v"]
        return [*tinyai, str(model), "-o", str(output), *self.options]


NETWORKS = {
    "kws": Network("kws_ref_model.tflite", "vww_96_int8.tflite"),
    "mobilenet_v2": Network(
        "mobilenet_v2_int8.tflite", "mobilenet_v1_int8.tflite", ("--isa", "native")
    ),
    "mobilenet_v2_qdq": Network("mobilenet_v2", "resnet50"),
    "resnet50_qdq": Network("resnet50", "mobilenet_v2"),
}


@dataclass(frozen=True)
class Times:
    """Seconds of one command: of the clock, of the processors, and of its stages by name."""

    clock: float
    processors: float
    stages: dict[str, float]


def file_of(model: str, folder: Path) -> Path:
    """The file of a network, which is made in ``folder`` where it is a function's."""
    if model.endswith(".tflite"):
        return MODELS / model
    file = folder / f"{model}.onnx"
    if not file.is_file():
        onnx.save(onnx_networks.quantize(getattr(onnx_networks, model)(), form="qdq"), file)
    return file


def run(command: Sequence[str], cache: Path) -> Times:
    """Run a command with a cache. Raises ``CalledProcessError`` where it fails."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # An installed package has its bytecode, so that what is measured may keep some too.
    others = {name: value for name, value in os.environ.items() if name != _NO_BYTECODE}
    environment = {**others, "XDG_CACHE_HOME": str(cache)}
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    clock, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processors = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Times(clock, processors, {name: float(s) for s, name in STAGE.findall(told.stderr)})


def measure(network: Network, folder: Path, runs: int) -> dict[str, list[Times]]:
    """Cold and warm runs by turns."""
    model, other = (file_of(name, folder) for name in (network.model, network.other))
    filled, cache, output = folder / "filled", folder / "cache", folder / "network.so"
    shutil.rmtree(filled, ignore_errors=True)
    run(network.command(other, output), filled)
    times = defaultdict[str, list[Times]](list)
    for _ in range(runs):
        for kind in ("cold", "warm"):
            shutil.rmtree(cache, ignore_errors=True)
            if kind == "warm" and filled.is_dir():
                shutil.copytree(filled, cache)
            times[kind].append(run(network.command(model, output), cache))
    return times


def row(times: Sequence[Times]) -> list[str]:
    """Medians: the clock, the processors, Python's stages together, and the compiler's."""
    compiler = statistics.median(each.stages[COMPILER] for each in times)
    clock = statistics.median(each.clock for each in times)
    processors = statistics.median(each.processors for each in times)
    return [f"{value:.2f}" for value in (clock, processors, clock - compiler, compiler)]


@click.command()
@click.option("--network", "names", type=click.Choice(list(NETWORKS)), multiple=True)
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True)
@click.option("--stages", is_flag=True, help="Print the medians of all stages too.")
def main(names: tuple[str, ...], runs: int, stages: bool) -> None:
    """Measure each --network (all of them by default)."""
    table = Table()
    for column in ("network", "cache", "clock", "processors", "Python", "C compiler"):
        table.add_column(column, justify="right" if column[0] in "cpPC" else "left")
    with tempfile.TemporaryDirectory(prefix="tinyai-bench-") as folder:
        for name in names or NETWORKS:
            for kind, times in measure(NETWORKS[name], Path(folder), runs).items():
                table.add_row(name, kind, *row(times))
                for stage in times[0].stages if stages else ():
                    seconds = statistics.median(each.stages[stage] for each in times)
                    print(f"{name} {kind}: {seconds:.3f} s  {stage}")
    Console().print(table)


if __name__ == "__main__":
    main()
