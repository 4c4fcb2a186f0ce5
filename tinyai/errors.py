"""What can go wrong, said so that the reader knows what to do next.

Every message has the same three parts: what was found, what is allowed, what to try.
"""

from __future__ import annotations

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
        parts = [what]
        parts += [f"  found:   {self.found}"] if self.found is not None else []
        parts += [f"  allowed: {self.allowed}"] if self.allowed is not None else []
        parts += [f"  try:     {hint}"] if hint else []
        super().__init__("\n".join(parts))


class OptionError(TinyAIError, ValueError):
    """An option or argument of the user's that tinyai does not know or cannot honour."""


class GraphError(TinyAIError):
    """An ``ir.Graph`` that breaks a rule: a defect of a pass or of a builder."""


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
