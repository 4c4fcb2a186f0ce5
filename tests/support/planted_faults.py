"""Faults planted in a copy of emitted C."""

from __future__ import annotations

import re

_WEIGHTS = re.compile(r'(TINYAI_CONSTANT\(int8_t, (\w+), \d+\) =\n")(\\[0-7]{1,3}|[^"\\])')


def weights_of(text: str) -> list[str]:
    """The names of the arrays of int8 that are string literals, in the order of the layers."""
    return [match[2] for match in _WEIGHTS.finditer(text)]


def with_wrong_weight(text: str, array: str) -> str:
    """The C with another value in place of the first one of an array."""

    def changed(match: re.Match[str]) -> str:
        if match[2] != array:
            return match[0]
        found = match[3]
        byte = int(found[1:], 8) if found.startswith("\\") else ord(found)
        return f"{match[1]}\\{byte ^ 0x55:03o}"

    wrong = _WEIGHTS.sub(changed, text)
    assert wrong != text
    return wrong


def with_wrong_number(text: str, number: int) -> str:
    """The weights of a C package with another value in place of the first one of an array of int8,
    the one of this number."""
    arrays = list(re.finditer(r"^const int8_t \w+\[\d+\] = \{\n(-?\d+)", text, re.MULTILINE))
    start, end = arrays[number].span(1)
    byte = (int(text[start:end]) & 0xFF) ^ 0x55
    return f"{text[:start]}{byte - 256 if byte > 127 else byte}{text[end:]}"
