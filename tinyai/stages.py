"""What is being done, for those who want to watch: the commands' ``-v`` and bar. It costs no more.

Stages partition the time: what stages inside of one took is not its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

IMPORTS, OWN_IMPORTS = "imports of TVM", "imports of what the command needs"
READERS_IMPORTS = "imports of the format's reader"
# Called with the name of a stage that ended, and its seconds.
Watcher = Callable[[str, float], None]
T = TypeVar("T")


class Display(Protocol):
    """Shows what is being done while it is being done."""

    def show(self, stages: Sequence[str]) -> None:
        """The names of the stages that run, the outermost first; none where there is none."""

    def track(self, items: Iterable[T], count: int | None) -> Iterator[T]:
        """The items, which the stage that runs takes one by one; ``count`` where it is known."""


@dataclass
class _Watch:
    tell: Watcher
    display: Display | None
    told: float = 0.0  # seconds, of the stages that ended inside of the present one
    running: list[str] = field(default_factory=list)

    def show(self) -> None:
        if self.display is not None:
            self.display.show(tuple(self.running))


_WATCH: ContextVar[_Watch | None] = ContextVar("_WATCH", default=None)


@contextmanager
def watched(
    watcher: Watcher, began: float | None = None, display: Display | None = None
) -> Iterator[None]:
    """``watcher`` is told of every stage that ends within, then of the time that was in none and of
    the whole. ``began`` is when the process did, on ``time.perf_counter``'s clock: what came before
    this block is a stage too. ``display`` is told of stages when they begin and end."""
    start = time.perf_counter()
    watch = _Watch(watcher, display)
    if began is not None:
        watch.told = start - began
        watcher("start and imports of tinyai", watch.told)
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)
        whole = time.perf_counter() - (start if began is None else began)
        watcher("the rest", whole - watch.told)
        watcher("in all", whole)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """What is done within is a stage, but for the stages in it; one that fails is not told of."""
    watch = _WATCH.get()
    if watch is None:
        yield
        return
    before, watch.told = watch.told, 0.0
    watch.running.append(name)
    watch.show()
    start = time.perf_counter()
    try:
        yield
        whole = time.perf_counter() - start
        watch.tell(name, whole - watch.told)
        watch.told = whole
    finally:
        watch.told += before
        watch.running.pop()
        watch.show()


def display() -> Display | None:
    """What shows the stages of this thread, if anything does."""
    watch = _WATCH.get()
    return None if watch is None else watch.display


def tracked(items: Iterable[T], count: int | None = None) -> Iterable[T]:
    """The items, which move the bar of the stage that runs, where one is shown."""
    shown = display()
    return items if shown is None else shown.track(items, count)
