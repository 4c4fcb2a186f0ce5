"""Bytes of machine code of each function in an object or a library, by the tool nm."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tinyai.runtime.toolchain import Toolchain

_COMPILER = re.compile(r"(gcc|g\+\+|cc|clang|clang\+\+)(-[\d.]+)?$")
# Of microkernels that are compiled apart; and of what a compiler made of a function.
_SUFFIX = re.compile(r"(_[0-9a-f]{32})?(\..*)?$")


def beside_compiler(toolchain: Toolchain, tool: str) -> str:
    """The name of a tool of the compiler's own, such as nm, which reads what the compiler writes;
    of this machine's where it has none."""
    name = _COMPILER.sub(tool, toolchain.command()[0])
    return name if shutil.which(name) else tool


def function_bytes(file: Path, toolchain: Toolchain) -> dict[str, int]:
    """Bytes of each function by the name that the C file gives it; nothing where there is no nm or
    it does not know the file. A function that was put into its callers is not there."""
    command = [beside_compiler(toolchain, "nm"), "--print-size", "--defined-only", str(file)]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return {}
    sizes: dict[str, int] = {}
    for line in said.stdout.splitlines() if said.returncode == 0 else ():
        match line.split():
            case [_, size, "t" | "T", symbol]:
                name = _SUFFIX.sub("", symbol)
                sizes[name] = sizes.get(name, 0) + int(size, 16)
    return sizes
