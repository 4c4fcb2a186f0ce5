"""Why an operator stayed on the host, of a model whose partition is known.

A front end hands over the whole model in neutral form, regions and composites dissolved, with a
note of which calls its regions hold. The reason comes from the checks that kept the operator out,
asked once more: ``refusal_of_composite`` and ``refusal_of_operator``. Where they would take the
operator, the reason lies in the partition.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tinyai.lowering import refusal_of_composite, refusal_of_operator
from tinyai.match import match, nearest_miss, operators
from tinyai.partition.macs import macs
from tinyai.patterns import (
    LEFT_TO_THE_HOST,
    LONGEST_CHAIN,
    OPERATORS,
    PATTERNS,
    PatternRow,
    computes,
    refusal_of_unknown,
)
from tinyai.report import Reason
from tinyai.source import TVMS_OWN, Call, Expr, Field, Refusal, Rounding, tensors_of

# Clauses of what was taken, and turned out to have no C.
OWN_FAULT, NO_CODE = "a fault of tinyai's own", "code generation"
# Clauses of what is left out because of what is beside it.
NEIGHBOURS, IDLE = "neighbours", "idle region"
_MOST_ROOTS = 64  # places above an operator at which a composite around it is looked for


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
    (
        about(NEIGHBOURS),
        "nothing: it goes with the operators beside it, of which the report says more",
    ),
    (about(IDLE), "nothing, since it computes nothing"),
)


def hint_of(reason: Reason, hints: Hints = ()) -> str:
    """What to change so that a clause holds: by a front end's ``hints``, or in general."""
    for applies, text in (*hints, *_COMMON_HINTS):
        if applies(reason):
            return text
    return f"change the model so that the clause holds: {reason.clause}, {reason.allowed}"


@dataclass(frozen=True)
class Language:
    """How a front end's language spells the vocabulary: ``spelled`` is its name of an operator,
    ``supported`` are those that have a builder, by its names; ``hint`` says what to change so that
    a clause holds, ``macs`` how much work a call is."""

    spelled: Callable[[str], str] = str
    supported: tuple[str, ...] = tuple(OPERATORS)
    hint: Callable[[Reason], str] = hint_of
    macs: Callable[[Call], int | None] = macs


@dataclass(frozen=True)
class Whole:
    """A partitioned model without its partition.

    ``users`` are the calls that read a tensor, tuples looked through, in order; ``outputs`` what
    computes the results of the model; ``regions`` the symbol of the region that holds a call (none:
    the host); ``unbuilt`` why a call is on the host that was taken and turned out to have no C;
    ``rounding`` whose arithmetic it was partitioned for; ``language`` that of the model.
    """

    users: Mapping[Expr, tuple[Call, ...]]
    outputs: frozenset[Expr]
    regions: Mapping[Expr, str]
    unbuilt: Mapping[Call, Reason] = field(default_factory=dict)
    rounding: Rounding = TVMS_OWN
    language: Language = Language()
    _alone: dict[Call, Refusal | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        results: Iterable[Expr],
        calls: Iterable[Call],
        regions: Mapping[Expr, str],
        unbuilt: Mapping[Call, Reason] | None = None,
        rounding: Rounding = TVMS_OWN,
        language: Language = Language(),
    ) -> Whole:
        """All that ``results`` (what functions return) and ``calls`` depend on."""
        outputs = [maker_of(tensor) for result in results for tensor in tensors_of(result)]
        users: dict[Expr, dict[Call, None]] = {}
        seen: set[Expr] = set()
        stack = [*reversed(list(calls)), *reversed(outputs)]
        while stack:
            expr = stack.pop()
            if expr in seen or not isinstance(expr, Call):
                continue
            seen.add(expr)
            for tensor in read_tensors(expr):
                users.setdefault(tensor, {})[expr] = None
                stack.append(maker_of(tensor))
        read = {e: tuple(u) for e, u in users.items()}
        return cls(read, frozenset(outputs), regions, unbuilt or {}, rounding, language)

    def refusal(self, call: Call) -> Refusal | None:
        """``refusal_of_operator``, asked once."""
        if call not in self._alone:
            self._alone[call] = refusal_of_operator(call, self.rounding)
        return self._alone[call]

    def users_of(self, expr: Expr) -> tuple[Call, ...]:
        """The calls that read any tensor of an expression."""
        return tuple(
            dict.fromkeys(u for each in tensors_of(expr) for u in self.users.get(each, ()))
        )


