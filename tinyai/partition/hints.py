"""What a report says to change so that an operator is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinyai.report import Reason

# Clauses of what was taken, and turned out to have no C.
OWN_FAULT, NO_CODE = "a fault of tinyai's own", "code generation"

# What to change, by what a reason is like: the first that applies.
Hints = Sequence[tuple[Callable[[Reason], bool], str]]


def about(*clauses: str) -> Callable[[Reason], bool]:
    """Whether a reason is one of these clauses."""
    return lambda reason: reason.clause in clauses


_COMMON_HINTS: Hints = (
    (about(OWN_FAULT), "report it with the model; all that was built computes what it should"),
    (
        about(NO_CODE),
        "nothing has to change, for the host computes it; or write it with other operators",
    ),
)


def hint_of(reason: Reason, hints: Hints = ()) -> str:
    """What to change so that a clause holds: by a front end's ``hints``, or in general."""
    for applies, text in (*hints, *_COMMON_HINTS):
        if applies(reason):
            return text
    return f"change the model so that the clause holds: {reason.clause}, {reason.allowed}"
