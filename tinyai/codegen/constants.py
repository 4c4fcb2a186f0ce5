"""Constant arrays as C. Bytes become string literals, which compilers read ten times as fast as
lists of numbers (docs/measurements.md, "Where the weights live")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tinyai.codegen.c import C_TYPES, literal
from tinyai.ir import Array, DType

_PER_LINE = {1: 128, 2: 16, 4: 12, 8: 6}
_SHORT = 64


def _character(byte: int) -> str:
    """A byte inside a string literal, as short as it can be. No octal digit stands for itself, for
    it would extend the escape in front of it, and no question mark, for two begin a trigraph."""
    plain = chr(byte)
    return plain if " " <= plain <= "~" and plain not in '"\\?01234567' else f"\\{byte:o}"


# Four bytes each, so that numpy can look them up; the zeros that fill up go away after that.
_BYTES = np.array([_character(byte) for byte in range(256)], "S4")


@dataclass(frozen=True, eq=False)
class ConstantArray:
    """A 64-byte aligned array of the elements of ``value`` in C order.

    ``name`` says what it holds (its hash), so that the linker may keep one of the arrays of one
    name that the files of several regions define.
    """

    name: str
    value: Array

    @classmethod
    def of(cls, name: str, value: Array) -> ConstantArray:
        return cls(name, np.ascontiguousarray(value))

    @property
    def data(self) -> bytes:
        """Its elements, as they lie in memory."""
        return self.value.tobytes()

    @property
    def c_type(self) -> str:
        return C_TYPES[self._dtype]

    @property
    def count(self) -> int:
        """Elements in C: one more than there are in a literal, for C++ wants room for its
        terminating zero."""
        return self.value.size + self._is_literal

    @property
    def size(self) -> int:
        """In bytes."""
        return self.value.nbytes

    @property
    def elements(self) -> str:
        if self._is_literal:
            data = np.ascontiguousarray(self.value).reshape(-1).view(np.uint8)
            lines = (
                _BYTES[data[start : start + _PER_LINE[1]]].tobytes().translate(None, b"\0")
                for start in range(0, data.size, _PER_LINE[1])
            )
            return "\n".join(("", *(f'"{line.decode()}"' for line in lines)))
        return self.numbers

    @property
    def numbers(self) -> str:
        """Its elements one by one: no literal, and no zero behind the last one."""
        return " {\n" + ",\n".join(_numbers(self.value, self._dtype)) + "\n}"

    @property
    def definition(self) -> str:
        return f"TINYAI_CONSTANT({self.c_type}, {self.name}, {self.count}) ={self.elements};\n"

    @property
    def declaration(self) -> str:
        """What another object of the same library needs to know of it."""
        return f"TINYAI_ELSEWHERE({self.c_type}, {self.name}, {self.count});\n"

    @property
    def place(self) -> str:
        """Where its definition belongs, in C that leaves it out."""
        return f"TINYAI_APART({self.c_type}, {self.name}, {self.count});\n"

    @property
    def _dtype(self) -> DType:
        return DType(self.value.dtype.name)

    @property
    def _is_literal(self) -> bool:
        return self._dtype.bytes == 1 and self.value.size > _SHORT


# In front of the first place: it makes places declarations of what another object defines. No line
# of it is anywhere else in a file.
APART = """#define TINYAI_APART(type, name, count) \\
    TINYAI_C const type name[count] __attribute__((visibility("hidden"), aligned(64)))
"""


def _numbers(value: Array, dtype: DType) -> Iterator[str]:
    flat = value.reshape(-1)
    plain = dtype.bytes <= 4 and dtype.is_integer and not np.any(flat == dtype.range[0])
    texts = [str(x) if plain else literal(x, dtype) for x in flat.tolist()]
    per_line = _PER_LINE[dtype.bytes]
    for start in range(0, len(texts), per_line):
        yield ", ".join(texts[start : start + per_line])
