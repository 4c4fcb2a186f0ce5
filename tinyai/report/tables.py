"""A report for a terminal: every cell is a Text, so that nothing in it is taken for markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tinyai.report.facts import NAME, clause_of, cost_of, region_facts, row_name
from tinyai.report.rows import HostRow, RegionRow
from tinyai.safe_text import VALUE, safe


def tables(host: Sequence[HostRow], regions: Sequence[RegionRow], summary: str) -> Group:
    """A table of the host's operators, one of regions, and the summary."""
    hosts = [_host_table(host)] if host else []
    others = [_region_table(regions)] if regions else []
    return Group(*hosts, *others, Text(summary))


def _host_table(rows: Iterable[HostRow]) -> Table:
    table = _table("On the host", "operator", "nearest row and why", "cost", "try")
    for row in rows:
        table.add_row(
            _cell(safe(row.operator, NAME), safe(row.name, NAME), safe(row.type)),
            _cell(
                row_name(row.reason),
                f"{clause_of(row.reason)}: found {safe(row.reason.found)}",
                f"allowed: {safe(row.reason.allowed)}",
            ),
            _cell("", *cost_of(row)),
            Text(safe(row.hint, 2 * VALUE)),
        )
    return table


def _region_table(rows: Iterable[RegionRow]) -> Table:
    table = _table("Regions", "symbol", "composites and operators", "cost", "memory")
    for row in rows:
        facts = dict(region_facts(row))
        left_out = [f"left out: {facts['left out']}"] if "left out" in facts else []
        state = [f"state {facts['state']}"] if "state" in facts else []
        table.add_row(
            Text(safe(row.symbol, NAME)),
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
