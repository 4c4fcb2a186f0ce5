"""Executed instructions, counted by a plugin of QEMU: how many, in which functions.

QEMU plays another machine and says nothing of time, but its counts are exact and the same in every
run. ``count`` serves its programs (``qemu-aarch64``) and whole machines (``qemu-system-arm``).
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tinyai.errors import ToolchainError

_SOURCE = Path(__file__).with_name("qemu_count.c")


@dataclass(frozen=True)
class Function:
    """What a function ran itself, without those that it called. ``fitting`` of the ``instructions``
    are among those asked for. The name "?" has what belongs to no symbol."""

    name: str
    instructions: int
    fitting: int


@dataclass(frozen=True)
class Counts:
    """A whole run, by function in the order in which they were met; and what it wrote."""

    functions: tuple[Function, ...]
    output: str = ""

    @property
    def instructions(self) -> int:
        return sum(each.instructions for each in self.functions)

    @property
    def fitting(self) -> int:
        return sum(each.fitting for each in self.functions)

    def of(self, prefix: str) -> Counts:
        """Functions whose names begin so."""
        return Counts(tuple(each for each in self.functions if each.name.startswith(prefix)))

    def without(self, other: Counts) -> Counts:
        """What this run does more than another: two calls without one are one."""
        seen = {each.name: each for each in other.functions}
        none = Function("", 0, 0)
        return Counts(
            tuple(
                Function(
                    each.name, each.instructions - less.instructions, each.fitting - less.fitting
                )
                for each in self.functions
                for less in (seen.get(each.name, none),)
            )
        )


def count(
    command: Sequence[str], fitting: Sequence[tuple[int, int]] = (), *, timeout: float | None = None
) -> Counts:
    """Run a command of QEMU and count.

    ``fitting`` are pairs (mask, value): an instruction fits if its 32 bits under a mask are the
    value (for one of 16 bits, those bits). Raises ``ToolchainError`` where the run fails.
    """
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        (plugin := Path(folder) / "count.so").write_bytes(_plugin())
        log = Path(folder) / "log"
        asked = "".join(f",is={mask:x}:{value:x}" for mask, value in fitting)
        options = ["-plugin", f"{plugin}{asked}", "-d", "plugin", "-D", str(log)]
        output = _run([command[0], *options, *command[1:]], timeout)
        lines = [line.split(" ", 2) for line in log.read_text().splitlines()]
    return Counts(tuple(Function(name, int(a), int(b)) for a, b, name in lines), output)


@functools.cache
def _plugin() -> bytes:
    """A library for this machine."""
    compiler = os.environ.get("CC", "cc").split()
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        library = Path(folder) / "count.so"
        _run([*compiler, "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(library)], None)
        return library.read_bytes()


def _run(command: Sequence[str], timeout: float | None) -> str:
    """Standard output and error of a command."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(
            f"{command[0]} did not run",
            found=str(error),
            allowed="QEMU with plugins, and a C compiler",
            hint="Debian: apt install qemu-user qemu-system-arm gcc",
        ) from None
    if done.returncode != 0:
        raise ToolchainError(
            f"{command[0]} failed",
            found=f"exit code {done.returncode}: {done.stdout[-2000:]}",
            allowed="exit code 0",
            hint=" ".join(command),
        )
    return done.stdout
