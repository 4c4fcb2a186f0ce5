"""Constant arrays as C. Bytes become string literals, which compilers read ten times as fast as
lists of numbers (docs/architecture.md, "Where the weights live")."""

from __future__ import annotations

from collections.abc import Iterator

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


# Four bytes each, so that numpy can look them up; the zeros that fill up go away behind that.
_BYTES = np.array([_character(byte) for byte in range(256)], "S4")


def constant(name: str, value: Array) -> str:
    """Definition of a 64-byte aligned array of the value's elements in C order.

    ``name`` says what the array holds (its hash), so that the linker may keep one of the arrays of
    one name that the files of several regions define.
    """
    dtype = DType(value.dtype.name)
    c_type = C_TYPES[dtype]
    if dtype.bytes == 1 and value.size > _SHORT:
        # One element more: C++ wants room for the literal's terminating zero.
        body = "\n".join(_strings(value))
        return f"TINYAI_CONSTANT({c_type}, {name}, {value.size + 1}) =\n{body};\n"
    body = ",\n".join(_numbers(value, dtype))
    return f"TINYAI_CONSTANT({c_type}, {name}, {value.size}) = {{\n{body}\n}};\n"


def declaration(definition: str) -> str:
    """What another object of the same library needs to know of a constant."""
    return definition[: definition.index(")") + 1].replace("_CONSTANT(", "_ELSEWHERE(") + ";\n"


def _strings(value: Array) -> Iterator[str]:
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    for start in range(0, data.size, _PER_LINE[1]):
        line = _BYTES[data[start : start + _PER_LINE[1]]].tobytes().translate(None, b"\0")
        yield f'"{line.decode()}"'


def _numbers(value: Array, dtype: DType) -> Iterator[str]:
    flat = value.reshape(-1)
    plain = dtype.bytes <= 4 and not dtype.is_float and not np.any(flat == dtype.range[0])
    texts = [str(x) if plain else literal(x, dtype) for x in flat.tolist()]
    per_line = _PER_LINE[dtype.bytes]
    for start in range(0, len(texts), per_line):
        yield ", ".join(texts[start : start + per_line])
