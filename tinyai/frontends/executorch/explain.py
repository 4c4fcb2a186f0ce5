"""The reason for every boundary: what of an edge program stays outside of delegates, and why."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.exir.delegate import executorch_call_delegate
from torch.export import ExportedProgram
from torch.fx import Node

from tinyai.errors import OptionError, UsageWarning
from tinyai.frontends.executorch.barred import checked_names, without_match
from tinyai.frontends.executorch.edge import BACKEND, target_of
from tinyai.frontends.executorch.hints import IDLE, NEIGHBOURS, hint
from tinyai.frontends.executorch.macs import macs_of
from tinyai.frontends.executorch.operators import KEPT_WHOLE
from tinyai.frontends.executorch.program import division_of, operators_of
from tinyai.frontends.executorch.reader import QUANTIZATION, operator_of, type_of
from tinyai.partition.division import Division
from tinyai.partition.rows import region_row
from tinyai.report import HostRow, Report, safe
from tinyai.source import Refusal, fixed_type


def explain(
    edge: Any,
    *,
    operators_not_to_delegate: Collection[Any] = (),
    method: str = "",
    **options: Any,
) -> Report:
    """What ``TinyAIPartitioner`` would leave outside of delegates, and why, and the delegates.

    ``edge`` is what ``executorch.exir.to_edge`` returns, or ``to_edge_transform_and_lower`` without
    tinyai's partitioner, or an exported program, of it or of ``torch.export``; ``method`` is one of
    its methods, without it the only one. Raises ``OptionError`` for what is neither, and for a
    program with delegates of tinyai's.
    """
    program = _program(edge, method)
    _require_no_delegates(program)
    without = checked_names(operators_not_to_delegate)
    missing = without_match(program, without)
    if missing is not None:
        warnings.warn(missing, stacklevel=2)
    return report_of(division_of(program, target_of(options), without))


def _program(edge: Any, method: str) -> ExportedProgram:
    if isinstance(edge, ExportedProgram):
        return edge if edge.dialect == "EDGE" else _edge_of(edge)
    methods = getattr(edge, "methods", None)
    names = (
        sorted(methods) if isinstance(methods, Collection) else sorted(methods() if methods else ())
    )
    name = method or (names[0] if len(names) == 1 else "")
    if name not in names:
        raise OptionError(
            "method of an edge program" if names else "edge program",
            found=repr(method or names or type(edge).__name__),
            allowed=", ".join(names) or "what executorch.exir.to_edge returns",
            hint=f'explain(edge, method="{names[0]}")' if names else None,
        )
    program: ExportedProgram = edge.exported_program(name)
    return program


def _edge_of(exported: ExportedProgram) -> ExportedProgram:
    """The edge program that a partitioner gets: with the operators whole that it wants whole."""
    config = EdgeCompileConfig(_check_ir_validity=False, preserve_ops=list(KEPT_WHOLE))
    program: ExportedProgram = to_edge_transform_and_lower(
        exported, compile_config=config
    ).exported_program()
    return program


def _require_no_delegates(program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        if node.target is executorch_call_delegate:
            found = getattr(program.graph_module, str(node.args[0].target)).backend_id
            if found == BACKEND:
                raise OptionError(
                    "program to explain",
                    found=f"delegates of {found}",
                    allowed="a program that is not lowered yet",
                    hint="explain it before to_backend or to_edge_transform_and_lower",
                )


class EdgeReport(Report):
    """Text and table show operators together that are outside for the same reason, the dearest
    first, and no pairs but those that are the reason themselves; the rows have each."""

    @property
    def shown(self) -> tuple[HostRow, ...]:
        groups: dict[tuple[str, ...], list[HostRow]] = {}
        for row in self.host:
            if not _is_pair(row) or _is_refused(row):
                key = (row.operator, row.reason.clause, row.reason.allowed, row.hint)
                groups.setdefault(key, []).append(row)
        merged = map(_merged, groups.values())
        return tuple(
            sorted(merged, key=lambda row: (row.macs or 0, row.boundary_bytes or 0), reverse=True)
        )


def _is_pair(row: HostRow) -> bool:
    return row.operator.startswith(QUANTIZATION)


def _is_refused(row: HostRow) -> bool:
    """Whether a row has a reason of its own, not that of the operators beside it."""
    return row.reason.clause not in (NEIGHBOURS, IDLE)


def _merged(rows: Sequence[HostRow]) -> HostRow:
    """Rows that differ in names, types, costs and in what was found as one."""
    first, *others = rows
    macs = [row.macs for row in rows if row.macs is not None]
    crossing = [row.boundary_bytes for row in rows if row.boundary_bytes is not None]
    return replace(
        first,
        operator=f"{len(rows)} {first.operator}" if others else first.operator,
        name=_joined(row.name for row in rows),
        type=_joined(row.type for row in rows),
        reason=replace(first.reason, found=_joined(row.reason.found for row in rows)),
        macs=sum(macs) if macs else None,
        boundary_bytes=sum(crossing) if len(crossing) == len(rows) else None,
    )


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def nothing_delegated(division: Division[Node]) -> UsageWarning | None:
    """What to say of a program of which nothing is delegated; nothing where something is, or where
    nothing computes. A pair that is refused says more than the operators beside it."""
    report = None if division.regions else report_of(division)
    if report is None or not report.computing:
        return None
    refused = [row for row in report.host if _is_pair(row) and _is_refused(row)]
    telling = [row for row in refused if row.reason.clause != "operator"]
    (row, *_) = telling or sorted(report.computing, key=lambda row: -(row.macs or 0))
    counts = Counter(each.operator for each in report.computing)
    left = ", ".join(f"{count} {safe(name)}" for name, count in counts.most_common(4))
    return UsageWarning(
        "nothing of a program is delegated to tinyai",
        found=f"{left}; {row.operator}: {row.reason.clause} {row.reason.found}",
        allowed=row.reason.allowed,
        hint=f"{row.hint}; tinyai.executorch.explain tells of each operator",
    )


def report_of(division: Division[Node]) -> Report:
    """The report of a program's division."""
    rows = (
        region_row(
            f"tinyai_{n}",
            region.compiled,
            Counter(map(operator_of, region.items)),
            arena_limit=division.target.arena_limit,
            weight_limit=division.target.weight_limit,
        )
        for n, region in enumerate(division.regions)
    )
    return EdgeReport(tuple(_host_row(node, division) for node in division.left), tuple(rows))


