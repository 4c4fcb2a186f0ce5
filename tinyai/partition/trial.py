"""What is taken can be built: a part of a model is tried up to its C before it is handed out.

Builders check one operator, or the calls of one pattern. Passes and kernels see them together,
and one of them may refuse, or fail. The smallest part that has no C then stays on the host, with
the reason, and the front end divides the rest anew. Knows no front end: what an item of a model
is, and how some of them become a graph, is the front end's.
"""

from __future__ import annotations

import bisect
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

from tinyai.backend import compile_once
from tinyai.backend.pipeline import Compiled
from tinyai.codegen.kernels import Kernel
from tinyai.errors import DefectError, DefectWarning, OptionError, OwnCodeError, TinyAIError
from tinyai.ir import Graph
from tinyai.partition.reasons import NO_CODE, OWN_FAULT
from tinyai.report import Reason
from tinyai.target import Target

# What is allowed instead of a fault of tinyai's own.
NO_FAULT = "C for whatever is taken"

Item = TypeVar("Item")


def tried(
    graph: Callable[[], Graph],
    target: Target,
    *,
    named: bool = True,
    kernels: Sequence[Kernel] = (),
) -> Compiled | TinyAIError:
    """The C of a graph, which the build finds again, or why it has none. ``graph`` makes it: what
    that raises counts too. Limits are left to the build. C that is not to be ``named`` as the graph
    may be that of an equal one. ``kernels`` go before tinyai's.

    Raises ``OptionError`` for options with which nothing can be built, and ``OwnCodeError``.
    """
    try:
        return compile_once(graph(), target, named=named, kernels=kernels)
    except (OptionError, OwnCodeError):
        raise
    except TinyAIError as error:
        return error


def to_blame(
    items: Sequence[Item],
    whole: TinyAIError,
    alone: Callable[[Item], TinyAIError | None],
    together: Callable[[Sequence[Item]], TinyAIError | None],
) -> list[tuple[Item, TinyAIError]]:
    """Which of ``items``, in the order of computation, have to leave so that the rest may be built,
    each with the reason: all that fail ``alone``. Where none does, it is the last of the fewest
    that fail ``together``, for ``whole``, which is why all of them do.
    """
    failed = [(item, error) for item in items if (error := alone(item)) is not None]
    if failed:
        return failed
    # With what lies before it. All of them fail, the first does not.
    count = bisect.bisect_left(
        range(1, len(items)), True, key=lambda n: together(items[:n]) is not None
    )
    return [(items[count], whole)]


def unbuilt(row_kind: str, row: str, calls: int, error: TinyAIError) -> Reason:
    """The reason for the report; with a ``DefectWarning`` where the fault is tinyai's own."""
    own = isinstance(error, DefectError)
    what = error.what.splitlines()[0]
    reason = Reason(
        row_kind=row_kind,
        row=row,
        calls=calls,
        clause=OWN_FAULT if own else NO_CODE,
        found=f"{what}: {error.found}" if error.found else what,
        allowed=NO_FAULT if own else str(error.allowed),
    )
    if own:
        warn_of_fault(row, reason.found)
    return reason


def warn_of_fault(row: str, found: str) -> None:
    """Says that an operator stays on the host for no fault of the model's."""
    said = f"{row} stays on the host because of {OWN_FAULT}: {found}"
    warnings.warn(DefectWarning(said), stacklevel=3)
