"""A model file of which not all is taken: the regions that a host could call, and the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from tinyai.backend.pipeline import Compiled
from tinyai.frontends.attempt import Attempt, rows_once
from tinyai.frontends.source_model import SourceModel
from tinyai.lowering import Composite
from tinyai.network import State
from tinyai.own import NO_BACKEND, OwnBackend
from tinyai.partition.division import Division, divide
from tinyai.partition.model import ItemModel
from tinyai.partition.reasons import maker_of
from tinyai.partition.rows import region_row
from tinyai.partition.told import DivisionReport, Flows, Told
from tinyai.patterns import computes
from tinyai.report import HostRow, Reason, RegionRow
from tinyai.report.rows import NO_FLOW, Flow
from tinyai.source import (
    Call,
    Constant,
    Expr,
    Field,
    Refusal,
    Rounding,
    Tuple,
    Unread,
    children,
    post_order,
    tensors_of,
)
from tinyai.stages import stage
from tinyai.target import Target


def report_of_parts(
    attempt: Attempt, source: SourceModel, name: str, target: Target, own: OwnBackend = NO_BACKEND
) -> DivisionReport:
    """The report of a ``source`` that is no network: its regions, whose names begin with ``name``,
    and the operators outside, with what ``attempt`` refused as the reason. The composites of a back
    end of one's ``own`` are in the attempt."""
    spelled = {e.name: e.spelled for e in post_order(source.result) if isinstance(e, Call)}
    model = PartsOfFile(attempt, spelled, Rounding(target.rounding), own)
    with stage("regions and their C"):
        division = divide(model, target, model.refused)
    flows = Flows(division)
    regions = (
        replace(
            row_of_region(
                f"{name}_{n}",
                region.compiled,
                model.operators(region.items),
                target,
                composites=composites_in(region.items),
            ),
            flow=flows.of_region(region),
        )
        for n, region in enumerate(division.regions)
    )
    return DivisionReport(_host_rows(attempt, division), tuple(regions))


def row_of_region(
    symbol: str,
    compiled: Compiled,
    operators: Iterable[tuple[str, str]],
    target: Target,
    states: Sequence[State] = (),
    composites: Iterable[str] = (),
) -> RegionRow:
    """The report's row of a region of ``operators``, each with its name and counted once, and of
    the ``composites`` of a back end of one's own that stand for some of them."""
    return region_row(
        symbol,
        compiled,
        Counter(spelled for spelled, _ in {*operators}),
        Counter(composites),
        arena_limit=target.arena_limit,
        weight_limit=target.weight_limit,
        states=states,
    )


def composites_in(exprs: Iterable[Expr]) -> Iterator[str]:
    """The names of the composites of one's own among expressions."""
    return (each.spelled for each in exprs if isinstance(each, Composite))


def _host_rows(attempt: Attempt, division: Division[Expr]) -> tuple[HostRow, ...]:
    """One row for the calls that an operator became: of the one that was refused, if any was."""
    model, language = division.model, attempt.model.language

    def operators(items: Iterable[Expr]) -> str:
        return ", ".join(sorted({model.operator(each) for each in items})) or "an output"

    def macs(item: Expr) -> int | None:
        return language.macs(item) if isinstance(item, Call) else None

    told = Told(macs, language.hint, operators)
    rows = list(zip(division.left, told.host(division), strict=True))
    flows: dict[tuple[str, str], Flow] = {}
    for _, row in rows:
        flows[row.operator, row.name] = flows.get((row.operator, row.name), NO_FLOW) + row.flow
    refused: dict[Expr, str] = {call: row.hint for call, row in attempt.refused.items()}
    named = {(model.operator(call), call.name) for call in attempt.refused}
    return rows_once(
        replace(
            row,
            flow=flows[row.operator, row.name] if row.name else row.flow,
            hint=refused.get(item, row.hint),
        )
        for item, row in rows
        if item in refused or (row.operator, row.name) not in named
    )


class PartsOfFile(ItemModel[Expr]):
    """A model file as ``tinyai.partition`` asks it: its items are the calls that integers were made
    of, the parts of their results, and inputs. The calls of an operator leave together. ``spelled``
    is how the file calls operators, by their names."""

    def __init__(
        self, attempt: Attempt, spelled: Mapping[str, str], rounding: Rounding, own: OwnBackend
    ) -> None:
        self.rounding, self.own, self._spelled = rounding, own, spelled
        result = attempt.model.result
        self.order = [e for e in post_order(result) if not isinstance(e, Constant | Tuple)]
        known = {*self.order}
        self._reads = {e: [r for r in _read(e) if r in known] for e in self.order}
        self._users: dict[Expr, list[Expr]] = {e: [] for e in self.order}
        for item, read in self._reads.items():
            for each in read:
                self._users[each].append(item)
        self.outputs = known.intersection(tensors_of(result))
        self._inputs = {end.expr: end.name for end in attempt.model.inputs}
        self._together: dict[tuple[str, str], list[Expr]] = {}
        for item in self.order:
            if isinstance(item, Call) and item.name:
                self._together.setdefault((self.operator(item), item.name), []).append(item)
        self._reasons = {
            each: row.reason
            for call, row in attempt.refused.items()
            if call in known
            for each in self.together(call)
        }
        self.refused = {
            item: Refusal(reason.clause, reason.found, reason.allowed)
            for item, reason in self._reasons.items()
        }

    def __call__(self, item: Expr) -> Expr:
        return item

    def reads(self, item: Expr) -> Sequence[Expr]:
        return self._reads[item]

    def users(self, item: Expr) -> Collection[Expr]:
        return self._users[item]

    def name(self, item: Expr) -> str:
        made = maker_of(item)
        return made.name if isinstance(made, Call) else self._inputs.get(item, "")

    def operator(self, item: Expr) -> str:
        made = maker_of(item)
        if not isinstance(made, Call):
            return "input"
        return self._spelled.get(made.name) or made.spelled

    def operators(self, items: Iterable[Expr]) -> Iterator[tuple[str, str]]:
        """What the file calls them, and their names."""
        calls = (item for item in items if isinstance(item, Call))
        return ((self.operator(call), call.name) for call in calls)

    def kind(self, item: Expr) -> str:
        if not isinstance(item, Call):
            return "part" if isinstance(item, Field) else "input"
        if item.op in ("quantize", "dequantize"):
            return item.op
        return "computes" if computes(item.op) else ""

    def is_known(self, item: Expr) -> bool:
        return False

    def together(self, item: Expr) -> Collection[Expr]:
        made = maker_of(item)
        return self._together.get((self.operator(made), self.name(made)), [made])

    def integers(self, result: Tuple) -> Expr:
        return result  # which the whole model has by now

    def floats(self, integers: Expr) -> Iterable[NoReturn]:
        return ()  # they were refused in the whole model

    def reason(self, item: Expr, refusal: Refusal) -> Reason:
        known = self._reasons.get(item)
        if isinstance(item, Call) and isinstance(item.origin, Unread):
            refusal = item.origin.refusal
        row = self.operator(item)
        clauses = refusal.clause, refusal.found, refusal.allowed
        return known or Reason("operator", row, 1, *clauses)

    def why_float(self, item: Expr, refusal: Refusal | None, inside: Collection[Expr]) -> Refusal:
        raise AssertionError("no float is left to ask for")


def _read(item: Expr) -> Iterator[Expr]:
    """What an item reads: calls, parts of their results, inputs."""
    if isinstance(item, Field):
        yield item.call
    for arg in dict.fromkeys(children(item)) if isinstance(item, Call) else ():
        yield from (arg,) if isinstance(arg, Call) else tensors_of(arg)
