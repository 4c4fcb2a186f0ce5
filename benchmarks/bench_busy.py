"""One network on a machine that does other work: beside busy processes, and on one CPU alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks import workloads
from benchmarks.bench_measure import Settings, build, checked, peers_of
from benchmarks.bench_networks import Case, load
from benchmarks.timing import Calls, calls_in_turn
from tinyai.runtime.timing import SETTLE_SECONDS

# A busy process ends with the one that began it, however that ends.
SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    pass\n"
OURS, ALONE = "tinyai", "tinyai, 1 thread"
# What we promise: so many times a peer's time at most, and our own on one thread.
OF_PEER, OF_ALONE = 1.5, 1.3


@dataclass(frozen=True)
class Condition:
    """``busy`` processes that compute all the time; ``pinned``: they and we on one CPU."""

    busy: int
    pinned: bool

    def __str__(self) -> str:
        return f"{self.busy} busy{', one CPU' if self.pinned else ''}"


@dataclass(frozen=True)
class BusyTimes:
    """The times of one contender's calls in milliseconds, each measured by itself: a median hides
    the calls that a busy machine delays, a mean shows nothing else."""

    name: str
    median_ms: float
    mean_ms: float
    calls: int


@dataclass(frozen=True)
class BusyRow:
    """A network on a number of threads under one condition; ``times`` are ours, ours on one thread,
    and each peer's."""

    condition: Condition
    times: tuple[BusyTimes, ...]


@dataclass(frozen=True)
class BusyRows:
    """A network on a number of threads: a row for each condition, or why there is none."""

    name: str
    kind: str
    threads: int
    rows: tuple[BusyRow, ...] = ()
    problem: str | None = None


def measured_busy(
    case: Case, threads: int, settings: Settings, conditions: Sequence[Condition]
) -> BusyRows:
    """``measure_busy``; what it raises is the problem."""
    try:
        rows = measure_busy(case, threads, settings, conditions)
        return BusyRows(case.name, case.kind, threads, rows)
    except Exception as error:  # as in ``bench_measure.measured``
        problem = f"{type(error).__name__}: {error}"
        return BusyRows(case.name, case.kind, threads, problem=problem)


def measure_busy(
    case: Case, threads: int, settings: Settings, conditions: Sequence[Condition]
) -> tuple[BusyRow, ...]:
    """Load, build and compare on a machine as quiet as it is; then a row for each condition."""
    with workloads.without_tuning_advice():
        network = load(case, settings.cache)
        rounding = settings.rounding_of(case)
        ours = [build(network, count, settings, rounding) for count in (threads, 1)]
        peers = peers_of(network, threads, settings)
        for each in ours:
            checked(network, each, peers, threads, settings)
    names = [OURS, ALONE, *(peer.name for peer in peers)]
    runs = [*(each.executor.run for each in ours), *(peer.run for peer in peers)]
    rows = []
    for condition in conditions:
        with machine(condition):
            times = calls_in_turn(runs, settings.seconds, settle=SETTLE_SECONDS)
        rows.append(BusyRow(condition, tuple(map(_times, names, times))))
    return tuple(rows)


def _times(name: str, calls: Calls) -> BusyTimes:
    return BusyTimes(name, 1000 * calls.median, 1000 * calls.mean, calls.number)


@contextmanager
def machine(condition: Condition) -> Iterator[None]:
    """The machine in this condition."""
    cpus = os.sched_getaffinity(0)
    busy: list[subprocess.Popen[bytes]] = []
    try:
        if condition.pinned:
            _pin({max(cpus)})
        busy += [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(condition.busy)]
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
        _pin(cpus)


def _pin(cpus: set[int]) -> None:
    """All threads of this process, those of pools too; what it begins later inherits it."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cpus)


# --- What is shown -----------------------------------------------------------------------------


def busy_table(found: Sequence[BusyRows]) -> Table:
    """One line for each row and contender; red is what breaks a promise."""
    title = f"Beside busy processes: ms of single calls; ratio = other / {OURS}"
    table = Table(title=title, title_justify="left")
    columns = ("network", "threads", "busy", "one CPU", "who", "median", "mean")
    for column in (*columns, "ratio of medians", "of means"):
        text = column in ("network", "one CPU", "who")
        table.add_column(column, justify="left" if text else "right", overflow="fold")
    for network in found:
        for row in network.rows:
            ours, *others = row.times
            condition = row.condition
            where = [network.name, str(network.threads), str(condition.busy)]
            first = [*where, "yes" if condition.pinned else "no", OURS]
            table.add_row(*first, *map(_ms, (ours.median_ms, ours.mean_ms)))
            for other in others:
                least = 1 / (OF_ALONE if other.name == ALONE else OF_PEER)
                ratios = (other.median_ms / ours.median_ms, other.mean_ms / ours.mean_ms)
                cells = (f"{each:.2f}" if each >= least else f"[red]{each:.2f}" for each in ratios)
                milliseconds = map(_ms, (other.median_ms, other.mean_ms))
                table.add_row(*[""] * 4, other.name, *milliseconds, *cells)
            table.add_section()
    return table


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"
