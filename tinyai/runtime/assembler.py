"""Bytes that the assembler puts into a library as they are: no compiler reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-")


def assembled(arrays: Iterable[tuple[Sequence[str], bytes, int]], folder: Path) -> Path:
    """An assembler's file in ``folder`` that defines arrays, each by its names (identifiers), bytes
    and alignment, for the files of one library."""
    lines, data = [], bytearray()
    file = folder / "data.bin"
    for names, content, alignment in arrays:
        lines += ['.section .rodata,"a",%progbits', f".balign {alignment}"]
        for name in names:
            lines += [f".globl {name}", f".hidden {name}", f".type {name}, %object"]
            lines += [f".size {name}, {len(content)}", f"{name}:"]
        if content:
            # What is no plain character is an octal escape.
            path = "".join(chr(b) if b in _PLAIN else f"\\{b:03o}" for b in bytes(file))
            lines.append(f'.incbin "{path}",{len(data)},{len(content)}')
        data += content
    lines.append('.section .note.GNU-stack,"",%progbits')  # the stack is not to be executed
    file.write_bytes(data)
    source = folder / "data.s"
    source.write_text("\n".join(lines) + "\n")
    return source
