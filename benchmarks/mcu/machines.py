"""Packages on machines without an operating system, which QEMU plays: do they compute what they
should, and how much do they take?

A package's test is linked with the board support of this folder and runs alone on the machine. QEMU
knows no time, but it counts instructions exactly.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.qemu import Counts, count
from tinyai.errors import ToolchainError

_HERE = Path(__file__).parent
_FREESTANDING = _HERE / "freestanding"
_WARNINGS = ("-Wall", "-Wextra", "-Werror")
# What is no part of a package is compiled in one way; the loops of memory.c are to stay loops.
_BOARD = ("-Os", "-fno-tree-loop-distribute-patterns")
_STACK = re.compile(r"^stack (\d+)$", re.MULTILINE)
_SECONDS = 120  # for a run: a program that hangs is ended


@dataclass(frozen=True)
class Machine:
    """A CPU, QEMU's machine that has it, and the compiler for it.

    ``vectors``, ``code`` and ``data`` are where the table of exceptions, the program and its memory
    lie on that machine. Without a C library (``freestanding``), this folder has what a package's
    test needs of one.
    """

    name: str
    compiler: str
    flags: tuple[str, ...]
    emulator: tuple[str, ...]
    vectors: int
    code: int
    data: int
    freestanding: bool = False

    def tool(self, name: str) -> str:
        """Another program of the compiler's family."""
        return f"{self.compiler.removesuffix('gcc')}{name}"

    def board(self) -> list[Path]:
        """What every program is linked with."""
        sources = [_HERE / "board.c", _HERE / "print.c"]
        return [*sources, *([_FREESTANDING / "memory.c"] if self.freestanding else [])]

    def missing(self) -> list[str]:
        """Commands that are not installed."""
        return [name for name in (self.compiler, self.emulator[0]) if shutil.which(name) is None]


def _cortex(name: str, board: str, fpu: str, code: int, data: int, vectors: int = 0) -> Machine:
    cpu = name.lower()
    return Machine(
        name,
        "arm-none-eabi-gcc",
        (f"-mcpu={cpu}", "-mthumb", "-mfloat-abi=hard", f"-mfpu={fpu}"),
        ("qemu-system-arm", "-machine", board),
        vectors,
        code,
        data,
    )


# With the floating-point unit that the machine has: only a network with float ends uses it.
MACHINES = (
    _cortex("Cortex-M4", "mps2-an386", "fpv4-sp-d16", 0x400, 0x20000000),
    _cortex("Cortex-M7", "mps2-an500", "fpv5-d16", 0x400, 0x20000000),
    # In the secure view of its memories: vectors in ITCM, the program in DDR.
    _cortex("Cortex-M55", "mps3-an547", "auto", 0x70000000, 0x31000000),
    Machine(
        "RV32IMAC",
        "riscv64-unknown-elf-gcc",
        ("-march=rv32imac", "-mabi=ilp32", "-mcmodel=medany", "-ffreestanding", "-mno-relax"),
        ("qemu-system-riscv32", "-machine", "virt", "-bios", "none"),
        0x80000000,
        0x80000400,
        0x80800000,
        freestanding=True,
    ),
)


@dataclass(frozen=True)
class Size:
    """Bytes of an object file, as ``size`` says."""

    text: int
    data: int
    bss: int


@dataclass(frozen=True)
class Measured:
    """One call of a package's function on a machine. ``sizes`` are those of its files, by name."""

    counts: Counts
    stack: int
    sizes: dict[str, Size]


def measure(machine: Machine, package: Path, name: str, level: str) -> Measured:
    """Run the test of the package ``name`` in a folder, compiled at a level such as "-Os".

    Raises ``ToolchainError`` where it does not compile or its outputs are not the expected ones.
    """
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        build = _Build(machine, Path(folder), level)
        objects = [build.object(source) for source in sorted(package.glob("*.c"))]
        board = [build.object(source, *_BOARD) for source in machine.board()]
        once, twice = (build.run([*objects, *board], name, runs) for runs in (1, 2))
        more = [each for each in twice.without(once).functions if each.instructions]
        return Measured(
            Counts(tuple(each for each in more if not each.name.startswith("__wrap_"))),
            int(_STACK.findall(once.output)[0]),
            {each.stem: build.size(each) for each in objects},
        )


@dataclass(frozen=True)
class _Build:
    machine: Machine
    folder: Path
    level: str

    def object(self, source: Path, *flags: str) -> Path:
        result = self.folder / f"{source.stem}.o"
        options = [*self.machine.flags, "-std=c99", *_WARNINGS, *(flags or [self.level])]
        if self.machine.freestanding:
            options += ["-isystem", str(_FREESTANDING)]
        _run([self.machine.compiler, *options, "-c", str(source), "-o", str(result)])
        return result

    def run(self, objects: Sequence[Path], name: str, runs: int) -> Counts:
        """What a program that calls the package so often executes."""
        program = self.folder / f"runs{runs}"
        calls = [f"-DRUN={name}_run", f"-DRUNS={runs}"]
        objects = [*objects, self.object(_HERE / "measure.c", *_BOARD, *calls)]
        places = [
            f"-Wl,--defsym={key}={value:#x}"
            for key, value in (
                ("VECTORS", self.machine.vectors),
                ("CODE", self.machine.code),
                ("DATA", self.machine.data),
            )
        ]
        options = [
            "-nostartfiles",
            *places,
            f"-Wl,--wrap={name}_run",
            "-T",
            str(_HERE / "board.ld"),
        ]
        if self.machine.freestanding:
            options += ["-nostdlib"]
        files = [*map(str, objects), "-lgcc", "-o", str(program)]
        _run([self.machine.compiler, *self.machine.flags, *options, *files])
        found = count([*self._emulator, "-kernel", str(program)], timeout=_SECONDS)
        if "OK" not in found.output.splitlines():
            raise ToolchainError(
                f"the test of {name} on {self.machine.name} at {self.level}",
                found=found.output,
                allowed="OK",
                hint="compare with the package's test on this machine",
            )
        return found

    @property
    def _emulator(self) -> list[str]:
        display = ["-nographic", "-monitor", "none", "-serial", "none"]
        return [*self.machine.emulator, *display, "-semihosting-config", "enable=on,target=native"]

    def size(self, of: Path) -> Size:
        line = _run([self.machine.tool("size"), str(of)]).splitlines()[1]
        return Size(*map(int, line.split()[:3]))


def _run(command: Sequence[str]) -> str:
    """Standard output of a tool."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainError(
            f"{command[0]} failed",
            found=done.stderr[-2000:],
            allowed="exit code 0",
            hint=" ".join(command),
        )
    return done.stdout
