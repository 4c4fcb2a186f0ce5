"""How finely threads share a layer.

Each has an even share, and who is done with its own takes pieces of another one's: CPUs of one
machine are seldom equally fast. A piece that moves takes its data to another CPU's caches, so that
small layers are shared whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import NOW
from tinyai.codegen.index import Axis

# Pieces of a share at most, and their cycles at least.
MOST, CYCLES = 4, 8000
# The counter of pieces that are taken has 16 bits.
COUNTED = 1 << 16
# Elements that threads do not part, so that no two of them write to one line of the cache.
CACHE_LINE = 64


def part(threads: int) -> Definition:
    """One thread's part of a call of so many threads, and where they meet."""
    return Definition(
        "tinyai_part", "part.c.j2", (NOW,), values={"threads": threads}, portable=True
    )


def taking(threads: int) -> Definition:
    """How threads take pieces of shares."""
    return Definition("tinyai_take", "take.c.j2", (part(threads),), portable=True)


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
