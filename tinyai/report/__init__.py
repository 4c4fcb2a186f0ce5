"""What became of a module: the operators that stayed on the host, each with its reason, and the
regions with what they cost. Frozen values, and three ways to show them; knows no TVM.

Names and values come from the user's model and are not trusted: text and table show
unprintable characters as escapes and cut what is long; JSON holds them whole.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tinyai.dropped import Dropped
from tinyai.report.page import Page
from tinyai.report.rows import HostRow, Reason, RegionRow
from tinyai.report.text import VALUE, safe

__all__ = ["SCHEMA", "HostRow", "Reason", "RegionRow", "Report", "safe"]

SCHEMA = "tinyai.report/2"
_NAME = 60  # the longest name that text and table show, in characters


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
            dataclasses.asdict(replace(row, anatomy=None))
            | {"composites": dict(row.composites), "operators": dict(row.operators)}
            for row in self.regions
        ]
        for region in regions:
            del region["anatomy"], region["flow"]
            if not region["state_bytes"]:
                del region["state_bytes"]
        host = [dataclasses.asdict(row) for row in self.host]
        for row in host:
            del row["flow"]
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

    def page(
        self, title: str = "", made_by: str = "", facts: tuple[tuple[str, str], ...] = ()
    ) -> Page:
        """The report as a page of HTML, with the arguments of ``Page``; the title is by default
        that of the first region."""
        title = title or next((row.symbol for row in self.regions), "model")
        return Page(title, made_by, facts, self.host, self.regions)

    def html(self, path: str | os.PathLike[str], title: str = "") -> Path:
        """Write the report as a page of HTML: one file, which needs no network, whole or not at
        all. Its ``title`` is by default the first region's symbol. Of a report that ``from_json``
        made it has no layers. Raises ``OptionError`` where no file can be written."""
        return self.page(title).write(path)

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
        ("try", safe(row.hint, 2 * VALUE)),
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
            Text(safe(row.hint, 2 * VALUE)),
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
