"""From the start of a process to its first result: a library with tinyai's regions, and TVM's own
library of the same network.

    TOPHUB_LOCATION=NONE python -m benchmarks.startup --runs 21

Each measured process imports TVM (never tinyai), loads one library and runs it once. Processes of
the two sides take turns. Prints medians in milliseconds, and the ratio of ours to TVM's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import tinyai
from benchmarks import workloads

NETWORKS = {"digits": workloads.digits, "mobilenet_v1": workloads.mobilenet_v1}
SIDES = ("tinyai", "TVM")

# The clock counts from the same moment in every process of the machine.
CHILD = """
import json, sys, time
import numpy as np, tvm
from tvm.contrib import graph_executor
sample = np.load(sys.argv[3])
imported = time.monotonic()
executor = graph_executor.GraphModule(tvm.runtime.load_module(sys.argv[1])["default"](tvm.cpu()))
executor.set_input(sys.argv[2], sample)
loaded = time.monotonic()
executor.run()
result = executor.get_output(0).numpy()
done = time.monotonic()
assert "tinyai" not in sys.modules
json.dump([imported, loaded, done, time.process_time(), result.ravel().tolist()], sys.stdout)
"""


@dataclass(frozen=True)
class Start:
    """One process: moments in seconds since its start, the processor time that it took in all, and
    the values of its first result."""

    imported: float
    loaded: float
    done: float
    processor: float
    result: tuple[float, ...]

    @property
    def spans(self) -> dict[str, float]:
        """Milliseconds by what they were spent on."""
        seconds = {
            "start to first result": self.done,
            "the same in processor time": self.processor,
            "load to first result": self.done - self.imported,
            "of it loading": self.loaded - self.imported,
            "of it the first run": self.done - self.loaded,
        }
        return {name: 1000 * value for name, value in seconds.items()}


def start(library: Path, input_name: str, sample: Path) -> Start:
    """Run one process. Raises ``CalledProcessError`` where it fails."""
    command = [sys.executable, "-c", CHILD, str(library), input_name, str(sample)]
    begun = time.monotonic()
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    imported, loaded, done, processor, result = json.loads(output)
    return Start(imported - begun, loaded - begun, done - begun, processor, tuple(result))


def build_libraries(workload: workloads.Workload, host: str) -> dict[str, Path]:
    """Both sides' libraries, as export_library writes them by default."""
    folder = workloads.BUILD / "startup"
    folder.mkdir(parents=True, exist_ok=True)
    modules = {"tinyai": tinyai.partition_for_tinyai(workload.quantized), "TVM": workload.quantized}
    paths = {side: folder / f"{workload.name}-{side.lower()}.so" for side in SIDES}
    for side, path in paths.items():
        with workloads.without_tuning_advice():
            workloads.build_with_tvm(modules[side], host).export_library(str(path))
    return paths


def measure(workload: workloads.Workload, host: str, runs: int) -> dict[str, list[Start]]:
    """``runs`` processes of each side, by turns, after one of each that is not counted."""
    libraries = build_libraries(workload, host)
    sample = workloads.BUILD / "startup" / f"{workload.name}.npy"
    np.save(sample, workload.samples[0])
    found: dict[str, list[Start]] = {side: [] for side in SIDES}
    for turn in range(runs + 1):
        for side in SIDES[:: 1 if turn % 2 else -1]:
            one = start(libraries[side], workload.input, sample)
            if turn:
                found[side].append(one)
    ours, theirs = (found[side][0].result for side in SIDES)
    np.testing.assert_array_equal(ours, theirs)
    return found


def report(title: str, found: dict[str, Sequence[Start]]) -> Table:
    """Medians, the middle half of the values, and the ratio of the medians."""
    table = Table(title=f"{title}: milliseconds, median (quartiles)", title_justify="left")
    for column in ("", *SIDES, "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    for name in found[SIDES[0]][0].spans:
        values = {side: [one.spans[name] for one in found[side]] for side in SIDES}
        ratio = statistics.median(values[SIDES[0]]) / statistics.median(values[SIDES[1]])
        table.add_row(name, *(_spread(values[side]) for side in SIDES), f"{ratio:.3f}")
    return table


def _spread(values: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


@click.command()
@click.option("--network", "names", type=click.Choice(list(NETWORKS)), multiple=True)
@click.option("--runs", type=click.IntRange(2), default=21, show_default=True)
@click.option("--host", default="llvm", show_default=True, help="TVM's target for the host.")
def main(names: tuple[str, ...], runs: int, host: str) -> None:
    """Measure the start of a process on each --network (all of them by default)."""
    for name in names or NETWORKS:
        with workloads.without_tuning_advice():
            workload = NETWORKS[name](workloads.BUILD / "quantized")
        Console().print(report(workload.title, measure(workload, host, runs)))


if __name__ == "__main__":
    main()
