"""What a compiler makes of a package: bytes of code and weights, and the stack that a run needs."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tinyai.errors import ToolchainError
from tinyai.package.report import MeasuredCode
from tinyai.runtime.code_sizes import beside_compiler, function_bytes
from tinyai.runtime.toolchain import Toolchain

# As for a microcontroller. Tables for unwinding are no part of the program there.
FLAGS = ("-Os", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
# What keeps gcc from putting a layer's function into its only caller.
_APART = ("-fno-inline-functions-called-once", "-fno-inline-small-functions")
_CALLS = "-fcallgraph-info=su"
_NODE = re.compile(r'^node: \{ title: "([^"]*)" label: "[^"]*?(\d+) bytes \(', re.MULTILINE)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"', re.MULTILINE)


def measure(name: str, files: Mapping[str, bytes], toolchain: Toolchain) -> MeasuredCode | None:
    """The package as the compiler makes it; None where there is none that takes it."""
    with tempfile.TemporaryDirectory(prefix="tinyai-") as made:
        folder = Path(made)
        for file in (f"{name}.h", f"{name}.c", f"{name}_weights.c"):
            (folder / file).write_bytes(files[file])
        try:
            stack = _compiled(toolchain, folder, name)
            size = {each: _size(toolchain, folder / f"{each}.o") for each in _units(name)}
            compiler = toolchain.command()
        except ToolchainError:
            return None
        code, weights = size.values()
        return MeasuredCode(_version(compiler[0]), (*compiler[1:], *FLAGS), code, weights, stack)


def bytes_of_functions(
    name: str, files: Mapping[str, bytes], toolchain: Toolchain
) -> dict[str, int]:
    """Bytes of machine code by function, none of which is put into its only caller; nothing where
    no compiler takes the package."""
    with tempfile.TemporaryDirectory(prefix="tinyai-") as made:
        folder = Path(made)
        for file in (f"{name}.h", f"{name}.c"):
            (folder / file).write_bytes(files[file])
        code = folder / f"{name}.o"
        apart = (*FLAGS, *_APART)
        try:
            toolchain.run([*apart, "-c", "-o", str(code), str(folder / f"{name}.c")])
            return function_bytes(code, toolchain)
        except ToolchainError:
            return {}


def _units(name: str) -> tuple[str, str]:
    return name, f"{name}_weights"


def _compiled(toolchain: Toolchain, folder: Path, name: str) -> int | None:
    """Make the objects; the stack of a run, where the compiler says it (gcc does)."""

    def compile_to_object(unit: str, *flags: str) -> None:
        files = ["-c", "-o", str(folder / f"{unit}.o"), str(folder / f"{unit}.c")]
        toolchain.run([*FLAGS, *flags, *files])

    code, weights = _units(name)
    compile_to_object(weights)
    try:
        compile_to_object(code, _CALLS)
    except ToolchainError:
        compile_to_object(code)
        return None
    found = folder / f"{code}.ci"
    return stack_of(found.read_text(), f"{name}_run") if found.exists() else None


def stack_of(graph: str, root: str) -> int | None:
    """Bytes of the deepest chain of calls from a function, by gcc's graph of calls; None for one
    without an end. What is not compiled here, as the C library, counts as nothing."""
    own = {title: int(size) for title, size in _NODE.findall(graph)}
    calls: dict[str, set[str]] = {}
    for caller, called in _EDGE.findall(graph):
        calls.setdefault(caller, set()).add(called)

    @cache
    def deepest(title: str) -> int:
        return own.get(title, 0) + max(map(deepest, calls.get(title, ())), default=0)

    try:
        return deepest(root) if root in own else None
    except RecursionError:
        return None


def _size(toolchain: Toolchain, path: Path) -> int | None:
    """Bytes of code and data of an object, as the compiler's ``size`` counts them."""
    tool = beside_compiler(toolchain, "size")
    try:
        said = subprocess.run([tool, str(path)], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.match(r"\s*(\d+)\s+(\d+)\s+(\d+)\s", said.stdout.partition("\n")[2])
    return sum(map(int, found.groups())) if found and said.returncode == 0 else None


def _version(compiler: str) -> str:
    """The first line of what the compiler says of itself."""
    try:
        said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return compiler
    return said.stdout.partition("\n")[0].strip() or compiler
