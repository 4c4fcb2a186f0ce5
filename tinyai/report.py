"""What became of a module: the operators that stayed on the host, each with its reason, and the
regions with what they cost. Frozen values, and three ways to show them; knows no TVM.

Names and values come from the user's model and are not trusted: text and table show
unprintable characters as escapes and cut what is long; JSON holds them whole.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tinyai.dropped import NOTHING, Dropped

SCHEMA = "tinyai.report/2"
_NAME, _VALUE = 60, 120  # longest name and value that text and table show, in characters


@dataclass(frozen=True)
class Reason:
    """Which row of ``tinyai/patterns.py`` came nearest, and which of its conditions failed.

    ``row_kind`` is "composite" or "operator", or "none" where no row knows the operator; then
    ``row`` is "". ``calls`` is how many operators of the model the row fits, this one included.
    ``clause`` is the condition that failed, ``found`` and ``allowed`` are its two sides; ``at`` is
    the operator that it is about, where that is another one of the composite.
    """

    row_kind: str
    row: str
    calls: int
    clause: str
    found: str
    allowed: str
    at: str = ""


@dataclass(frozen=True)
class HostRow:
    """An operator that stayed on the host.

    ``name`` is the source model's ("" where none is known), ``type`` the result's. ``computes`` is
    False for operators that only cast, reshape or mark a place. ``macs`` are multiply-accumulates
    of one run, None where they are not defined or not known (no product of matrices, a dynamic
    shape). ``boundary_bytes`` go from regions to this operator and from it to regions in one run,
    None where a shape is dynamic. ``hint`` says what to change.
    """

    name: str
    operator: str
    type: str
    reason: Reason
    computes: bool
    macs: int | None
    boundary_bytes: int | None
    hint: str


@dataclass(frozen=True)
class RegionRow:
    """A region, as it is compiled under its options; sizes in bytes.

    ``composites`` and ``operators`` count the composites, and the single operators beside them, by
    name, sorted. ``weight_bytes`` are those of the emitted C. ``arena_lower_bound`` is the largest
    sum of what lives at once: no plan is smaller. ``layers`` are the steps of the emitted code.
    ``arena_limit`` and ``weight_limit`` are the target's, 0 for none.
    ``dropped`` is what the source model has and the C does without. ``state_bytes`` are those of
    the values that are kept from one call to the next, apart from the arena.
    """

    symbol: str
    composites: tuple[tuple[str, int], ...]
    operators: tuple[tuple[str, int], ...]
    macs: int
    weight_bytes: int
    arena_bytes: int
    arena_lower_bound: int
    layers: int
    arena_limit: int = 0
    weight_limit: int = 0
    dropped: Dropped = NOTHING
    state_bytes: int = 0

    @property
    def exceeds(self) -> tuple[str, ...]:
        """The limits that the region is above: it cannot be built under them."""
        sizes = {"arena_limit": self.arena_bytes, "weight_limit": self.weight_bytes}
        return tuple(name for name, size in sizes.items() if 0 < getattr(self, name) < size)


@dataclass(frozen=True)
class Report:
    """Host rows in the order of execution, region rows by symbol."""

    host: tuple[HostRow, ...]
    regions: tuple[RegionRow, ...]

    @property
    def computing(self) -> tuple[HostRow, ...]:
        """The host rows that compute something: those that ``strict`` objects to."""
        return tuple(row for row in self.host if row.computes)

    @property
    def shown(self) -> tuple[HostRow, ...]:
        """The host rows as text and table have them."""
        return self.host

    @property
    def exceeding(self) -> tuple[RegionRow, ...]:
        """The regions that are above a limit of the target's."""
        return tuple(row for row in self.regions if row.exceeds)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, in the schema of ``json``."""
        regions = [
            dataclasses.asdict(row)
            | {"composites": dict(row.composites), "operators": dict(row.operators)}
            for row in self.regions
        ]
        for region in regions:
            if not region["state_bytes"]:
                del region["state_bytes"]
        host = [dataclasses.asdict(row) for row in self.host]
        return {"schema": SCHEMA, "host": host, "regions": regions}

    def json(self) -> str:
        """The report as JSON: ASCII, keys sorted, two spaces deep, the same for the same report.

        ``{"schema": "tinyai.report/2", "host": [...], "regions": [...]}``. An element of ``host``
        has the fields of ``HostRow`` by their names, ``reason`` an object with those of ``Reason``;
        an element of ``regions`` has those of ``RegionRow``, where ``composites`` and ``operators``
        are objects that map a name to its count, and ``dropped`` one with the fields of
        ``Dropped``; ``state_bytes`` is there where a region has state. Numbers are whole; what is
        not known is null. A change of keys or meanings gets another ``schema``.
        """
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that ``json`` wrote. Raises ``ValueError`` for another schema, ``KeyError`` or
        ``TypeError`` where a key is missing or unknown."""
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r}, expected {SCHEMA!r}")
        host = (HostRow(**row | {"reason": Reason(**row["reason"])}) for row in data["host"])
        return cls(tuple(host), tuple(map(_region_from, data["regions"])))

    def table(self) -> Group:
        """The report for a terminal, by rich: a table of the host's operators, one of regions."""
        host = [_host_table(self.shown)] if self.shown else []
        regions = [_region_table(self.regions)] if self.regions else []
        return Group(*host, *regions, Text(_summary(self)))

    def __str__(self) -> str:
        lines = [_summary(self)]
        for row in self.shown:
            lines += ["", *_host_lines(row)]
        for region in self.regions:
            facts = (f"  {label + ':':<13}{value}" for label, value in _region_facts(region))
            lines += ["", f"region: {safe(region.symbol, _NAME)}", *facts]
        return "\n".join(lines)


