"""How finely threads share a layer.

Each has an even share, and who is done with its own takes pieces of another one's: CPUs of one
machine are seldom equally fast. A piece that moves takes its data to another CPU's caches, so that
small layers are shared whole.
"""

from __future__ import annotations

# Pieces of a share at most, and their cycles at least.
MOST, CYCLES = 4, 8000
# The counter of pieces that are taken has 16 bits.
COUNTED = 1 << 16


def pieces(cycles: float, things: int, threads: int) -> int:
    """Into how many pieces a share of ``things`` is cut, of a layer that takes ``cycles``."""
    if threads == 1 or things >= COUNTED:
        return 1
    return max(1, min(MOST, things // threads, int(cycles / threads / CYCLES)))
