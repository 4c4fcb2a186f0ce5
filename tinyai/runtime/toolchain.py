"""The C compiler: the user's to choose, called without a shell."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, MutableMapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tinyai.c_head import head_of_file
from tinyai.doctor import cpu_description, instruction_sets
from tinyai.errors import OptionError, ToolchainError
from tinyai.files import written_whole

DEFAULT_COMPILERS = ("cc", "gcc", "clang", "g++")
_LONGEST_MESSAGE = 4000
# What compilers look at in the environment when they look for headers and for parts of themselves.
_COMPILERS_OWN = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
)

# Objects of C files of ours, by a digest of the command and the text.
Objects = MutableMapping[bytes, bytes]


@dataclass(frozen=True)
class SideBySide:
    """What goes on beside the calls of a compiler: ``objects``, which others make meanwhile; a
    precompiled ``header``, which gives the options that make a C file begin with it, none while it
    is not there; the ``pool`` that has the calls, one of their own if None."""

    objects: Sequence[Future[Path]] = ()
    header: Callable[[], Sequence[str]] = list
    pool: Executor | None = None


ALONE = SideBySide()


@dataclass(frozen=True)
class Toolchain:
    """A C or C++ compiler and its flags.

    ``cc`` is a command (a name on the PATH or a path), words after the first are flags; without it
    the environment's ``CC`` serves, else the first of cc, gcc, clang, g++ that is there. ``flags``
    come after. The emitted code needs no optimization flag with gcc and the right speed of
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
    def of(cls, given: Toolchain | None, triple: str = "") -> Toolchain:
        """What a caller hands over; None is the default, for this machine or for that of a target
        triple. Raises ``OptionError`` for others, ``ToolchainError`` where there is no compiler for
        the triple."""
        if given is None:
            return cls._for(triple) if triple and not os.environ.get("CC") else cls()
        if not isinstance(given, cls):
            raise OptionError(
                "toolchain",
                found=repr(given),
                allowed="a tinyai.Toolchain, or None",
                hint=f"tinyai.Toolchain({given!r})" if isinstance(given, str) else "None",
            )
        return given

    @classmethod
    def _for(cls, triple: str) -> Toolchain:
        """The compiler whose name begins with the triple, with or without its vendor."""
        words = triple.split("-")
        names = [f"{'-'.join(each)}-gcc" for each in (words, [words[0], *words[2:]])]
        found = next(filter(shutil.which, names), None)
        if found is None:
            raise ToolchainError(
                f"no C compiler for {triple}",
                found=f"no {names[0]} on the PATH",
                allowed="a cross compiler",
                hint=f"install it (Debian: gcc-{names[0].removesuffix('-gcc')}), set CC, or pass "
                'Toolchain("clang --target=...")',
            )
        return cls(found)

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

    def identity(self) -> str | None:
        """Which compiler it is, of which version, with which flags: what it makes of a text depends
        on nothing else. None where that cannot be told."""
        program, *flags = words = self.command()
        if not all(map(_is_plain, flags)):
            return None
        told = subprocess.run([*words, "--version"], capture_output=True, check=False)
        file = Path(shutil.which(program) or program).resolve()
        if told.returncode != 0 or not file.is_file():
            return None
        facts, environment = file.stat(), [os.environ.get(name) for name in _COMPILERS_OWN]
        return repr((words, file, facts.st_size, facts.st_mtime_ns, told.stdout, environment))

    def run(self, arguments: Sequence[str]) -> None:
        """Call the compiler, to write what ``-o`` names. Raises ``ToolchainError`` with what it
        said."""
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
            printed = (result.stderr or result.stdout).strip() or "without a message"
            ended = f"{shlex.join(self.command())} ended with {result.returncode}: "
            raise ToolchainError(
                "the C compiler failed",
                found=(ended + printed)[:_LONGEST_MESSAGE],
                allowed="exit code 0",
                hint=f"run it by hand: {shlex.join(command)}",
            )
        if "-o" in arguments and not Path(arguments[arguments.index("-o") + 1]).is_file():
            raise ToolchainError(
                "the C compiler wrote nothing",
                found=f"{shlex.join(self.command())} ended with 0",
                allowed="a C compiler, which writes what -o names",
                hint=f"run it by hand: {shlex.join(command)}",
            )

    def check(self) -> None:
        """Compile a line, before long work begins. Raises ``ToolchainError`` as ``run``."""
        with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
            source = Path(folder) / "line.c"
            source.write_text("int tinyai_line(void);\nint tinyai_line(void) { return 0; }\n")
            self.run(["-fPIC", "-c", str(source), "-o", str(source.with_suffix(".o"))])

    def shared_library(
        self,
        output: Path,
        sources: Sequence[Path],
        *options: str,
        here: bool = False,
        kept: Objects | None = None,
        beside: SideBySide = ALONE,
    ) -> None:
        """Compile and link ``sources`` (C files, objects) to ``output``, whole or not at all.

        ``here``: for this machine alone, so that of a file for every machine only what its CPU
        runs is compiled. ``kept`` holds objects that need not be compiled again, and takes new
        ones. Of the objects ``beside`` only the functions that are needed are linked.
        """
        with written_whole(output) as place:
            apart = kept is not None or bool(beside.objects)
            units = _units(sources, place.parent, options, here, apart=apart)
            files = self._files(units, kept, beside)
            files += [str(each.result()) for each in beside.objects]
            needed = ["-Wl,--gc-sections"] if beside.objects else []
            linked = [*files, *options, *needed, "-lm", "-pthread"]
            self.run(["-shared", "-fPIC", "-o", str(place), *linked])

    def object_file(
        self,
        output: Path,
        sources: Sequence[Path],
        *options: str,
        beside: SideBySide = ALONE,
        symbols: Sequence[str],
    ) -> None:
        """Compile C files to one object, whole or not at all, with what their functions ``symbols``
        need of the objects ``beside``."""
        with written_whole(output) as place:
            units = _units(sources, place.parent, options, here=False, apart=True)
            files = self._files(units, {}, beside)
            files += [str(each.result()) for each in beside.objects]
            roots = [f"-Wl,-u,{symbol}" for symbol in symbols]
            joined = ["-r", "-nostdlib", *roots, "-Wl,--gc-sections"]
            self.run([*joined, "-o", str(place), *files])

    def _files(self, units: Sequence[_Unit], kept: Objects | None, beside: SideBySide) -> list[str]:
        """What to link. Objects are made side by side."""

        def made(unit: _Unit) -> None:
            self._object(unit, [*unit.arguments, *beside.header()], kept)

        with contextlib.ExitStack() as stack:
            pool = beside.pool or stack.enter_context(ThreadPoolExecutor(cpus_here()))
            # The unit for every CPU is among the last, and takes longest: its microkernels are
            # nowhere else.
            running = [pool.submit(made, each) for each in reversed(units) if each.source]
            for each in running:
                each.result()
        return [str(unit.file) for unit in units]

    def _object(self, unit: _Unit, arguments: Sequence[str], kept: Objects | None) -> None:
        """Compile a unit, if no object of it is kept."""
        assert unit.source is not None
        written = [*arguments, "-o", str(unit.file), str(unit.source)]
        if kept is None or any(word.startswith("-DTINYAI_ONLY") for word in arguments):
            self.run(written)
            return
        key = hashlib.sha256(repr((self.command(), unit.arguments)).encode())
        key.update(unit.source.read_bytes())
        if key.digest() not in kept:
            self.run(written)
            kept[key.digest()] = unit.file.read_bytes()
        unit.file.write_bytes(kept[key.digest()])


