"""Why a back end of one's own leaves an operator, or a whole model, for every front end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tinyai.errors import UsageWarning
from tinyai.lowering import Composite, refusal_of_composite
from tinyai.match import match, nearest_miss, operators
from tinyai.own import OwnBackend
from tinyai.partition.reasons import Language, Whole
from tinyai.patterns import PatternRow
from tinyai.report import Reason
from tinyai.safe_text import safe
from tinyai.source import Call, Expr, Rounding, post_order

# How many calls above an operator a composite may end.
_DEEPEST, _MOST = 16, 40


def idle(
    own: OwnBackend,
    lowered: Iterable[Expr],
    source: Expr,
    rounding: Rounding,
    language: Language,
) -> UsageWarning | None:
    """What to say of a back end of which neither a composite nor an operator is in ``lowered``,
    what a model became whose calls lead to ``source``; nothing of one that has passes or kernels
    alone."""
    rows = tuple(row for row in own.patterns if row.build)
    if not rows and not own.operators:
        return None if own.passes or own.kernels or not own.name else _nothing_to_make(own)
    made = (each for result in lowered for each in post_order(result) if isinstance(each, Call))
    if any(isinstance(each, Composite) or each.op in own.operators for each in made):
        return None
    calls = [each for each in post_order(source) if isinstance(each, Call)]
    whole = Whole.of([source], (), {}, None, rounding, language)
    builders = replace(own, patterns=rows)
    reasons = [(reason_of_own(builders, call, whole), call) for call in calls]
    found, allowed = "a model without operators", "one that computes"
    if reasons:
        reason, call = max(reasons, key=lambda each: (each[0].calls, each[0].row))
        row = f"{reason.row} at " if reason.row else ""
        found = f"nearest, {row}{safe(call.name or call.spelled)}: {reason.clause}, {reason.found}"
        allowed = reason.allowed
    return UsageWarning(
        f"the back end {own.name!r} takes nothing of the model",
        found=found,
        allowed=allowed,
        hint="all of it is computed without it; nothing, where that is meant",
    )


def _nothing_to_make(own: OwnBackend) -> UsageWarning:
    return UsageWarning(
        f"the back end {own.name!r} has nothing that is used here",
        found=f"{len(own.patterns)} patterns, none with a builder",
        allowed="a builder, an operator, a pass or a kernel",
        hint="PatternRow(..., build=...): partition_for alone needs none",
    )


def reason_of_own(own: OwnBackend, call: Call, whole: Whole) -> Reason:
    """The composite that covers most calls around ``call``, and why it was not made; that no
    pattern has the operator, where none has."""
    rows = [row for row in own.patterns if call.op in operators(row.pattern)]
    if not rows:
        names = sorted(set().union(*(operators(row.pattern) for row in own.patterns)))
        allowed = (
            f"an operator of the patterns of {own.name}: {', '.join(names) or 'there is none'}"
        )
        known = "" if call.op == call.spelled else f", {call.op} in patterns"
        return Reason("none", "", 0, "operator", f"{call.spelled}{known}", allowed)
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