def _host_row(node: Node, division: Division[Node]) -> HostRow:
    reason = division.reasons.get(node) or division.model.reason(node, _left_out(node))
    try:
        of = str(type_of(node))
    except Refusal as refusal:
        of = refusal.found
    return HostRow(
        name=node.name,
        operator=operator_of(node),
        type=of,
        reason=reason,
        computes=division.model.kind(node) == "computes",
        macs=macs_of(node),
        boundary_bytes=_boundary_bytes(node, division),
        hint=hint(reason),
    )


def _left_out(node: Node) -> Refusal:
    if operator_of(node).startswith(QUANTIZATION):
        beside = node.users if ".dequantize_" in operator_of(node) else node.all_input_nodes
        found = f"{operators_of(beside)} outside of a delegate"
        return Refusal(NEIGHBOURS, found, "operators inside of one")
    return Refusal(IDLE, f"only {operator_of(node)}", "at least one operator that computes")


def _boundary_bytes(node: Node, division: Division[Node]) -> int | None:
    inside = {each for region in division.regions for each in region.items}
    crossing = [each for each in node.all_input_nodes if each in inside]
    crossing += [node] * any(user in inside for user in node.users)
    try:
        return sum(fixed_type(type_of(each)).bytes for each in crossing)
    except Refusal:
        return None
