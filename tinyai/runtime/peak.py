"""What the processor could do at most."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from pathlib import Path

from tinyai.codegen.isa import instruction_sets_of
from tinyai.doctor import instruction_sets
from tinyai.errors import TinyAIError
from tinyai.runtime.toolchain import Toolchain

SECONDS = 0.05
REPEATS = 5


@functools.cache
def product_peak(threads: int) -> tuple[float | None, str]:
    """Multiply-accumulates a nanosecond that the products of the strongest instruction set make on
    ``threads`` cores, and None with the reason where that cannot be measured. Takes about half a
    second."""
    try:
        found = instruction_sets(Path("/proc/cpuinfo").read_text())
    except OSError:
        found = ()
    known = [each.peak for name, each in instruction_sets_of().items() if each.peak]
    here = [each.peak for name, each in instruction_sets_of().items() if name in found]
    measured = next(filter(None, here), None)
    if measured is None:
        return None, f"this CPU has no {' or '.join(each.name for each in known) or 'known one'}"
    try:
        peak = _library(measured.program).macs_a_second
    except TinyAIError as error:
        return None, error.what
    peak.restype = ctypes.c_double
    peak.argtypes = [ctypes.c_int, ctypes.c_double]
    best = max(peak(threads, SECONDS) for _ in range(REPEATS))
    return (best / 1e9, "") if best > 0 else (None, f"no {threads} threads could be started")


@functools.cache
def _library(source: Path) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="tinyai-peak-") as folder:
        library = Path(folder) / "peak.so"
        Toolchain(flags=("-O2", "-pthread")).shared_library(library, [source])
        return ctypes.CDLL(str(library))
