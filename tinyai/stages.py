"""What is being done, for those who want to watch: the commands' ``-v``. Costs nothing else.

Stages partition the time: what stages inside of one took is not its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

IMPORTS, OWN_IMPORTS = "imports of TVM", "imports of what the command needs"
READERS_IMPORTS = "imports of the format's reader"
# Called with the name of a stage that ended, and its seconds.
Watcher = Callable[[str, float], None]


@dataclass
class _Watch:
    tell: Watcher
    told: float = 0.0  # seconds, of the stages that ended inside of the present one


_WATCH: ContextVar[_Watch | None] = ContextVar("_WATCH", default=None)


@contextmanager
def watched(watcher: Watcher, began: float | None = None) -> Iterator[None]:
    """``watcher`` is told of every stage that ends within, then of the time that was in none and of
    the whole. ``began`` is when the process did, on ``time.perf_counter``'s clock: what came before
    this block is a stage too."""
    start = time.perf_counter()
    watch = _Watch(watcher)
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
    start = time.perf_counter()
    try:
        yield
        whole = time.perf_counter() - start
        watch.tell(name, whole - watch.told)
        watch.told = whole
    finally:
        watch.told += before
