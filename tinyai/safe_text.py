"""Names and values of a model, which nobody vouches for, so that they can be shown."""

from __future__ import annotations

VALUE = 120  # the longest value that is shown, in characters


def safe(text: str, most: int = VALUE) -> str:
    """``text`` on one line, in at most ``most`` characters: what is not printable (control and
    format characters, line ends, lone surrogates) as an escape, a long text without its middle."""
    if len(text) > most:  # before escaping, so that a huge text costs no more than a long one
        text = _shorten(text, most)
    return _shorten("".join(map(_escape, text)), most)


def _shorten(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail - 1]}…{text[-tail:]}"


def _escape(character: str) -> str:
    if character.isprintable() and character != "\\":
        return character
    return character.encode("unicode_escape").decode()
