"""Where emitted C runs in tests: on this machine, or on another architecture that QEMU plays.

QEMU runs Linux programs of other architectures in user mode, in Debian's packages qemu-user and
gcc-aarch64-linux-gnu. It says what is computed, and nothing of time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.c_checks import RUN_TWICE, entry_of, run_command, run_program
from tests.support.paths import DRIVERS
from tests.support.skipped import LACKS
from tinyai.backend import compile_graph
from tinyai.doctor import cpu_description, instruction_sets
from tinyai.ir import Array, Graph
from tinyai.runtime.runner import Runner
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import ARCHITECTURES, ISAS, PORTABLE, Target, this_architecture

# For each architecture the C compiler and the emulator.
CROSS = {"aarch64": ("aarch64-linux-gnu-gcc", "qemu-aarch64")}
# CPUs of QEMU that have no more than an instruction set; "max" has all.
CPUS = {"neon": "cortex-a72", "generic": "cortex-a72"}
_HERE = this_architecture()
# Continuous integration sets it where it has brought the emulators: then nothing of theirs skips.
MUST_EMULATE = os.environ.get("TINYAI_TEST_EMULATED") == "1"


def not_emulated(architecture: str) -> str | None:
    """Why tests on the architecture skip; None where they can run."""
    missing = [name for name in CROSS[architecture] if shutil.which(name) is None]
    assert not (missing and MUST_EMULATE), missing
    return f"{' and '.join(missing)} not installed" if missing else None


def runnable_isas() -> list[str]:
    """Values of the option ``isa`` whose code this CPU can run, and the file for every machine."""
    found = {*ARCHITECTURES[PORTABLE], *instruction_sets(cpu_description())}
    return ["auto", *(isa for isa in ISAS if isa in found)]


def require_isa(name: str) -> None:
    """Skip a test whose code neither this CPU nor an emulator runs."""
    if name in (*ARCHITECTURES[PORTABLE], *instruction_sets(cpu_description())):
        return
    foreign = [each for each in CROSS if name in ARCHITECTURES[each]]
    if not foreign:
        pytest.skip(f"{LACKS}{name}")
    if not_emulated(foreign[0]):
        pytest.skip(f"{LACKS}{name}: {not_emulated(foreign[0])}")


def is_foreign(isa: str) -> bool:
    """Whether an instruction set is that of another architecture than this machine's."""
    return any(isa in ARCHITECTURES[arch] for arch in {*ARCHITECTURES} - {PORTABLE, _HERE})


class Emulated:
    """A graph as a program of another architecture: ``emulated(*inputs) -> list of outputs``."""

    def __init__(self, graph: Graph, target: Target, *flags: str, quickly: bool = False) -> None:
        self._compiled = compile_graph(graph, target, abi="plain")
        self.source = self._compiled.source
        compiler, emulator = CROSS[target.architecture]
        with tempfile.TemporaryDirectory(prefix="tinyai-") as name:
            folder = Path(name)
            text = self.source.text
            (folder / "region.c").write_text(_less_optimized(text) if quickly else text)
            files = [str(folder / "region.c"), str(DRIVERS / RUN_TWICE)]
            options = ["-std=c99", "-static", "-O1", *entry_of(self._compiled), "-lm", "-lpthread"]
            options += flags
            run_command([compiler, *files, *options, "-o", str(folder / "program")])
            self._program = (folder / "program").read_bytes()
        self._emulator, self._cpu = emulator, CPUS.get(target.isa, "max")

    def __call__(self, *inputs: Array, cpu: str | None = None) -> list[Array]:
        with tempfile.TemporaryDirectory(prefix="tinyai-") as name:
            program = Path(name) / "program"
            program.write_bytes(self._program)
            program.chmod(0o700)
            command = [self._emulator, "-cpu", cpu or self._cpu, str(program)]
            return run_program(command, self._compiled, inputs, Path(name))


class QuickToolchain(Toolchain):
    """A C compiler that needs a third less time: for at -O1 it meets the same C, intrinsics and
    all, as at the -O3 that the text asks for."""

    def shared_library(
        self, output: Path, sources: Sequence[Path], *options: str, **how: Any
    ) -> None:
        for source in sources:
            source.write_text(_less_optimized(source.read_text()))
        super().shared_library(output, sources, *options, **how)


def runner(graph: Graph, target: Target, *flags: str, quickly: bool = False) -> Runner | Emulated:
    """The graph, compiled for a machine that can run it; ``quickly`` as by ``QuickToolchain``."""
    here = target.architecture in (this_architecture(), PORTABLE)
    if here:
        return Runner(graph, target, (QuickToolchain if quickly else Toolchain)(flags=flags))
    return Emulated(graph, target, *flags, quickly=quickly)


def _less_optimized(text: str) -> str:
    asked = '#pragma GCC optimize("O3", '
    assert asked in text
    return text.replace(asked, asked.replace("O3", "O1"))