@dataclass(frozen=True)
class _Unit:
    """A ``file`` that is linked, and the ``source`` and ``arguments`` that it is compiled of first,
    where the linking call does not."""

    file: Path
    source: Path | None = None
    arguments: tuple[str, ...] = ()


def _units(
    sources: Sequence[Path], folder: Path, options: Sequence[str], here: bool, *, apart: bool
) -> list[_Unit]:
    """The sources, or the objects of what is compiled in units or ``apart``."""
    units: list[_Unit] = []
    for source in sources:
        found = _compiled_apart(source, here, cpus_here() > 1, apart)
        units += [] if found else [_Unit(source)]
        for defines in found:
            file = folder / f"{len(units)}.o"
            units.append(_Unit(file, source, ("-fPIC", *defines, "-c", *options)))
    return units


def unit_here(units: Sequence[str]) -> int:
    """The strongest of instruction sets that this CPU has; the last one every CPU has."""
    runs = instruction_sets(cpu_description())
    return next((n for n, isa in enumerate(units) if isa in runs), len(units) - 1)


def _is_plain(flag: str) -> bool:
    """Whether what a flag does depends on itself alone: on no file, and on no CPU."""
    known = flag.startswith(("-O", "-g", "-m", "-std=", "-D", "-U", "-W", "-f", "-pedantic"))
    named = flag.startswith("-f") and "=" in flag and not flag.startswith("-fsanitize=")
    return known and not named and not any(word in flag for word in (",", "/", "native", "prof"))


def cpus_here() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _compiled_apart(
    source: Path, here: bool, side_by_side: bool, apart: bool
) -> list[tuple[str, ...]]:
    """What is defined for each object that a source is compiled to; nothing for one that the
    linking call compiles.

    The head of a C file of ours for every machine names the instruction set of each unit, the
    strongest first; the last of them serves every CPU, and one more unit has the entry.
    """
    head = head_of_file(source) if source.suffix == ".c" else None
    if head is None:
        return []
    if not head.units:
        return [()] if apart else []
    entry = len(head.units)
    if here:
        variant = unit_here(head.units)
        whole = (f"-DTINYAI_UNIT={entry}", f"-DTINYAI_ONLY={variant}")
        return [(f"-DTINYAI_UNIT={variant}",), whole]
    return [(f"-DTINYAI_UNIT={n}",) for n in range(entry + 1)] if side_by_side or apart else []
