"""What became of a module: the operators that stayed on the host, each with its reason, and the
regions with what they cost. Frozen values, and three ways to show them; knows no TVM.

Names and values come from the user's model and are not trusted: text and table show
unprintable characters as escapes and cut what is long; JSON holds them whole.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyai.dropped import Dropped
from tinyai.report.facts import NAME, host_lines, region_facts, summary
from tinyai.report.page import Page
from tinyai.report.rows import HostRow, Reason, RegionRow
from tinyai.safe_text import safe

if TYPE_CHECKING:
    from rich.console import Group

__all__ = ["SCHEMA", "HostRow", "Reason", "RegionRow", "Report", "safe"]

SCHEMA = "tinyai.report/2"


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
        from tinyai.report.tables import tables  # brings rich, which few need

        return tables(self.shown, self.regions, summary(self.host, self.regions))

    def __str__(self) -> str:
        lines = [summary(self.host, self.regions)]
        for row in self.shown:
            lines += ["", *host_lines(row)]
        for region in self.regions:
            facts = (f"  {label + ':':<13}{value}" for label, value in region_facts(region))
            lines += ["", f"region: {safe(region.symbol, NAME)}", *facts]
        return "\n".join(lines)


def _region_from(data: Mapping[str, Any]) -> RegionRow:
    counts = {key: tuple(sorted(data[key].items())) for key in ("composites", "operators")}
    return RegionRow(**{**data, **counts, "dropped": Dropped(**data["dropped"])})
