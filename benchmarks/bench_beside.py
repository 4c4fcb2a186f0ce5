"""One network in a process where another runtime computes too: in turns, in short slices.

A pool keeps its threads awake for a while when its work is done, and whoever computes next shares
the CPUs with them. So a slice of ours is looked at call by call: whether the other pool sleeps when
the call begins (as /proc tells), and whether the system took the CPU from the caller meanwhile.
"""

from __future__ import annotations

import ctypes
import functools
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks import workloads
from benchmarks.bench_measure import Settings, build
from benchmarks.bench_networks import Case, Network, load
from benchmarks.timing import c_library
from tinyai.checking.peers import OnnxRuntime, OpenVino
from tinyai.errors import OptionError

OTHERS = ("onnxruntime", "openvino", "openmp")
SLICE = 0.08  # seconds
ASLEEP = 0.3  # seconds behind which no pool is awake
# What we promise: of the calls that begin when the other pool sleeps, by the undisturbed time on so
# many threads; of 99 % of all that were not interrupted, by the time on one.
OF_UNDISTURBED, OF_ALONE, SHARE = 1.25, 1.5, 0.99
_NUMBERS = 1 << 20  # that OpenMP's threads add up


@dataclass(frozen=True)
class Call:
    """A call of ours: how long it took in seconds, whether the other pool slept when it began, and
    whether the system gave the caller's CPU to somebody else meanwhile."""

    seconds: float
    slept: bool
    interrupted: bool


@dataclass(frozen=True)
class BesideRow:
    """Our calls in turns with ``other``; times in milliseconds. ``slept_ratios`` has for each slice
    the median of the calls that began when the other pool slept, as a multiple of the undisturbed
    time; ``slow`` is the 99th percentile of calls that nobody interrupted, as a multiple of the
    time on one thread."""

    other: str
    undisturbed_ms: float
    alone_ms: float
    median_ms: float
    mean_ms: float
    calls: int
    slept_ratios: tuple[float, ...]
    within: float
    slow: float

    @property
    def worst(self) -> float:
        return max(self.slept_ratios, default=float("nan"))

    @property
    def kept(self) -> float:
        """The share of the slices that keep the promise."""
        kept = sum(each <= OF_UNDISTURBED for each in self.slept_ratios)
        return kept / len(self.slept_ratios) if self.slept_ratios else float("nan")


@dataclass(frozen=True)
class BesideRows:
    """A network on a number of threads: a row for each other runtime, or why there is none."""

    name: str
    kind: str
    threads: int
    rows: tuple[BesideRow, ...] = ()
    problem: str | None = None


def measured_beside(
    case: Case, threads: int, settings: Settings, others: Sequence[str]
) -> BesideRows:
    """``measure_beside``; what it raises is the problem."""
    try:
        rows = tuple(measure_beside(case, threads, settings, others))
        return BesideRows(case.name, case.kind, threads, rows)
    except Exception as error:  # as in ``bench_measure.measured``
        problem = f"{type(error).__name__}: {error}"
        return BesideRows(case.name, case.kind, threads, problem=problem)


def measure_beside(
    case: Case, threads: int, settings: Settings, others: Sequence[str]
) -> Iterator[BesideRow]:
    """Our entry without a framework, undisturbed on so many threads and on one, and then in turns
    with each other runtime, which has the same network (OpenMP: a sum) on as many threads."""
    with workloads.without_tuning_advice():
        network = load(case, settings.cache)
        rounding = settings.rounding_of(case)
        ours, alone = (_entry(network, count, settings, rounding) for count in (threads, 1))
    for name in others:
        before = _threads()
        other = _runner_of(name, network, threads)
        other()
        pool = _threads() - before
        undisturbed = _slices(ours, lambda: time.sleep(ASLEEP), set(), settings.seconds / 4)
        single = _slices(alone, lambda: time.sleep(ASLEEP), set(), settings.seconds / 4)
        found = _slices(ours, functools.partial(_for_a_slice, other), pool, settings.seconds)
        yield _row(name, _all(undisturbed), _all(single), found)


def _entry(
    network: Network, threads: int, settings: Settings, rounding: str
) -> Callable[[], object]:
    entry = build(network, threads, settings, rounding).entry
    if entry is None:
        raise OptionError(
            "--beside", found="a network that the host computes in part", allowed="one region"
        )
    return entry(network.inputs[0])


