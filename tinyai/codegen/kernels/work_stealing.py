"""Work stealing: how finely threads share a layer.

Each has an even share, and who is done with its own steals pieces of another one's: CPUs of one
machine are seldom equally fast. A piece that moves takes its data to another CPU's caches, so that
small layers are shared whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyai.codegen.ctree import Block, Code, Declare, let
from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import NOW
from tinyai.codegen.index import Axis
from tinyai.codegen.isa import PAUSES
from tinyai.codegen.steps import Epilogue

# Pieces of a share at most, and their cycles at least.
MOST, CYCLES = 4, 8000
# The counter of claimed pieces has 16 bits.
COUNTED = 1 << 16
# Elements that are not shared out singly, so that no two threads write to one line of the cache.
CACHE_LINE = 64


@dataclass(frozen=True)
class Team:
    threads: int
    pauses: tuple[tuple[str, str], ...] = PAUSES


def team(threads: int) -> Definition:
    """The threads of a call, and the barrier where they meet."""
    return Definition("tinyai_thread", "team.c.j2", (NOW,), arguments=Team(threads), portable=True)


def stealing(threads: int) -> Definition:
    """How threads claim pieces of their own share and of others'."""
    return Definition("tinyai_claim", "steal.c.j2", (team(threads),), portable=True)


def ends(count: int, threads: int) -> tuple[str | int, str | int]:
    """Where a thread's share of so many things begins and ends."""
    if threads == 1:
        return 0, count
    of = f"(ptrdiff_t){count}"
    return f"{of} * thread->task / thread->tasks", f"{of} * (thread->task + 1) / thread->tasks"


def share(count: int, together: int = 1) -> Code:
    """Variables for the ends of a thread's share of things that come ``together``."""
    groups = -(-count // together)
    begin, end = ends(groups, threads=2)
    if together == 1:
        return let("begin", begin), let("end", end)
    return (
        let("begin", f"{begin} * {together}"),
        let("behind", f"{end} * {together}"),
        let("end", f"behind < {count} ? behind : {count}"),
    )


def own_scratch(size: int, epilogue: Epilogue) -> str:
    """A thread's part of the working memory, of ``size`` bytes."""
    return "scratch" if epilogue.threads == 1 else f"((char *)scratch + thread->task * {size})"


def axis_share(axes: Sequence[Axis], cut: str | None) -> Code:
    """The share of the axis that is cut."""
    if cut is None:
        return None
    return share(axes[-1].count, CACHE_LINE) if cut == axes[-1].var else share(axes[0].count)


def owners(things: int | str, each: int, epilogue: Epilogue, *body: Code) -> Code:
    """Code for the thread's own share, and then for those of its victims, which have pieces left:
    ``each`` pieces of each of the things that are dealt out in turn."""
    epilogue.need(stealing(epilogue.threads))
    begin = f"int owner = tinyai_begin_share(thread, {things}, {each})"
    return Block(*body, head=f"for ({begin}; owner >= 0; owner = tinyai_victim(thread))")


def shared(count: int, pieces: int, epilogue: Epilogue, *body: Code) -> Code:
    """Code for what a thread computes of ``count`` things, from ``begin`` to ``end``: its share;
    or, where a share has several pieces, a piece that nobody else has claimed, again and again."""
    if pieces == 1:
        return Block(share(count), *body)
    of = f"(ptrdiff_t){count}"
    piece = Block(
        Declare("const int", "number", f"owner * {pieces} + piece"),
        let("begin", f"{of} * number / (thread->tasks * {pieces})"),
        let("end", f"{of} * (number + 1) / (thread->tasks * {pieces})"),
        *body,
        head="for (int piece; (piece = tinyai_claim(thread, owner)) >= 0;)",
    )
    return owners("thread->tasks", pieces, epilogue, piece)


def pieces(cycles: float, things: int, threads: int) -> int:
    """Into how many pieces a share of ``things`` is cut, of a layer that takes ``cycles``."""
    if threads == 1 or things >= COUNTED:
        return 1
    return max(1, min(MOST, things // threads, int(cycles / threads / CYCLES)))


def cut(axes: Sequence[Axis], threads: int) -> str | None:
    """The loop that threads share: the first, or the last, in steps of a cache line, where the
    first has too little to share. None for a single thread."""
    first, last = axes[0], axes[-1]
    if threads == 1:
        return None
    return last.var if first.count < 4 * threads <= last.count // 16 else first.var