def _region_from(data: Mapping[str, Any]) -> RegionRow:
    counts = {key: tuple(sorted(data[key].items())) for key in ("composites", "operators")}
    return RegionRow(**{**data, **counts, "dropped": Dropped(**data["dropped"])})


# --- Showing what is not trusted ---------------------------------------------------------------


def safe(text: str, most: int = _VALUE) -> str:
    """``text`` on one line, in at most ``most`` characters: what is not printable (control and
    format characters, line ends, lone surrogates) as an escape, a long text without its middle."""
    if len(text) > most:  # before escaping, so that a huge text costs no more than a long one
        text = _shorten(text, most)
    return _shorten("".join(map(_escape, text)), most)


def _shorten(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail - 1]}…{text[-tail:]}"


def _escape(character: str) -> str:
    if character.isprintable() and character != "\\":
        return character
    return character.encode("unicode_escape").decode()


def _number(value: int | None, unit: str) -> str:
    return f"? {unit}" if value is None else f"{value:,} {unit}"


def _counts(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {safe(name)}" for name, count in counts) or "none"


# --- Text --------------------------------------------------------------------------------------


def _summary(report: Report) -> str:
    computing, others = len(report.computing), len(report.host) - len(report.computing)
    macs = sum(row.macs or 0 for row in report.host)
    inside = sum(row.macs for row in report.regions)
    exceeding = len(report.exceeding)
    above = f"; {_plural(exceeding, 'region')} above a limit" if exceeding else ""
    more = f" and {others} that only move{'s' * (others == 1)} values" if others else ""
    return (
        f"{_plural(len(report.regions), 'region')} ({inside:,} MACs); on the host "
        f"{_plural(computing, 'operator')} that compute{'s' * (computing == 1)}{more} "
        f"({macs:,} MACs){above}"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def _row_name(reason: Reason) -> str:
    if reason.row_kind == "none":
        return "none"
    fits = f", fits {reason.calls} operators" if reason.calls > 1 else ""
    return f"{reason.row_kind} {safe(reason.row)}{fits}"


def _clause(reason: Reason) -> str:
    return safe(reason.clause) + (f" (at {safe(reason.at)})" if reason.at else "")


def _cost(row: HostRow) -> list[str]:
    parts = [] if row.macs is None else [_number(row.macs, "MACs")]
    return [*parts, _number(row.boundary_bytes, "bytes across the boundary")]


def _host_lines(row: HostRow) -> list[str]:
    name = f" '{safe(row.name, _NAME)}'" if row.name else ""
    facts = (
        ("nearest row", _row_name(row.reason)),
        ("clause", _clause(row.reason)),
        ("found", safe(row.reason.found)),
        ("allowed", safe(row.reason.allowed)),
        ("cost", ", ".join(_cost(row))),
        ("try", safe(row.hint, 2 * _VALUE)),
    )
    head = f"host: {safe(row.operator, _NAME)}{name} -> {safe(row.type)}"
    return [head, *(f"  {label + ':':<13}{value}" for label, value in facts)]


def _region_facts(row: RegionRow) -> tuple[tuple[str, str], ...]:
    return (
        ("composites", _counts(row.composites)),
        ("operators", _counts(row.operators)),
        ("layers", f"{row.layers:,}"),
        ("MACs", f"{row.macs:,}"),
        ("weights", _number(row.weight_bytes, "bytes") + _above(row, "weight_limit")),
        (
            "arena",
            f"{row.arena_bytes:,} bytes, lower bound {row.arena_lower_bound:,}"
            + _above(row, "arena_limit"),
        ),
        *([("state", f"{row.state_bytes:,} bytes")] if row.state_bytes else []),
        *([("left out", str(row.dropped))] if row.dropped.channels else []),
    )


def _above(row: RegionRow, limit: str) -> str:
    return f", ABOVE {limit} {getattr(row, limit):,}" if limit in row.exceeds else ""


# --- Tables: every cell is a Text, so that nothing in it is taken for markup -------------------


def _host_table(rows: Iterable[HostRow]) -> Table:
    table = _table("On the host", "operator", "nearest row and why", "cost", "try")
    for row in rows:
        table.add_row(
            _cell(safe(row.operator, _NAME), safe(row.name, _NAME), safe(row.type)),
            _cell(
                _row_name(row.reason),
                f"{_clause(row.reason)}: found {safe(row.reason.found)}",
                f"allowed: {safe(row.reason.allowed)}",
            ),
            _cell("", *_cost(row)),
            Text(safe(row.hint, 2 * _VALUE)),
        )
    return table


def _region_table(rows: Iterable[RegionRow]) -> Table:
    table = _table("Regions", "symbol", "composites and operators", "cost", "memory")
    for row in rows:
        facts = dict(_region_facts(row))
        left_out = [f"left out: {facts['left out']}"] if "left out" in facts else []
        state = [f"state {facts['state']}"] if "state" in facts else []
        table.add_row(
            Text(safe(row.symbol, _NAME)),
            _cell("", facts["composites"], f"operators: {facts['operators']}"),
            _cell("", f"{facts['MACs']} MACs", f"{facts['layers']} layers", *left_out),
            _cell("", f"weights {facts['weights']}", f"arena {facts['arena']}", *state),
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=Text(title), title_justify="left", show_lines=True)
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    return table


def _cell(head: str, *lines: str) -> Text:
    shown = [Text(head, style="bold")] if head else []
    return Text("\n").join([*shown, *(Text(line) for line in lines if line)])
