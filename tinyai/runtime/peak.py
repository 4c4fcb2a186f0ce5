"""What the processor could do at most."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from pathlib import Path

from tinyai.doctor import instruction_sets
from tinyai.errors import TinyAIError
from tinyai.runtime.toolchain import Toolchain

SECONDS = 0.05
REPEATS = 5


@functools.cache
def vnni_peak(threads: int) -> tuple[float | None, str]:
    """Multiply-accumulates a nanosecond of ``vpdpbusd`` on ``threads`` cores, and None with the
    reason where that cannot be measured. Takes about half a second."""
    try:
        found = instruction_sets(Path("/proc/cpuinfo").read_text())
    except OSError:
        found = ()
    if "avx512vnni" not in found:
        return None, "this CPU has no AVX512-VNNI"
    try:
        peak = _library().macs_a_second
    except TinyAIError as error:
        return None, error.what
    peak.restype = ctypes.c_double
    peak.argtypes = [ctypes.c_int, ctypes.c_double]
    best = max(peak(threads, SECONDS) for _ in range(REPEATS))
    return (best / 1e9, "") if best > 0 else (None, f"no {threads} threads could be started")


@functools.cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="tinyai-peak-") as folder:
        library = Path(folder) / "peak.so"
        source = Path(__file__).with_name("vnni_peak.c")
        Toolchain(flags=("-O2", "-pthread")).shared_library(library, [source])
        return ctypes.CDLL(str(library))
