"""Faults planted in a copy of emitted C, in the last weight of an array that is not 0: what comes
first may be numbers of places, and zeros at the end channels that nobody reads."""

from __future__ import annotations

import re

_WEIGHTS = re.compile(r'(TINYAI_CONSTANT\(int8_t, (\w+), \d+\) =\n)((?:\s*"(?:[^"\\]|\\.)*")+)')
_BYTE = re.compile(r'\\([0-7]{1,3})|[^"\\\s]')
_NUMBERS = re.compile(r"^const int8_t \w+\[\d+\] = \{\n([^}]*)", re.MULTILINE)


def weights_of(text: str) -> list[str]:
    """The names of the arrays of int8 that are string literals, in the order of the layers."""
    return [match[2] for match in _WEIGHTS.finditer(text)]


def with_wrong_weight(text: str, array: str) -> str:
    """The C with another value in place of one weight of an array."""
    found = next(each for each in _WEIGHTS.finditer(text) if each[2] == array)
    byte = [each for each in _BYTE.finditer(found[3]) if int(each[1] or "1", 8)][-1]
    value = int(byte[1], 8) if byte[1] else ord(byte[0])
    start, end = (found.start(3) + place for place in byte.span())
    return f"{text[:start]}\\{value ^ 0x55:03o}{text[end:]}"


def with_wrong_number(text: str, number: int) -> str:
    """The weights of a C package with another value in place of one weight, of the array of int8
    of this number."""
    found = [*_NUMBERS.finditer(text)][number]
    last = [each for each in re.finditer(r"-?\d+", found[1]) if int(each[0])][-1]
    start, end = (found.start(1) + place for place in last.span())
    byte = (int(last[0]) & 0xFF) ^ 0x55
    return f"{text[:start]}{byte - 256 if byte > 127 else byte}{text[end:]}"
