"""`make demo`: a network, quantized by TVM, taken over by tinyai, compared with TVM itself.

    python benchmarks/demo.py             # the digits network: less than a minute
    python benchmarks/demo.py --full      # MobileNetV1 too, which TVM itself builds for two minutes

Prints a table and leaves the C files, the libraries and the figures (``demo.json``) in build/demo.
The exit code is 1 where a result differs from TVM's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file

import numpy as np
import psutil
import tvm
from rich.console import Console
from rich.table import Table
from tvm import relay

import tinyai
from benchmarks import workloads
from benchmarks.workloads import Array, Workload
from tinyai.backend import compile_graph
from tinyai.frontends.relay import regions
from tinyai.frontends.relay.source import graph_from_region
from tinyai.runtime.tvm_module import c_sources
from tinyai.target import Target

ROUNDS = 15
ROUND_SECONDS = 0.05
# For integers the flags of LLVM change nothing but the time it takes.
INTEGER_TARGET = "llvm -opt-level=1"


@dataclass(frozen=True)
class Accuracy:
    """Correct answers of ``images``."""

    images: int
    float_on_tvm: int
    int8_on_tvm: int
    int8_on_tinyai: int


@dataclass(frozen=True)
class Cost:
    """From the quantized module to the loaded library, in a process of its own.

    ``peak_mib`` is the memory (RSS) of that process, TVM and module included, and of its compiler.
    """

    seconds: float
    peak_mib: float


@dataclass(frozen=True)
class Figures:
    """What the table shows of one network.

    - ``inside``, ``outside``: how often each operator occurs in the regions, and beside them.
    - ``difference``: largest absolute difference of the network's output from TVM's;
      ``integer_difference`` that of the region's integers, before they are dequantized.
    - ``distinct_integers``: how many values those take; one would prove nothing.
    - ``tvm_ms``, ``tinyai_ms``: medians of a run; ``ratio`` of ours to TVM's.
    """

    name: str
    title: str
    regions: int
    inside: dict[str, int]
    outside: dict[str, int]
    c_lines: int
    weight_bytes: int
    arena_bytes: int
    inputs: int
    difference: float
    integer_difference: int
    distinct_integers: int
    accuracy: Accuracy | None
    tvm_ms: float
    tinyai_ms: float
    ratio: float
    cost: Cost | None
    files: tuple[str, ...]

    @property
    def problems(self) -> list[str]:
        """Why this network shows that something is wrong; empty where all is well."""
        found = []
        if self.difference or self.integer_difference:
            worst = max(self.difference, self.integer_difference)
            found.append(f"{self.title} differs from TVM by up to {worst:g}")
        if self.distinct_integers < 2:
            found.append(f"{self.title} has died out: its integers are all the same")
        return found


def main() -> None:
    """Run the demo on the small network, or on both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="MobileNetV1 224 too: minutes")
    full = parser.parse_args().full
    os.environ["TVM_NUM_THREADS"] = "1"  # read when TVM runs its first operator
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    networks = (workloads.digits, workloads.mobilenet_v1)[: 1 + full]
    sys.exit(demo(networks, workloads.BUILD / "demo", workloads.BUILD / "cache", cost=full))


def demo(
    networks: Sequence[Callable[[Path], Workload]],
    folder: Path,
    cache: Path,
    console: Console | None = None,
    *,
    cost: bool = True,
) -> int:
    """Measure ``networks``, print the table, write ``folder``; the exit code. Without ``cost`` none
    is built once more in a process of its own."""
    console = console or Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    host = workloads.host_target()
    with workloads.without_tuning_advice():
        figures = [measure(network, folder, cache, host, console, cost) for network in networks]
    problems = [problem for each in figures for problem in each.problems]
    report = {
        "equal": not problems,
        "machine": {
            "cpu": cpu_name(),
            "tvm": tvm.__version__,
            "tvm_target": host,
            "disabled_passes": list(workloads.disabled_passes(host, exact=True)),
            "threads": 1,
        },
        "networks": [asdict(each) for each in figures],
    }
    workloads.write_whole(folder / "demo.json", json.dumps(report, indent=2) + "\n")
    console.print(table(figures))
    console.print(f"Latency: medians at one thread, TVM untuned; both built for {host}.")
    console.print(f"C files, libraries and these figures (demo.json) are in {_shown(folder)}.")
    for problem in problems:
        console.print(f"[bold red]error: {problem}")
    if not problems:
        console.print("[green]Equal to TVM, bit for bit.")
    return int(bool(problems))


