"""The bar on the error output of a terminal: which stage runs, how far it is, and for how long."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

T = TypeVar("T")


class Bar:
    """One bar for the innermost of the stages that run; it leaves nothing behind."""

    def __init__(self) -> None:
        self._shown: tuple[Progress, TaskID] | None = None
        self._tracking = False

    def show(self, stages: Sequence[str]) -> None:
        """Show the last of the stages that run, or nothing where none does; what runs for each of
        tracked items is not shown."""
        if stages and self._tracking:
            return
        if self._shown is not None:
            self._shown[0].stop()
            self._shown = None
        if not stages:
            return
        shown = _columns()
        self._shown = shown, shown.add_task(stages[-1], total=None, count="")
        shown.start()

    def track(self, items: Iterable[T], count: int | None) -> Iterator[T]:
        """The items, each of which moves the bar of the stage that runs."""
        self._tracking = True
        try:
            for number, item in enumerate(items):
                if self._shown is not None:
                    progress, task = self._shown
                    told = f"{number}/{count}" if count else str(number)
                    progress.update(task, completed=number, total=count, count=told)
                yield item
        finally:
            self._tracking = False


def is_terminal() -> bool:
    """Whether the error output is one that shows a bar."""
    return sys.stderr is not None and sys.stderr.isatty()


def _columns() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
