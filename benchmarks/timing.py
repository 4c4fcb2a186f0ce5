"""Times of single calls, and of calls from C."""

from __future__ import annotations

import ctypes
import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tinyai.runtime.runner import BoundCall
from tinyai.runtime.timing import ROUNDS, Contender
from tinyai.runtime.toolchain import Toolchain


@dataclass(frozen=True)
class Calls:
    """Seconds of single calls: their median and mean, and how many there were."""

    median: float
    mean: float
    number: int


def calls_in_turn(
    runs: Sequence[Callable[[], object]], seconds: float, *, settle: float
) -> list[Calls]:
    """Times of the single calls of each function, which may take ``seconds`` each in all; they take
    turns as in ``in_turn``."""
    times: list[list[float]] = [[] for _ in runs]
    order = list(range(len(runs)))
    for _ in range(ROUNDS):
        for position in order:
            time.sleep(settle)
            runs[position]()
            times[position] += _calls(runs[position], seconds / ROUNDS)
        order.reverse()
    return [Calls(statistics.median(each), statistics.fmean(each), len(each)) for each in times]


def _calls(run: Callable[[], object], seconds: float) -> list[float]:
    """Times of single calls for so long, of one at least."""
    times = []
    before = time.perf_counter()
    end = before + seconds
    while not times or before < end:
        run()
        now = time.perf_counter()
        times.append(now - before)
        before = now
    return times


# --- C -----------------------------------------------------------------------------------------


def c_calls(call: BoundCall) -> Contender:
    """Calls of an entry in a loop in C. Raises ``ToolchainError`` without a C compiler."""
    mean = c_library("entry_calls.c", ("-O2",)).mean_seconds
    mean.restype = ctypes.c_double
    mean.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long]

    def seconds(number: int) -> float:
        pointers = call.input_pointers, call.output_pointers
        return float(mean(call.entry, *pointers, call.arena, number))

    return seconds


@functools.cache
def c_library(name: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    """A C file beside this one, compiled and loaded."""
    with tempfile.TemporaryDirectory(prefix="tinyai-bench-") as folder:
        library = Path(folder) / "bench.so"
        Toolchain(flags=flags).shared_library(library, [Path(__file__).with_name(name)])
        return ctypes.CDLL(str(library))
