"""What the processor could do at most."""

from __future__ import annotations

import ctypes
import functools
import itertools
import tempfile
from pathlib import Path

from tinyai.codegen.isa import instruction_sets_of
from tinyai.codegen.isa.variant import Peak
from tinyai.doctor import instruction_sets
from tinyai.errors import TinyAIError
from tinyai.runtime.toolchain import Toolchain

SECONDS = 0.05
REPEATS = 5


@functools.cache
def product_peak(threads: int, isa: str = "auto") -> tuple[float | None, str]:
    """Multiply-accumulates a nanosecond that the products of an instruction set make on
    ``threads`` cores, and the set's name; None with the reason where that cannot be measured. The
    set is the strongest that this machine runs, of those that are not stronger than ``isa``. Takes
    about half a second."""
    try:
        found = instruction_sets(Path("/proc/cpuinfo").read_text())
    except OSError:
        found = ()
    sets = instruction_sets_of()
    weaker = list(itertools.dropwhile(lambda name: name != isa, sets)) or list(sets)
    known = [peak for name in weaker if (peak := sets[name].peak)]
    here = [peak for name in weaker if name in found and (peak := sets[name].peak)]
    why = f"this CPU has no {' or '.join(each.name for each in known) or 'known one'}"
    for measured in here:
        best, why = _measured(measured, threads)
        if best:
            return best / 1e9, measured.name
    return None, why


def _measured(of: Peak, threads: int) -> tuple[float, str]:
    """Multiply-accumulates a second, or 0 and the reason: an operating system may refuse a set."""
    try:
        peak = _library(of.program).macs_a_second
    except TinyAIError as error:
        return 0, error.what
    peak.restype = ctypes.c_double
    peak.argtypes = [ctypes.c_int, ctypes.c_double]
    best = max(peak(threads, SECONDS) for _ in range(REPEATS))
    return max(best, 0), f"no {threads} threads of {of.name} could be started"


@functools.cache
def _library(source: Path) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="tinyai-peak-") as folder:
        library = Path(folder) / "peak.so"
        Toolchain(flags=("-O2", "-pthread")).shared_library(library, [source])
        return ctypes.CDLL(str(library))
