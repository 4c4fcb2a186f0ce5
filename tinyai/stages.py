"""What is being done, for those who want to watch: the commands' ``-v``. Costs nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Called with the name of a stage that ended, and its seconds.
Watcher = Callable[[str, float], None]
_WATCHER: ContextVar[Watcher | None] = ContextVar("_WATCHER", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """``watcher`` is told of every stage that ends within."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """What is done within is a stage; one that fails is not told of."""
    watcher, start = _WATCHER.get(), time.perf_counter()
    yield
    if watcher is not None:
        watcher(name, time.perf_counter() - start)
