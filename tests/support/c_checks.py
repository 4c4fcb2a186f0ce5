"""Checks of emitted C that serve any graph: no warning, no undefined behaviour.

Both take one compiler. A test gets them from the fixtures ``compiler`` and ``sanitizer`` of
``conftest.py``, which run it once for each and skip, with the reason, where one is missing.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support import compilers
from tests.support.paths import DRIVERS
from tinyai.backend import Compiled
from tinyai.codegen.constants import ConstantArray
from tinyai.ir import Array, Type

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
COMPILERS = ("gcc", "clang", "g++", "clang++")
SANITIZERS = ("gcc", "clang")
# One of each kind in `make test`: gcc takes the C as C99, clang++ as C++17.
QUICK_COMPILERS = ("gcc", "clang++")
# Calls a region twice on inputs from a file, see there.
RUN_TWICE = "run_twice.c"
_SANITIZE = (
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)
_OPTIMIZE = re.compile(r"^#pragma GCC optimize.*$", re.MULTILINE)


def missing(compiler: str) -> str | None:
    """Why tests with a compiler skip; None where it is there."""
    return None if shutil.which(compiler) else f"{compiler} is not installed"


@functools.cache
def missing_sanitizers(compiler: str) -> str | None:
    """Why tests with a compiler's sanitizers skip: clang's come as a package of their own."""
    if missing(compiler):
        return missing(compiler)
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        source = Path(folder) / "empty.c"
        source.write_text("int main(void) { return 0; }\n")
        command = [compiler, *_SANITIZE, str(source), "-o", str(source.with_suffix(""))]
        linked = compilers.run(command, capture_output=True, check=False).returncode == 0
    return None if linked else f"{compiler} has no sanitizers (clang: package libclang-rt-dev)"


def language(compiler: str) -> tuple[str, ...]:
    """The compiler and what makes it take a file as C99 or C++17, after its name."""
    return (compiler, *(("-xc++", "-std=c++17") if compiler.endswith("++") else ("-std=c99",)))


def assert_warning_free(text: str, compiler: str = "gcc", *, parsed_alone: bool = False) -> None:
    """C99 or C++17, after the compiler's name, without a warning of -Wall -Wextra -Wpedantic;
    ``parsed_alone``: of those that gcc does not need optimization for."""
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        source = Path(folder) / "region.c"
        source.write_text(text)
        # clang finds what it warns of before it generates code, gcc while it optimizes.
        parsed = parsed_alone or "clang" in compiler
        compile_only = ("-fsyntax-only",) if parsed else ("-c", "-o", os.devnull)
        run_command([*language(compiler), *WARNINGS, *compile_only, str(source)])


def run_sanitized(
    compiled: Compiled,
    inputs: Sequence[Array],
    compiler: str = "gcc",
    *,
    abi: str = "plain",
    optimize: str = "-O1",
) -> list[Array]:
    """Outputs of the emitted C under the address and undefined-behaviour sanitizers.

    ``compiled`` was made for ``abi``, "plain" or "packed" (TVM's runtime is stubbed). An access
    outside of a tensor, undefined behaviour, an output that is not written whole or that depends
    on uninitialized memory, a write to an input and a workspace that is not freed are errors.
    ``optimize`` is the level: networks run faster at -O1, many small functions compile faster at
    -O0.
    """
    with tempfile.TemporaryDirectory(prefix="tinyai-") as name:
        folder = Path(name)
        defines = entry_of(compiled, abi)
        program = build_sanitized(
            compiled.source.text, RUN_TWICE, folder, compiler, *defines, optimize=optimize
        )
        return run_program([str(program)], compiled, inputs, folder)


def entry_of(compiled: Compiled, abi: str = "plain") -> list[str]:
    """What tells the driver ``RUN_TWICE`` which function it has to call."""
    return [f"-DENTRY={compiled.source.symbol}", *(["-DPACKED"] if abi == "packed" else [])]


def run_program(
    command: Sequence[str], compiled: Compiled, inputs: Sequence[Array], folder: Path
) -> list[Array]:
    """Outputs of a program that was built with the driver ``RUN_TWICE``."""
    graph = compiled.graph
    types = [*graph.types(graph.inputs), *graph.types(graph.outputs)]
    outputs = graph.types(graph.outputs)
    given = [(array.shape, array.dtype) for array in inputs]
    assert given == [(of.shape, of.dtype.numpy) for of in types[: len(types) - len(outputs)]]
    (folder / "in").write_bytes(_header(len(inputs), types) + b"".join(map(_bytes, inputs)))
    run_command([*command, str(folder / "in"), str(folder / "out")])
    return _split((folder / "out").read_bytes(), outputs)


def build_sanitized(
    text: str, driver: str, folder: Path, compiler: str, *options: str, optimize: str
) -> Path:
    """Program of the emitted C and a driver of the folder ``drivers``, sanitized."""
    return build_with(_SANITIZE, text, driver, folder, compiler, *options, optimize=optimize)


def build_with(
    sanitizers: Sequence[str],
    text: str,
    driver: str,
    folder: Path,
    compiler: str,
    *options: str,
    optimize: str,
) -> Path:
    """The same with sanitizers of one's own.

    The pragma that asks for -O3 is left out: what the sanitizers look for is in the text, and
    they need minutes at -O3.
    """
    (folder / "region.c").write_text(_OPTIMIZE.sub("", text))
    program = folder / "program"
    files = [str(folder / "region.c"), str(DRIVERS / driver)]
    run_command(
        [compiler, "-std=c99", optimize, *sanitizers, *options, *files, "-lm", "-o", str(program)]
    )
    return program


def run_command(command: Sequence[str]) -> str:
    """Standard output of a command; an ``AssertionError`` with all it said where it fails."""
    # Leaks are counted by the drivers: the leak sanitizer cannot run where ptrace is forbidden.
    environment = {
        **os.environ,
        "ASAN_OPTIONS": "detect_leaks=0",
        "TSAN_OPTIONS": "halt_on_error=1",
    }
    result = compilers.run(command, capture_output=True, text=True, check=False, env=environment)
    said = f"{result.stdout}{result.stderr}"
    assert result.returncode == 0, f"{' '.join(command)}: {result.returncode}\n{said[:20_000]}"
    return result.stdout


def generate_wrong_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """C whose constants of int8 are in other places."""
    right = ConstantArray.of

    def wrong(name: str, value: Array) -> ConstantArray:
        return right(name, np.roll(value, 1) if value.dtype == np.int8 else value)

    monkeypatch.setattr(ConstantArray, "of", wrong)


def _header(inputs: int, types: Sequence[Type]) -> bytes:
    numbers = [inputs, len(types) - inputs]
    for of in types:
        code = 2 if of.dtype.is_float else int(of.dtype.startswith("u"))
        numbers += [code, 8 * of.dtype.bytes, len(of.shape), *of.shape]
    return np.array(numbers, np.int64).tobytes()


def _bytes(array: Array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def _split(content: bytes, types: Sequence[Type]) -> list[Array]:
    arrays, at = [], 0
    for of in types:
        array = np.frombuffer(content, of.dtype.numpy, of.elements, at)
        arrays.append(array.reshape(of.shape))
        at += of.bytes
    assert at == len(content)
    return arrays
