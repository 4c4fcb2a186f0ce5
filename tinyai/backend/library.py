"""Programs of C, and the data that they share, compiled to one library."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tinyai.backend.named_data import NamedData
from tinyai.backend.sharing import is_code
from tinyai.runtime.assembler import assembled
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
            sources.append(assembled(_arrays(data), folder))
        Toolchain.of(toolchain).shared_library(output, sources, here=here)


def _arrays(data: NamedData) -> Iterator[tuple[list[str], bytes, int]]:
    for index, buffer in enumerate(data.buffers):
        keys = sorted(k for k, number in data.keys.items() if number == index and not is_code(k))
        if keys:
            yield keys, buffer.data, buffer.alignment
