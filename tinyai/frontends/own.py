"""Why a back end of one's own leaves an operator, for every front end's report."""

from __future__ import annotations

from collections.abc import Iterator

from tinyai.lowering import refusal_of_composite
from tinyai.match import match, nearest_miss, operators
from tinyai.own import OwnBackend
from tinyai.partition.reasons import Whole
from tinyai.patterns import PatternRow
from tinyai.report import Reason
from tinyai.source import Call

# How many calls above an operator a composite may end.
_DEEPEST, _MOST = 16, 40


def reason_of_own(own: OwnBackend, call: Call, whole: Whole) -> Reason:
    """The composite that covers most calls around ``call``, and why it was not made; that no
    pattern has the operator, where none has."""
    rows = [row for row in own.patterns if call.op in operators(row.pattern)]
    if not rows:
        names = sorted(set().union(*(operators(row.pattern) for row in own.patterns)))
        allowed = (
            f"an operator of the patterns of {own.name}: {', '.join(names) or 'there is none'}"
        )
        return Reason("none", "", 0, "operator", call.spelled, allowed)
    places = ((row, root) for root in _roots(call, whole) for row in rows)
    reasons = [reason for row, root in places for reason in _reasons(row, root, call, whole)]
    return max(reasons, key=lambda reason: reason.calls)


def _roots(call: Call, whole: Whole) -> list[Call]:
    """``call`` and those above it, nearest first."""
    found, level = {call: None}, [call]
    for _ in range(_DEEPEST):
        level = [user for each in level for user in whole.users_of(each) if user not in found]
        found |= dict.fromkeys(level)
        if len(found) > _MOST:
            break
    return list(found)[:_MOST]


def _reasons(row: PatternRow, root: Call, call: Call, whole: Whole) -> Iterator[Reason]:
    calls = match(row.pattern, root)
    if calls is None:
        miss = nearest_miss(row.pattern, root, whole.language.spelled)
        if miss is not None and (call in miss.calls or root is call):
            clause = f"pattern: {miss.argument or call.spelled}"
            yield Reason("composite", row.name, len(miss.calls), clause, miss.found, miss.allowed)
    elif call in calls:
        refusal = refusal_of_composite(row, root, whole.rounding)
        if refusal is not None:
            said = refusal.clause, refusal.found, refusal.allowed
        else:
            others = {
                user.spelled
                for each in calls
                if each is not root
                for user in whole.users_of(each)
                if user not in calls
            }
            shared = ", ".join(sorted(others)) or "an output of the model, or another composite"
            said = "other readers", shared, "none outside of the composite"
        yield Reason("composite", row.name, len(calls), *said)
