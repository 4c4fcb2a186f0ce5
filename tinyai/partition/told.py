"""The report of a division: what stays outside of regions, and why, and the regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic

from tinyai.errors import UsageWarning
from tinyai.partition.division import Division, Region
from tinyai.partition.model import Item
from tinyai.partition.reasons import IDLE, NEIGHBOURS
from tinyai.partition.rows import OF_FLOATS, bytes_of, region_row
from tinyai.report import HostRow, Reason, RegionRow, Report
from tinyai.report.rows import Flow
from tinyai.safe_text import safe
from tinyai.source import Refusal

# The clause of a float that nothing makes an integer of.
NOT_QUANTIZED = "quantization of the result"


class DivisionReport(Report):
    """Text and table show operators together that are outside for the same reason, the dearest
    first, those of a float model whatever they are, and no pairs but those that are the reason
    themselves; the rows have each."""

    @property
    def shown(self) -> tuple[HostRow, ...]:
        groups: dict[tuple[str, ...], list[HostRow]] = {}
        for row in self.host:
            if not _is_pair(row) or _is_refused(row):
                kind = "" if row.reason.clause == OF_FLOATS else row.operator
                key = (kind, row.reason.clause, row.reason.allowed, row.hint)
                groups.setdefault(key, []).append(row)
        merged = map(_merged, groups.values())
        return tuple(
            sorted(merged, key=lambda row: (row.macs or 0, row.boundary_bytes or 0), reverse=True)
        )


def _is_pair(row: HostRow) -> bool:
    return row.operator.rpartition(".")[2].lower().startswith(("quantize", "dequantize"))


def _is_refused(row: HostRow) -> bool:
    """Whether a row has a reason of its own, not that of the operators beside it."""
    return row.reason.clause not in (NEIGHBOURS, IDLE)


def _merged(rows: Sequence[HostRow]) -> HostRow:
    """Rows that differ in names, types, costs and in what was found as one."""
    first, *others = rows
    if not others:
        return first
    macs = [row.macs for row in rows if row.macs is not None]
    crossing = [row.boundary_bytes for row in rows if row.boundary_bytes is not None]
    kinds = Counter(row.operator for row in rows)
    several = len(kinds) > 1
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return replace(
        first,
        operator=f"{len(rows)} operators" if several else counted,
        name=counted if several else _joined(row.name for row in rows),
        type=_joined(row.type for row in rows),
        reason=replace(first.reason, found=_joined(row.reason.found for row in rows)),
        macs=sum(macs) if macs else None,
        boundary_bytes=sum(crossing) if len(crossing) == len(rows) else None,
    )


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def nothing_taken(report: Report, what: str, explain: str) -> UsageWarning | None:
    """What to say of a model of which no region is made; nothing where one is, or where nothing
    computes. A pair that is refused says more than the operators beside it."""
    if report.regions or not report.computing:
        return None
    refused = [row for row in report.host if _is_pair(row) and _is_refused(row)]
    telling = [row for row in refused if row.reason.clause != "operator"]
    (row, *_) = telling or sorted(report.computing, key=lambda row: -(row.macs or 0))
    counts = Counter(each.operator for each in report.computing)
    left = ", ".join(f"{count} {safe(name)}" for name, count in counts.most_common(4))
    return UsageWarning(
        what,
        found=f"{left}; {row.operator}: {row.reason.clause} {row.reason.found}",
        allowed=row.reason.allowed,
        hint=f"{row.hint}; {explain} tells of each operator",
    )


class Flows(Generic[Item]):
    """What regions and operators of a division read and make, by the items' numbers."""

    def __init__(self, division: Division[Item]) -> None:
        self._model = division.model
        self._numbers = {item: number for number, item in enumerate(division.model.order)}
        self._ends = {end for region in division.regions for end in region.ends}

    def of_region(self, region: Region[Item]) -> Flow:
        inputs = self._model.part(region.items).inputs
        return Flow(self._of(inputs), self._of(region.ends))

    def of_host(self, item: Item) -> Flow:
        return Flow(self._of(self._model.reads(item)), self._of([item]))

    def _of(self, items: Iterable[Item]) -> tuple[int, ...]:
        return tuple(self._numbers[self._maker(item)] for item in items)

    def _maker(self, item: Item) -> Item:
        """The item itself, or where it is a part of what the host makes, that."""
        while self._model.kind(item) == "part" and item not in self._ends:
            item = self._model.reads(item)[0]
        return item


@dataclass(frozen=True)
class Told(Generic[Item]):
    """How a front end tells of its items: their work, what to change, what several of them are;
    and what it calls a region."""

    macs: Callable[[Item], int | None]
    hint: Callable[[Reason], str]
    operators: Callable[[Iterable[Item]], str]
    region: str = "a region"

    def regions(self, division: Division[Item], symbols: Iterable[str]) -> list[RegionRow]:
        """The rows of a division's regions, by these symbols."""
        target, flow = division.target, Flows(division)
        return [
            replace(
                region_row(
                    symbol,
                    region.compiled,
                    Counter(map(division.model.operator, region.items)),
                    arena_limit=target.arena_limit,
                    weight_limit=target.weight_limit,
                ),
                flow=flow.of_region(region),
            )
            for symbol, region in zip(symbols, division.regions, strict=False)
        ]

    def host(self, division: Division[Item]) -> list[HostRow]:
        """The rows of what a division leaves."""
        inside = {item for region in division.regions for item in region.items}
        flow = Flows(division)
        return [
            replace(self._row(item, division, inside), flow=flow.of_host(item))
            for item in division.left
        ]

    def _row(self, item: Item, division: Division[Item], inside: set[Item]) -> HostRow:
        model = division.model
        reason = division.reasons.get(item) or model.reason(item, self._left_out(item, division))
        crossing = [each for each in model.reads(item) if each in inside]
        crossing += [item] * any(user in inside for user in model.users(item))
        sizes = [bytes_of(of) for each in crossing for of in model(each).types]
        known = [size for size in sizes if size is not None]
        return HostRow(
            name=model.name(item),
            operator=model.operator(item),
            type=", ".join(map(str, model(item).types)),
            reason=reason,
            computes=model.kind(item) == "computes",
            macs=self.macs(item),
            boundary_bytes=sum(known) if len(known) == len(sizes) else None,
            hint=self.hint(reason),
        )

    def _left_out(self, item: Item, division: Division[Item]) -> Refusal:
        model = division.model
        if model.kind(item) in ("quantize", "dequantize"):
            beside = model.users(item) if model.kind(item) == "dequantize" else model.reads(item)
            found = f"{self.operators(beside)} outside of {self.region}"
            return Refusal(NEIGHBOURS, found, "operators inside of one")
        operator = model.operator(item)
        return Refusal(IDLE, f"only {operator}", "at least one operator that computes")