def measure(
    network: Callable[[Path], Workload],
    folder: Path,
    cache: Path,
    host: str,
    console: Console,
    with_cost: bool,
) -> Figures:
    """All figures of one network; its C files and its library go to ``folder``."""
    with _step(console, f"{network.__name__}: quantizing (some seconds, once)"):
        work = network(cache)
    with _step(console, f"{work.title}: partitioning, generating C, building the library"):
        partitioned = tinyai.partition_for_tinyai(work.quantized, mod_name=work.name)
        built = workloads.build_with_tvm(partitioned, host)
        library = folder / f"{work.name}.so"
        workloads.export_whole(built, library)
        files = [library, *_write_sources(built, partitioned, folder)]
        ours = workloads.executor_of(tvm.runtime.load_module(str(library)))
    with _step(console, f"{work.title}: building TVM's own int8 (minutes for a large one, once)"):
        theirs, exact = (
            workloads.executor_of(workloads.tvm_library(work.quantized, host, cache, exact=each))
            for each in (False, True)
        )
    with _step(console, f"{work.title}: comparing {len(work.samples)} results"):
        expected = workloads.outputs(exact, work.input, work.samples)
        found = workloads.outputs(ours, work.input, work.samples)
        integer_difference, distinct = compare_integers(work, cache)
        usual = workloads.outputs(theirs, work.input, work.samples)
    equal = _equal(expected, found)
    console.print(f"{work.title}: {equal} of {len(found)} results equal TVM's, bit for bit")
    if saturated := len(found) - _equal(expected, usual):
        console.print(
            f"{work.title}: TVM as it is timed gives {saturated} other results: for this CPU it "
            "adds two products in 16 bits, which saturate; without its pass "
            f"{workloads.SATURATING_PASS}, as compared, it does not"
        )
    with _step(console, f"{work.title}: measuring accuracy and latency"):
        accuracy = _accuracy(work, expected, found, cache)
        tvm_ms, tinyai_ms = _latencies(theirs, ours)
    cost = None
    if with_cost:
        with _step(console, f"{work.title}: building again, to measure time and memory"):
            cost = build_cost(work.quantized, host)
    compiled = [
        compile_graph(graph_from_region(func), Target()) for func in regions(partitioned).values()
    ]
    return Figures(
        name=work.name,
        title=work.title,
        regions=len(compiled),
        inside=_operators(*regions(partitioned).values()),
        outside=_operators(partitioned["main"]),
        c_lines=sum(each.source.text.count("\n") for each in compiled),
        weight_bytes=sum(each.source.weight_bytes for each in compiled),
        arena_bytes=max((each.source.arena_bytes for each in compiled), default=0),
        inputs=len(work.samples),
        difference=_largest_difference(expected, found),
        integer_difference=integer_difference,
        distinct_integers=distinct,
        accuracy=accuracy,
        tvm_ms=tvm_ms,
        tinyai_ms=tinyai_ms,
        ratio=tinyai_ms / tvm_ms,
        cost=cost,
        files=tuple(path.name for path in files),
    )


def _equal(some: Array, others: Array) -> int:
    return int(np.sum([np.array_equal(a, b) for a, b in zip(some, others, strict=True)]))


def compare_integers(work: Workload, cache: Path) -> tuple[int, int]:
    """The largest difference of the integers that the network dequantizes, and how many distinct
    values they take."""
    part = workloads.integer_part(work.quantized)
    theirs = workloads.executor_of(workloads.tvm_library(part, INTEGER_TARGET, cache))
    ours = workloads.executor_of(tinyai.build(part))
    expected = workloads.outputs(theirs, work.input, work.samples)
    found = workloads.outputs(ours, work.input, work.samples)
    return int(_largest_difference(expected, found)), len(np.unique(expected))


def _largest_difference(expected: Array, found: Array) -> float:
    # A NaN that only one side has is a difference, too.
    if not np.array_equal(np.isnan(expected), np.isnan(found)):
        return float("inf")
    return float(np.nanmax(np.abs(expected.astype(np.float64) - found.astype(np.float64))))


def _accuracy(
    work: Workload, int8_on_tvm: Array, int8_on_tinyai: Array, cache: Path
) -> Accuracy | None:
    if work.labels is None:
        return None
    executor = workloads.executor_of(workloads.tvm_library(work.float_module, "llvm", cache))
    results = (
        workloads.outputs(executor, work.input, work.samples),
        int8_on_tvm,
        int8_on_tinyai,
    )
    correct = [
        int(np.sum(result.reshape(len(result), -1).argmax(axis=1) == work.labels))
        for result in results
    ]
    return Accuracy(len(work.labels), *correct)


