"""One file of named parts: a head of JSON, and buffers at aligned offsets. Read whole or refused.

| bytes | what |
|---|---|
| 8 | the kind of the file |
| 4 | the version of the kind, little-endian, as all numbers are |
| 4 | bytes of the head |
| 8 | bytes of the file |
| 32 | SHA-256 of all that is in front of it and all that follows |
| | the head: JSON (UTF-8) with ``head`` and, for each buffer, ``[offset, bytes, alignment]`` |
| | the buffers |

The same arguments give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinyai.errors import FormatError

_NUMBERS = struct.Struct("<8sIIQ")
_DIGEST_BYTES = 32
_START = _NUMBERS.size + _DIGEST_BYTES
# No buffer asks for more: an alignment is what memory can be mapped at, or a multiple of it.
LARGEST_ALIGNMENT = 2**30


@dataclass(frozen=True)
class Buffer:
    """Bytes that begin at a multiple of ``alignment`` in a file."""

    data: bytes
    alignment: int = 1


@dataclass(frozen=True)
class Kind:
    """A kind of file: ``magic`` (8 bytes), the ``version`` that is written, and what it is called
    in messages."""

    magic: bytes
    version: int
    name: str

    def written(self, head: Mapping[str, Any], buffers: Sequence[Buffer]) -> bytes:
        """A file with this head, which JSON can say, and these buffers."""
        places, text = self._placed(head, buffers)
        end = places[-1][0] + places[-1][1] if places else _START + len(text)
        numbers = _NUMBERS.pack(self.magic, self.version, len(text), end)
        body = bytearray(end - _START)
        body[: len(text)] = text
        for (offset, size, _), buffer in zip(places, buffers, strict=True):
            body[offset - _START : offset - _START + size] = buffer.data
        return b"".join((numbers, hashlib.sha256(numbers + body).digest(), body))

    def _placed(
        self, head: Mapping[str, Any], buffers: Sequence[Buffer]
    ) -> tuple[list[tuple[int, int, int]], bytes]:
        """The place of each buffer, and the text of the head, which names the places and stands in
        front of them. Places only grow with the text, so the loop reaches a fixed point."""
        room = 0
        while True:
            places, at = [], _START + room
            for buffer in buffers:
                at += -at % buffer.alignment
                places.append((at, len(buffer.data), buffer.alignment))
                at += len(buffer.data)
            said = {"head": head, "buffers": places}
            text = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
            if len(text) <= room:
                return places, text.ljust(room)
            room = len(text)

    def read(self, content: bytes, name: str = "") -> tuple[dict[str, Any], list[Buffer]]:
        """The head and the buffers of a file. Raises ``FormatError`` for one of another kind, one
        that a newer tinyai wrote, and one that was cut off or altered."""

        def refuse(found: object, allowed: object, hint: str = "") -> FormatError:
            said = f"{self.name} {name}".strip()
            return FormatError(said, found=found, allowed=allowed, hint=hint or "make it anew")

        if content[:8] != self.magic:
            raise refuse(f"a file that begins with {content[:8]!r}", repr(self.magic))
        if len(content) < _START:
            raise refuse(f"{len(content)} bytes", f"at least {_START}: it was cut off")
        _, version, head_bytes, size = _NUMBERS.unpack_from(content)
        if not 1 <= version <= self.version:
            hint = "load it with the tinyai that wrote it, or a newer one"
            raise refuse(f"version {version}", f"version 1 to {self.version}", hint)
        if len(content) != size:
            raise refuse(f"{len(content)} bytes", f"{size}: it was cut off or added to")
        digest = content[_NUMBERS.size : _START]
        if hashlib.sha256(content[: _NUMBERS.size] + content[_START:]).digest() != digest:
            raise refuse("another checksum", "the one that it was written with: it was altered")
        try:
            said = json.loads(content[_START : _START + head_bytes])
            buffers = [_buffer(content, *place) for place in said["buffers"]]
            head = said["head"]
            if not isinstance(head, dict):
                raise TypeError("a head that is no object")
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            raise refuse(f"a head without sense: {error}", "what tinyai writes") from None
        return head, buffers


def _buffer(content: bytes, offset: int, size: int, alignment: int) -> Buffer:
    """Raises ``ValueError`` for what lies nowhere in the file."""
    numbers = (offset, size, alignment)
    if any(type(number) is not int for number in numbers) or min(numbers) < 0:
        raise ValueError(f"a buffer at {numbers}")
    if not 1 <= alignment <= LARGEST_ALIGNMENT or offset % alignment:
        raise ValueError(f"an alignment of {alignment} at {offset}")
    if offset < _START or offset + size > len(content):
        raise ValueError(f"bytes {offset} to {offset + size} of {len(content)}")
    return Buffer(content[offset : offset + size], alignment)
