"""Programs of C, and the data that they share, compiled to one library."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tinyai.backend.named_data import NamedData
from tinyai.backend.sharing import is_code
from tinyai.runtime.toolchain import Toolchain


def library_of(
    programs: Sequence[bytes],
    data: NamedData,
    toolchain: Toolchain | None = None,
    *,
    here: bool = False,
) -> bytes:
    """A shared library of C files, with what they declare and ``data`` has by name.

    ``here``: for this machine's CPU alone, which compiles less. Raises ``ToolchainError`` where
    the compiler fails.
    """
    with tempfile.TemporaryDirectory(prefix="tinyai-") as name:
        folder = Path(name)
        output = folder / "library.so"
        write_library(output, programs, data, toolchain, here=here)
        return output.read_bytes()


def write_library(
    output: Path,
    programs: Sequence[bytes],
    data: NamedData,
    toolchain: Toolchain | None = None,
    *,
    here: bool = False,
) -> None:
    """``library_of`` as a file, whole or not at all."""
    with tempfile.TemporaryDirectory(prefix="tinyai-") as name:
        folder = Path(name)
        sources = [folder / f"program_{number}.c" for number in range(len(programs))]
        for source, program in zip(sources, programs, strict=True):
            source.write_bytes(program)
        for key in filter(is_code, data):
            (folder / key).write_bytes(data[key])
        if not all(map(is_code, data)):
            sources.append(_assembled(data, folder))
        Toolchain.of(toolchain).shared_library(output, sources, here=here)


def _assembled(data: NamedData, folder: Path) -> Path:
    """An assembler's file that defines each key as a name of its bytes: no compiler reads them."""
    lines = []
    for index, buffer in enumerate(data.buffers):
        keys = sorted(k for k, number in data.keys.items() if number == index and not is_code(k))
        if not keys:
            continue
        file = folder / f"data_{index}.bin"
        file.write_bytes(buffer.data)
        path = str(file).replace("\\", "\\\\").replace('"', '\\"')
        lines += ['.section .rodata,"a",%progbits', f".balign {buffer.alignment}"]
        for key in keys:
            lines += [f".globl {key}", f".hidden {key}", f".type {key}, %object"]
            lines += [f".size {key}, {len(buffer.data)}", f"{key}:"]
        lines.append(f'.incbin "{path}"')
    lines.append('.section .note.GNU-stack,"",%progbits')  # the stack is not to be executed
    source = folder / "data.s"
    source.write_text("\n".join(lines) + "\n")
    return source
