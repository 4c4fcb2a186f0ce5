"""Data that programs share, by name: each content stored once, whichever names it has.

A back end adds what its programs need under keys (``NamedDataStore``) and hands the frozen
``NamedData`` out beside each program; whoever puts programs together merges them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tinyai.backend.container import LARGEST_ALIGNMENT, Buffer, Kind
from tinyai.errors import FormatError, OptionError

_FILE = Kind(b"TINYDATA", 1, "named data")


@dataclass(frozen=True)
class NamedData:
    """``buffers``, each another content, and for each key the number of its buffer."""

    buffers: tuple[Buffer, ...] = ()
    keys: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", MappingProxyType(dict(self.keys)))

    def __getitem__(self, key: str) -> bytes:
        """The data of a key. Raises ``KeyError``."""
        return self.buffers[self.keys[key]].data

    def __contains__(self, key: object) -> bool:
        return key in self.keys

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    def alignment(self, key: str) -> int:
        """What the address of a key's data is to be a multiple of."""
        return self.buffers[self.keys[key]].alignment

    @property
    def size(self) -> int:
        """Bytes of all buffers, without the room between them."""
        return sum(len(buffer.data) for buffer in self.buffers)

    def to_bytes(self) -> bytes:
        """All of it as one file, the same for the same data."""
        return _FILE.written({"keys": dict(self.keys)}, self.buffers)

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "") -> NamedData:
        """What ``to_bytes`` wrote. Raises ``FormatError`` for what was cut off, altered, written by
        a newer tinyai, or is something else."""
        head, buffers = _FILE.read(content, name)
        return cls.of(buffers, head.get("keys"), name)

    @classmethod
    def of(cls, buffers: list[Buffer], keys: object, name: str = "") -> NamedData:
        """From parts that a file says. Raises ``FormatError`` where they do not fit together."""
        numbers = range(len(buffers))
        fits = isinstance(keys, dict) and all(
            type(index) is int and index in numbers for index in keys.values()
        )
        if not fits:
            raise FormatError(
                f"keys of named data {name}".strip(),
                found=str(keys)[:200],
                allowed=f"an object of numbers below {len(buffers)}",
            )
        return cls(tuple(buffers), keys)  # type: ignore[arg-type]  # it is a dict


class NamedDataStore:
    """What is added to, until ``output`` freezes it.

    A key has one content: the same again is fine, another one an error. Equal contents under
    different keys are stored once, at an address that is a multiple of all their alignments.
    """

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self._keys: dict[str, int] = {}
        self._by_content: dict[bytes, int] = {}

    def add(self, key: str, data: bytes, alignment: int | None = None) -> None:
        """Store ``data`` under ``key``, at a multiple of ``alignment`` bytes (1 where it is None).

        Raises ``OptionError`` for a key that has other data, and for an alignment that is none; the
        store is then what it was.
        """
        alignment = self._checked(key, data, alignment)
        if key in self._keys and self._buffers[self._keys[key]].data != data:
            raise OptionError(
                f"named data {key!r}",
                found=f"{len(data)} bytes that are not those stored under this key",
                allowed="one content a key",
                hint="a key of its content's hash, or another name",
            )
        digest = hashlib.sha256(data).digest()
        index = self._by_content.get(digest, len(self._buffers))
        if index < len(self._buffers):
            stored = self._buffers[index]
            together = math.lcm(stored.alignment, alignment)
            if together > LARGEST_ALIGNMENT:
                raise self._refused(key, f"{alignment}, with {stored.alignment} of the same data")
            self._buffers[index] = replace(stored, alignment=together)
        else:
            self._buffers.append(Buffer(bytes(data), alignment))
        self._by_content[digest] = self._keys[key] = index

    def merge(self, other: NamedData) -> None:
        """Add all that ``other`` has, each key at its alignment. Raises ``OptionError`` as ``add``
        does; what was added until then stays."""
        for key in other:
            self.add(key, other[key], other.alignment(key))

    def output(self) -> NamedData:
        """All that was added, frozen; the store can be added to after that."""
        return NamedData(tuple(self._buffers), self._keys)

    def _checked(self, key: object, data: object, alignment: object) -> int:
        if not isinstance(key, str) or not isinstance(data, bytes | bytearray | memoryview):
            found = f"{type(key).__name__}, {type(data).__name__}"
            raise OptionError("named data", found=found, allowed="a str as key, and bytes")
        if alignment is None:
            return 1
        if type(alignment) is not int or not 1 <= alignment <= LARGEST_ALIGNMENT:
            raise self._refused(key, alignment)
        return alignment

    @staticmethod
    def _refused(key: str, found: object) -> OptionError:
        allowed = f"a whole number from 1 to {LARGEST_ALIGNMENT}"
        return OptionError(f"alignment of named data {key!r}", found=found, allowed=allowed)
