"""What a model file says that cannot be: found, allowed, what to try."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

LARGEST = 2**31 - 1  # bytes of a tensor
_AGAIN = "export or convert the model again: the file is damaged or was made by a faulty tool"


class Fault(Exception):
    """What a check found in a file, what is allowed, what to try."""

    def __init__(self, found: str, allowed: str, hint: str = _AGAIN) -> None:
        super().__init__(found)
        self.found, self.allowed, self.hint = found, allowed, hint


def check_shape(what: str, shape: Sequence[int], item: float) -> int:
    """The bytes of a tensor; ``item`` are those of one element.

    Raises ``Fault`` for a negative dimension and for more than ``LARGEST`` bytes or elements.
    """
    if any(dim < 0 for dim in shape):
        raise Fault(f"{what} of shape {shown(shape)}", "dimensions of 0 and more")
    count = math.prod(shape)  # of a hostile file perhaps too large for a float
    if count > LARGEST or count * item > LARGEST:
        raise Fault(
            f"{what} of shape {shown(shape)}, {item or 'unknown'} bytes an element",
            f"at most {LARGEST:,} bytes a tensor",
            "a smaller batch or image, or " + _AGAIN,
        )
    return math.ceil(count * item)


def shown(shape: Iterable[object]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
