"""What the native part knows of a delegate: written here, read by ``native/blob.h``."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MAGIC = b"TINYAIET"
VERSION = 2
_CRC_AT = 16


@dataclass(frozen=True)
class PortSpec:
    """An input or output as the runtime has it: ExecuTorch's number of the dtype, the sizes, and
    the order in which axes lie in memory."""

    dtype: int
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]

    def to_bytes(self) -> bytes:
        rank = len(self.sizes)
        return struct.pack(f"<BB{rank}B{rank}I", self.dtype, rank, *self.dim_order, *self.sizes)


@dataclass(frozen=True)
class Blob:
    """``library`` is under ``key`` in the program's named data and exports ``entry``. Without one
    the network is linked: ``entry`` is its package's name, and ``key`` the package's hash.
    ``layers`` are names by a layer's number."""

    key: str
    entry: str
    inputs: Sequence[PortSpec]
    outputs: Sequence[PortSpec]
    layers: Mapping[int, str] = field(default_factory=dict)
    library: bytes = b""

    def to_bytes(self) -> bytes:
        """The same for the same arguments; ``native/blob.h`` says what is where."""
        parts = [
            struct.pack("<IQ", zlib.crc32(self.library), len(self.library)),
            struct.pack("<3I", len(self.inputs), len(self.outputs), len(self.layers)),
            _text(self.key),
            _text(self.entry),
            *(port.to_bytes() for port in (*self.inputs, *self.outputs)),
            *(struct.pack("<I", n) + _text(self.layers[n]) for n in sorted(self.layers)),
        ]
        body = b"".join(parts)
        front = struct.pack("<8sII", MAGIC, VERSION, _CRC_AT + 4 + len(body))
        return front + struct.pack("<I", zlib.crc32(front + body)) + body


def _text(text: str) -> bytes:
    """A text is one for C, too: a zero in it would be its end."""
    content = text.replace("\0", "?").encode(errors="replace")
    return struct.pack("<I", len(content)) + content + b"\0"
