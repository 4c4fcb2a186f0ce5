"""Times of programs that take turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Mean seconds of one run over a number of runs.
Contender = Callable[[int], float]

ROUNDS = 15
FEWEST_ROUNDS = 3
# Threads of a pool spin for a while when their work is done, TVM's for 0.15 seconds: the next
# contender would share its CPU with one.
SETTLE_SECONDS = 0.2


@dataclass(frozen=True)
class Times:
    """Median seconds of a run over the rounds; ``spread`` is the distance of the quartiles as a
    share of it. On a quiet machine that is a few hundredths."""

    median: float
    spread: float


def in_turn(contenders: Sequence[Contender], seconds: float, *, settle: float) -> list[Times]:
    """Times of each contender; ``seconds`` is about what each may take in all, ``settle`` how long
    nothing runs between them.

    They take turns in short slices, every second round backwards, because clocks drift; each
    slice begins with a run that does not count. However slow they are, there are
    ``FEWEST_ROUNDS`` rounds of one run.
    """
    first = [_after_warming_up(each, 1, settle) for each in contenders]
    slice_seconds = seconds / ROUNDS
    numbers = [max(1, round(slice_seconds / max(each, 1e-9))) for each in first]
    longest = max((n * each for n, each in zip(numbers, first, strict=True)), default=0)
    rounds = min(ROUNDS, max(FEWEST_ROUNDS, int(seconds / max(longest, 1e-9))))
    times: list[list[float]] = [[] for _ in contenders]
    order = list(range(len(contenders)))
    for _ in range(rounds):
        for position in order:
            found = _after_warming_up(contenders[position], numbers[position], settle)
            times[position].append(found)
        order.reverse()
    quartiles = (statistics.quantiles(each, n=4, method="inclusive") for each in times)
    return [Times(median, (high - low) / median) for low, median, high in quartiles]


def _after_warming_up(contender: Contender, number: int, settle: float) -> float:
    time.sleep(settle)
    contender(1)
    return contender(number)


def loop(run: Callable[[], object]) -> Contender:
    """Calls of a Python function in a tight loop, by the wall clock."""

    def seconds(number: int) -> float:
        turns = range(number)
        start = time.perf_counter()
        for _ in turns:
            run()
        return (time.perf_counter() - start) / number

    return seconds


def geometric_mean(values: Sequence[float]) -> float | None:
    """None of no values."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else None