def read_tensors(call: Call) -> list[Expr]:
    return [tensor for arg in call.args for tensor in tensors_of(arg)]


def maker_of(tensor: Expr) -> Expr:
    """What a tensor is computed by: the call for a field of its result."""
    return tensor.call if isinstance(tensor, Field) else tensor


def _reads(call: Call) -> list[Expr]:
    """The expressions that a call reads tensors of."""
    return [maker_of(tensor) for tensor in read_tensors(call)]


# --- Reasons -----------------------------------------------------------------------------------


def reason_for(call: Call, whole: Whole) -> Reason:
    """The nearest row and its failed clause.

    An operator that no row knows has none (some have a reason of their own). Else it is the
    composite that covers most calls, two at least and this one among them, and refuses because of
    it, or, where it is one for floats, for any reason or because it fits in part only. Else the
    operator's own row. Where that would take it, the partition left it out.
    """
    if call.op not in OPERATORS:
        unknown = refusal_of_unknown(call)
        own = call.op in LEFT_TO_THE_HOST
        allowed = (
            unknown.allowed if own else known_operators(call.spelled, whole.language.supported)
        )
        return Reason("none", "", 0, unknown.clause, unknown.found, allowed)
    if call in whole.unbuilt:
        return whole.unbuilt[call]
    refusal = whole.refusal(call)
    if refusal is None:
        return _left_out(call, whole)
    nearest = list(_composites(call, whole))
    if nearest:
        return max(nearest, key=lambda reason: reason.calls)
    for row in _rows_for(call.op):
        # An edge of floats is one operator's composite: why that was not made says more.
        if row.floats and match(row.pattern, call) == (call,):
            refusal = refusal_of_composite(row, call, whole.rounding) or refusal
    return Reason("operator", call.spelled, 1, refusal.clause, refusal.found, refusal.allowed)


def known_operators(name: str, taken: Iterable[str]) -> str:
    """What is allowed instead of an unknown operator: names that are like it, where there are."""
    return f"an operator of tinyai/patterns.py{such_as(name, taken)}"


def such_as(name: str, taken: Iterable[str]) -> str:
    """The names of ``taken`` that are like ``name``, as the end of a sentence; nothing where there
    are none."""

    def last(text: str) -> str:
        return text.rpartition(".")[2]

    names = list(taken)
    like = difflib.get_close_matches(last(name), map(last, names), n=3, cutoff=0.7)
    close = [known for known in names if last(known) in like or last(name).startswith(last(known))]
    return f", such as {', '.join(close)}" if close else ""


def _composites(call: Call, whole: Whole) -> Iterator[Reason]:
    """A reason from each composite around ``call`` that could have held it, whole fits first."""
    floats = any(t.dtype.startswith("float") for e in (call, *_reads(call)) for t in e.types)
    places = [(row, root) for root in _roots(call, whole) for row in _rows_for(call.op)]
    for row, root in places:
        calls = match(row.pattern, root)
        if calls and len(calls) > 1 and call in calls:
            reason = _reason_of_match(row, calls, root, call, whole)
            if reason is not None:
                yield reason
    for row, root in places if floats else ():
        miss = nearest_miss(row.pattern, root, whole.language.spelled) if row.floats else None
        if miss is not None and call in miss.calls and len(miss.calls) > 1:
            count, clause = len(miss.calls), f"pattern: {miss.argument}"
            yield Reason("composite", row.name, count, clause, miss.found, miss.allowed)


def _rows_for(operator: str) -> tuple[PatternRow, ...]:
    return tuple(row for row in PATTERNS if operator in _MENTIONED[row.name])


_MENTIONED = {row.name: operators(row.pattern) for row in PATTERNS}


