"""The C compiler: the user's to choose, called without a shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tinyai.errors import OptionError, ToolchainError

DEFAULT_COMPILERS = ("cc", "gcc", "clang", "g++")
_LONGEST_MESSAGE = 4000
# Where a C file says that it can be compiled in parts, and how far in front at most.
_HEAD_BYTES = 4096
_PARTS = re.compile(rb"^/\* Compiled once for each of TINYAI_PART=0 to (\d)", re.MULTILINE)


@dataclass(frozen=True)
class Toolchain:
    """A C or C++ compiler and its flags.

    ``cc`` is a command (a name on the PATH or a path), words after the first are flags; without it
    the environment's ``CC`` serves, else the first of cc, gcc, clang, g++ that is there. ``flags``
    come behind. The emitted code needs no optimization flag with gcc and the right speed of
    others' with their ``-O3``.
    """

    cc: str | None = None
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.cc, str | None):
            raise OptionError(
                "C compiler", found=repr(self.cc), allowed="a command", hint='Toolchain("gcc -m64")'
            )

    @classmethod
    def of(cls, given: Toolchain | None) -> Toolchain:
        """What a caller hands over; None is the default. Raises ``OptionError`` for others."""
        if given is None:
            return cls()
        if not isinstance(given, cls):
            raise OptionError(
                "toolchain",
                found=repr(given),
                allowed="a tinyai.Toolchain, or None",
                hint=f"tinyai.Toolchain({given!r})" if isinstance(given, str) else "None",
            )
        return given

    def command(self) -> list[str]:
        """The compiler and the flags. Raises ``ToolchainError`` where there is no compiler."""
        asked = self.cc or os.environ.get("CC", "")
        try:
            words = shlex.split(asked) or [next(filter(shutil.which, DEFAULT_COMPILERS), "")]
        except ValueError:  # a quote that is not closed
            words = [""]
        if not words[0] or shutil.which(words[0]) is None:
            raise ToolchainError(
                "no C compiler",
                found=repr(asked) if asked else f"none of {', '.join(DEFAULT_COMPILERS)}",
                allowed="an executable on the PATH, or its path",
                hint="install gcc, set CC, or pass Toolchain(cc=...)",
            )
        return [*words, *self.flags]

    def run(self, arguments: Sequence[str]) -> None:
        """Call the compiler. Raises ``ToolchainError`` with what it said."""
        command = [*self.command(), *arguments]
        try:
            result = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ToolchainError(
                "the C compiler does not start",
                found=str(error),
                allowed="a program that runs on this machine",
                hint=f"run it by hand: {shlex.join(command)}",
            ) from None
        if result.returncode != 0:
            raise ToolchainError(
                "the C compiler failed",
                found=(result.stderr or result.stdout).strip()[:_LONGEST_MESSAGE],
                allowed="exit code 0",
                hint=f"run it by hand: {shlex.join(command)}",
            )

    def shared_library(self, output: Path, sources: Sequence[Path], *options: str) -> None:
        """Compile and link ``sources`` (C files, objects) to ``output``, whole or not at all."""
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=".tinyai-") as folder:
            beside = Path(folder) / output.name
            files = self._objects(sources, Path(folder), options)
            self.run(["-shared", "-fPIC", "-o", str(beside), *files, *options, "-lm", "-lpthread"])
            os.replace(beside, output)

    def _objects(self, sources: Sequence[Path], folder: Path, options: Sequence[str]) -> list[str]:
        """The sources; where CPUs are free, objects in place of those that say that they can be
        compiled in parts, side by side."""
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        files: list[str] = []
        commands: list[list[str]] = []
        for number, source in enumerate(sources):
            parts = _parts(source) if cpus > 1 else 1
            if parts == 1:
                files.append(str(source))
                continue
            for part in range(parts):
                files.append(str(folder / f"{number}-{part}.o"))
                define = f"-DTINYAI_PART={part}"
                commands.append(["-fPIC", define, "-c", "-o", files[-1], str(source), *options])
        with ThreadPoolExecutor(cpus) as pool:
            list(pool.map(self.run, commands))
        return files


def _parts(source: Path) -> int:
    """In how many parts a C file of ours can be compiled: it says so in front."""
    if source.suffix != ".c":
        return 1
    with source.open("rb") as file:
        found = _PARTS.search(file.read(_HEAD_BYTES))
    return int(found[1]) + 1 if found else 1
