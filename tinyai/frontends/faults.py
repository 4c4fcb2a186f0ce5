"""What a model file says that cannot be: found, allowed, what to try."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tinyai.errors import EnvironmentProblem, ModelError, TinyAIError
from tinyai.safe_text import safe

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
        hint = f"larger --input-shapes, where they were asked for; else {_AGAIN}"
        raise Fault(f"{what} of shape {shown(shape)}", "dimensions of 0 and more", hint)
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


@contextmanager
def faults_of(file: Path, kind: str) -> Iterator[None]:
    """Faults of a file, and what readers of files raise, which is what they like, become a
    ``ModelError``; ``kind`` is how its name ends."""
    try:
        try:
            yield
        except (Fault, TinyAIError, MemoryError):
            raise
        except Exception as error:
            found = f"{type(error).__name__}: {last_line(error)}"
            raise Fault(found, f"a whole {kind} file") from error
    except Fault as fault:
        found = f"{safe(str(file))}: {safe(fault.found, 240)}"
        raise ModelError(
            "model file", found=found, allowed=fault.allowed, hint=fault.hint
        ) from None


def last_line(error: Exception) -> str:
    """The end of a message. TVM's end with what happened, after the frames of the C++ stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def missing(package: str) -> EnvironmentProblem:
    """What to say where the package that reads a format is not there."""
    return EnvironmentProblem(
        f"the package {package}, which reads .{package} files, is missing",
        found="no such module",
        allowed="an installed one",
        hint=f'pip install "tinyai[{package}]"',
    )