def _roots(call: Call, whole: Whole) -> list[Call]:
    """``call`` and the calls above it in which a composite that holds it may end, nearest first."""
    found = {call: None}
    level = [call]
    for _ in range(LONGEST_CHAIN):
        level = [user for each in level for user in whole.users_of(each) if user not in found]
        found |= dict.fromkeys(level)
        if not level or len(found) > _MOST_ROOTS:
            break
    return list(found)[:_MOST_ROOTS]


def _reason_of_match(
    row: PatternRow, calls: tuple[Call, ...], root: Call, call: Call, whole: Whole
) -> Reason | None:
    """Why a composite that fits was not made; None where it was not because of ``call``."""
    refusal = refusal_of_composite(row, root, whole.rounding)
    if refusal is None:
        refusal = _refusal_of_partition(calls, root, whole)
    elif refusal.call is not call and not row.floats:
        return None
    at = refusal.call.spelled if refusal.call not in (None, call) else ""
    clause, found, allowed = refusal.clause, refusal.found, refusal.allowed
    return Reason("composite", row.name, len(calls), clause, found, allowed, at)


def _refusal_of_partition(calls: tuple[Call, ...], root: Call, whole: Whole) -> Refusal:
    """Why a composite was not made that fits and could be built: it must own its inner values."""
    for call in calls:
        users = [user for user in whole.users_of(call) if user not in calls]
        if call is not root and (users or call in whole.outputs):
            readers = [user.spelled for user in users] + ["an output"] * (call in whole.outputs)
            refusal = Refusal("other readers", ", ".join(readers), "none outside of the composite")
            refusal.call = call
            return refusal
    return Refusal("partition", "left out by TVM's passes", "a composite of its own")


# --- Operators that would be taken alone -------------------------------------------------------


def _left_out(call: Call, whole: Whole) -> Reason:
    """Why a call that passes its check is on the host: its region computes nothing, or it was
    annotated by rules other than tinyai's."""
    piece = _piece(call, whole)
    names = ", ".join(sorted({each.spelled for each in piece}))
    if any(computes(each.op) for each in piece):
        clause, found = "partition", "not annotated for tinyai"
        allowed = "tinyai's own predicates and TVM's four passes, on a whole module"
        return Reason("operator", call.spelled, 1, clause, found, allowed)
    beside = {e for call in piece for e in (*_reads(call), *whole.users_of(call))} - set(piece)
    neighbours = sorted({whole.regions[e] for e in beside if e in whole.regions})
    if neighbours:
        # With the piece in it, the region beside would wait for itself.
        way = _way(piece, whole.users_of, neighbours, whole)
        way = way or _way(piece, _reads, neighbours, whole)
        symbol, through = way or (neighbours[0], "an operator of the host")
        found = f"{names}, cut off from {symbol} by {through} between them"
        allowed = "a way to the region that leads through no operator of the host"
        return Reason("operator", call.spelled, len(piece), "detour", found, allowed)
    allowed = "at least one operator that computes"
    return Reason("operator", call.spelled, len(piece), IDLE, f"only {names}", allowed)


def _piece(call: Call, whole: Whole) -> dict[Call, None]:
    """The calls of the host that would be taken and hang together with ``call``."""
    piece = {call: None}
    stack = [call]
    while stack:
        each = stack.pop()
        for other in (*_reads(each), *whole.users_of(each)):
            if other in piece or not isinstance(other, Call) or other in whole.regions:
                continue
            if whole.refusal(other) is None:
                piece[other] = None
                stack.append(other)
    return piece


def _way(
    piece: Mapping[Call, None],
    follow: Callable[[Call], Sequence[Expr]],
    regions: list[str],
    whole: Whole,
) -> tuple[str, str] | None:
    """The region that is met after an operator of the host, and the first such operator."""
    seen: set[tuple[Expr, bool]] = set()
    stack = [(call, "") for call in reversed(list(piece))]
    while stack:
        each, through = stack.pop()
        for other in follow(each):
            if not isinstance(other, Call) or other in piece:
                continue
            symbol = whole.regions.get(other, "")
            if through and symbol in regions:
                return symbol, through
            after = through or ("" if symbol else other.spelled)
            if (other, bool(after)) not in seen:
                seen.add((other, bool(after)))
                stack.append((other, after))
    return None
