"""What a report tells of its rows, as text: names and values of the model are shown safely."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinyai.report.rows import HostRow, Reason, RegionRow
from tinyai.safe_text import VALUE, safe

NAME = 60  # the longest name that text and table show, in characters


def _number(value: int | None, unit: str) -> str:
    return f"? {unit}" if value is None else f"{value:,} {unit}"


def _counts(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {safe(name)}" for name, count in counts) or "none"


def summary(host: Sequence[HostRow], regions: Sequence[RegionRow]) -> str:
    """A report in a line."""
    computing = sum(row.computes for row in host)
    others = len(host) - computing
    macs = sum(row.macs or 0 for row in host)
    inside = sum(row.macs for row in regions)
    exceeding = sum(bool(row.exceeds) for row in regions)
    above = f"; {_plural(exceeding, 'region')} above a limit" if exceeding else ""
    more = f" and {others} that only move{'s' * (others == 1)} values" if others else ""
    return (
        f"{_plural(len(regions), 'region')} ({inside:,} MACs); on the host "
        f"{_plural(computing, 'operator')} that compute{'s' * (computing == 1)}{more} "
        f"({macs:,} MACs){above}"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def row_name(reason: Reason) -> str:
    if reason.row_kind == "none":
        return "none"
    fits = f", fits {reason.calls} operators" if reason.calls > 1 else ""
    return f"{reason.row_kind} {safe(reason.row)}{fits}"


def clause_of(reason: Reason) -> str:
    return safe(reason.clause) + (f" (at {safe(reason.at)})" if reason.at else "")


def cost_of(row: HostRow) -> list[str]:
    parts = [] if row.macs is None else [_number(row.macs, "MACs")]
    return [*parts, _number(row.boundary_bytes, "bytes across the boundary")]


def host_lines(row: HostRow) -> list[str]:
    name = f" '{safe(row.name, NAME)}'" if row.name else ""
    facts = (
        ("nearest row", row_name(row.reason)),
        ("clause", clause_of(row.reason)),
        ("found", safe(row.reason.found)),
        ("allowed", safe(row.reason.allowed)),
        ("cost", ", ".join(cost_of(row))),
        ("try", safe(row.hint, 2 * VALUE)),
    )
    head = f"host: {safe(row.operator, NAME)}{name} -> {safe(row.type)}"
    return [head, *(f"  {label + ':':<13}{value}" for label, value in facts)]


def region_facts(row: RegionRow) -> tuple[tuple[str, str], ...]:
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