def _latencies(*executors: Any) -> tuple[float, ...]:
    """Medians in milliseconds. The executors take turns, because clocks drift."""
    numbers = []
    for executor in executors:
        start = time.perf_counter()
        executor.run()
        numbers.append(max(1, round(ROUND_SECONDS / (time.perf_counter() - start))))
    times: list[list[float]] = [[] for _ in executors]
    for _ in range(ROUNDS):
        for executor, number, each in zip(executors, numbers, times, strict=True):
            evaluate = executor.module.time_evaluator("run", tvm.cpu(), number=number)
            each.append(1000 * evaluate().mean)
    return tuple(statistics.median(each) for each in times)


# --- Build time and memory ---------------------------------------------------------------------


def build_cost(quantized: tvm.IRModule, host: str) -> Cost:
    """Build ``quantized`` in a new process and watch its memory."""
    # A fork would carry this process's memory; a spawned one starts empty.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        child = psutil.Process(pool.submit(os.getpid).result())
        with workloads.peak_memory(child) as peak:
            seconds = pool.submit(_build_seconds, tvm.ir.save_json(quantized), host).result()
    return Cost(seconds, peak[0] / workloads.MEBI)


def _build_seconds(text: str, host: str) -> float:
    quantized = tvm.ir.load_json(text)
    with workloads.without_tuning_advice():
        start = time.perf_counter()
        tinyai.build(quantized, target=f"tinyai, {host}")["default"](tvm.cpu())
        return time.perf_counter() - start


# --- What is shown -----------------------------------------------------------------------------


def table(figures: Sequence[Figures]) -> Table:
    """One column a network."""
    result = Table(title="tinyai against TVM's own int8 on the CPU")
    result.add_column("")
    for each in figures:
        result.add_column(each.title, overflow="fold")
    columns = [dict(_column(each)) for each in figures]
    for label in columns[0] if columns else ():
        result.add_row(label, *(column[label] for column in columns))
    return result


def _column(each: Figures) -> list[tuple[str, str]]:
    accuracy = each.accuracy
    return [
        ("regions", f"{each.regions}"),
        ("operators in them", _counts(each.inside)),
        ("operators on the host", _counts(each.outside)),
        ("lines of C", f"{each.c_lines:,}"),
        ("weights", f"{each.weight_bytes:,} bytes"),
        ("arena", f"{each.arena_bytes:,} bytes"),
        ("inputs compared", f"{each.inputs:,}"),
        ("largest difference, network", f"{each.difference:g}"),
        (
            "largest difference, integers",
            f"{each.integer_difference} ({each.distinct_integers} distinct values)",
        ),
        ("accuracy, float", _share(accuracy, "float_on_tvm")),
        ("accuracy, int8 on TVM", _share(accuracy, "int8_on_tvm")),
        ("accuracy, int8 on tinyai", _share(accuracy, "int8_on_tinyai")),
        ("latency, TVM's int8", f"{each.tvm_ms:.3f} ms"),
        ("latency, tinyai", f"{each.tinyai_ms:.3f} ms ({each.ratio:.2f} of TVM's)"),
        *_cost_row(each.cost),
    ]


def _cost_row(cost: Cost | None) -> list[tuple[str, str]]:
    if cost is None:
        return []
    return [("module to loaded library", f"{cost.seconds:.1f} s, {cost.peak_mib:,.0f} MiB")]


def _counts(operators: dict[str, int]) -> str:
    names = ", ".join(f"{count} {name}" for name, count in operators.items())
    return f"{sum(operators.values())}: {names}"


def _share(accuracy: Accuracy | None, which: str) -> str:
    if accuracy is None:
        return "random weights"
    correct = getattr(accuracy, which)
    return f"{100 * correct / accuracy.images:.2f} % ({correct} of {accuracy.images})"


def _operators(*functions: relay.Function) -> dict[str, int]:
    """How often each operator is called, the most frequent first."""
    counts: Counter[str] = Counter()

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            counts[expr.op.name] += 1

    for function in functions:
        relay.analysis.post_order_visit(function.body, visit)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _write_sources(built: Any, partitioned: tvm.IRModule, folder: Path) -> list[Path]:
    """The C file of each region, under its symbol."""
    written = []
    for variable in regions(partitioned):
        symbol = variable.name_hint
        (text,) = (text for text in c_sources(built) if text.startswith(f"/* {symbol}:"))
        path = folder / f"{symbol}.c"
        workloads.write_whole(path, text)
        written.append(path)
    return written


@contextmanager
def _step(console: Console, what: str) -> Iterator[None]:
    """Say what is going on, and how long it took."""
    start = time.perf_counter()
    with console.status(f"{what} …"):
        yield
    console.print(f"{what}: {time.perf_counter() - start:.1f} s")


def cpu_name() -> str:
    """The processor as the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _shown(folder: Path) -> str:
    """The folder as seen from here, where that is shorter."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


if __name__ == "__main__":
    main()
