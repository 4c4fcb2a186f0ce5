"""What can go wrong, said so that the reader knows what to do next.

Every message has the same three parts: what was found, what is allowed, what to try.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterable, Iterator
from typing import Any


class TinyAIError(Exception):
    """Base of all errors that tinyai raises on purpose.

    ``what`` names the thing that failed; ``found``, ``allowed`` and ``hint`` are the three
    parts of an answer. They are kept as attributes for tools that print their own way.
    """

    def __init__(
        self,
        what: str,
        *,
        found: object = None,
        allowed: object = None,
        hint: str | None = None,
    ) -> None:
        self.what = what
        self.found = None if found is None else str(found)
        self.allowed = None if allowed is None else str(allowed)
        self.hint = hint
        super().__init__(message(what, found, allowed, hint))


def message(what: str, found: object, allowed: object, hint: str | None) -> str:
    """The text of an error or a warning."""
    parts = [what]
    parts += [f"  found:   {found}"] if found is not None else []
    parts += [f"  allowed: {allowed}"] if allowed is not None else []
    parts += [f"  try:     {hint}"] if hint else []
    return "\n".join(parts)


class OptionError(TinyAIError, ValueError):
    """An option or argument of the user's that tinyai does not know or cannot honour."""


class FormatError(TinyAIError, ValueError):
    """A file that was cut off or altered, that a newer tinyai wrote, or that is something else."""


class ModelError(OptionError):
    """A model that cannot be read, or is not one that can be worked on."""


class DefectError(TinyAIError):
    """A fault of tinyai's own: something failed that no model and no option should make fail."""


class DefectWarning(UserWarning):
    """A part of a model stays on the host for a fault of tinyai's own."""


class UsageWarning(UserWarning):
    """What works, and is likely not what its user meant."""

    def __init__(self, what: str, *, found: object, allowed: object, hint: str) -> None:
        super().__init__(message(what, found, allowed, hint))


class GraphError(DefectError):
    """An ``ir.Graph`` that breaks a rule: a defect of a pass or of a builder."""


class OwnCodeError(TinyAIError):
    """A function of a back end of one's own failed: a builder, a pass, a kernel, ``preprocess``."""


# The back end that functions belong to, by the module that they are in.
_BACK_ENDS: dict[str, str] = {}


def note_functions(functions: Iterable[object], back_end: str) -> None:
    """What these functions raise is told as a fault of ``back_end``, and not of tinyai."""
    whole = (getattr(each, "func", each) for each in functions)  # of a functools.partial
    modules = {str(getattr(each, "__module__", "")) for each in whole}
    _BACK_ENDS.update((each, back_end) for each in modules if each.partition(".")[0] != "tinyai")


@contextlib.contextmanager
def owning_faults(what: str, *passing: type[Exception]) -> Iterator[None]:
    """What is raised inside of this block and is no ``TinyAIError`` becomes a ``DefectError`` that
    says where it happened, or an ``OwnCodeError`` where a function of a back end of one's own was
    called; what is ``passing`` does not."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (TinyAIError, MemoryError, *passing)):
            raise
        raise _fault(error, what) from error


def _fault(error: Exception, what: str) -> TinyAIError:
    """By the innermost function that the exception came through, tinyai's or a back end's."""
    said, place, guilty = f"{type(error).__name__}: {error}", "tinyai", ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        function = f"{module}.{frame.f_code.co_qualname}"
        if module.startswith("tinyai.") and module != __name__:
            place = function
        elif module in _BACK_ENDS:
            guilty = f"{function} of the back end {_BACK_ENDS[module]!r} failed, at {what}"
    if guilty:
        return OwnCodeError(
            guilty,
            found=said,
            allowed="a result, or a Refusal with the reason",
            hint="the exception's cause has the lines: -v shows them",
        )
    return DefectError(
        f"a fault of tinyai's own in {place}, at {what}",
        found=said,
        allowed="no exception, whatever the model",
        hint="report it with the model; partition_for_tinyai leaves the part on the host",
    )


class UnsupportedError(TinyAIError):
    """An operator reached code generation that the back end has no code for."""


class LimitError(TinyAIError):
    """The generated code would need more memory than the target allows."""


class BoundaryError(TinyAIError):
    """Operators that compute stay on the host, though ``strict`` asked for none.

    ``report`` is the ``tinyai.report.Report`` of the module; its host rows end the message.
    """

    def __init__(
        self, what: str, *, report: Any, found: object, allowed: object, hint: str | None = None
    ) -> None:
        super().__init__(what, found=found, allowed=allowed, hint=hint)
        self.report = report
        self.args = (f"{self.args[0]}\n\n{report}",)


class ToolchainError(TinyAIError):
    """A C compiler is missing or rejected the code."""


class EnvironmentProblem(TinyAIError, ImportError):
    """Something outside tinyai is missing: a TVM with Relay above all."""
