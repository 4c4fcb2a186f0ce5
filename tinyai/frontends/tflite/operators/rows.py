"""The table of TFLite's operators: how each is read into the vocabulary."""

from __future__ import annotations

from collections.abc import Callable

from tinyai.frontends.tflite.reader import Read, Row

READERS: dict[str, Row] = {}


def reads(*kinds: str, options: str = "", inputs: int | range = 1) -> Callable[[Read], Read]:
    """The decorated function reads the operators of these names, which have so many ``inputs`` and
    the schema's table of ``options``: it makes expressions of the vocabulary, or refuses with the
    reason."""
    counts = inputs if isinstance(inputs, range) else range(inputs, inputs + 1)

    def add(read: Read) -> Read:
        READERS.update({kind: Row(read, options, counts) for kind in kinds})
        return read

    return add