def _runner_of(name: str, network: Network, threads: int) -> Callable[[], object]:
    content, kind = network.content, network.case.kind
    if name == "openmp":
        return _openmp(threads)
    if content is None or (name == "onnxruntime" and kind != "onnx"):
        raise OptionError("--beside", found=f"{name} on a {kind} network", allowed="an ONNX one")
    peer = (
        OnnxRuntime(content, threads)
        if name == "onnxruntime"
        else OpenVino(content, threads, f".{kind}")
    )
    peer.outputs(network.inputs[0])
    return peer.run


def _openmp(threads: int) -> Callable[[], object]:
    work = c_library("openmp_work.c", ("-O2", "-fopenmp")).sum_of_squares
    work.restype = ctypes.c_double
    work.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
    numbers = np.ones(_NUMBERS)

    def run() -> None:
        assert work(numbers.ctypes.data, numbers.size, threads) == numbers.size

    return run


# --- Slices ------------------------------------------------------------------------------------


def _for_a_slice(run: Callable[[], object]) -> None:
    end = time.perf_counter() + SLICE
    while time.perf_counter() < end:
        run()


def _slices(
    run: Callable[[], object], between: Callable[[], None], pool: set[int], seconds: float
) -> list[list[Call]]:
    """Slices of calls for so many seconds, behind something else each."""
    between()
    _for_a_slice(run)  # the first one finds nothing ready
    found = []
    for _ in range(max(3, round(seconds / SLICE))):
        between()
        found.append(list(_calls(run, pool)))
    return found


def _calls(run: Callable[[], object], pool: set[int]) -> Iterator[Call]:
    end = time.perf_counter() + SLICE
    while time.perf_counter() < end:
        slept = _sleeps(pool)
        switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        begin = time.perf_counter()
        run()
        seconds = time.perf_counter() - begin
        after = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        yield Call(seconds, slept, after != switches)


def _threads() -> set[int]:
    return {int(each) for each in os.listdir("/proc/self/task")}


def _sleeps(pool: set[int]) -> bool:
    """Whether no thread of a pool runs or could."""
    return all("\nState:\tS" in Path(f"/proc/self/task/{each}/status").read_text() for each in pool)


def _all(slices: Sequence[Sequence[Call]]) -> float:
    """The median of all calls."""
    return statistics.median(call.seconds for each in slices for call in each)


def _row(
    name: str, undisturbed: float, alone: float, slices: Sequence[Sequence[Call]]
) -> BesideRow:
    calls = [call for each in slices for call in each]
    times = [call.seconds for call in calls]
    asleep = [[call.seconds for call in each if call.slept] for each in slices]
    quiet = [call.seconds / alone for call in calls if not call.interrupted]
    return BesideRow(
        name,
        1000 * undisturbed,
        1000 * alone,
        1000 * statistics.median(times),
        1000 * statistics.fmean(times),
        len(calls),
        tuple(statistics.median(each) / undisturbed for each in asleep if each),
        sum(each <= OF_ALONE for each in quiet) / len(quiet) if quiet else float("nan"),
        float(np.quantile(quiet, SHARE)) if quiet else float("nan"),
    )


# --- What is shown -----------------------------------------------------------------------------


def beside_table(found: Sequence[BesideRows]) -> Table:
    """One line for each row; red is what breaks a promise."""
    table = Table(
        title=f"In turns with another runtime, slices of {1000 * SLICE:.0f} ms: ms of single calls",
        title_justify="left",
    )
    columns = ("network", "threads", "beside", "undisturbed", "1 thread", "median", "mean", "calls",
               "slices asleep", f"within {OF_UNDISTURBED}", "worst slice",
               f"calls within {OF_ALONE} of 1 thread")  # fmt: skip
    for column in columns:
        text = column in ("network", "beside")
        table.add_column(column, justify="left" if text else "right", overflow="fold")
    for network in found:
        for row in network.rows:
            times = (row.undisturbed_ms, row.alone_ms, row.median_ms, row.mean_ms)
            table.add_row(
                network.name,
                str(network.threads),
                row.other,
                *(f"{each:.3f}" for each in times),
                str(row.calls),
                str(len(row.slept_ratios)),
                _marked(f"{row.kept:.0%}", row.kept == 1),
                f"{row.worst:.2f}",
                _marked(f"{row.within:.1%}", row.within >= SHARE),
            )
    return table


def _marked(text: str, kept: bool) -> str:
    return text if kept else f"[red]{text}[/red]"
