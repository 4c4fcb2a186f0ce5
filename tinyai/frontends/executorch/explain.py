"""The reason for every boundary: what of an edge program stays outside of delegates, and why."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.exir.delegate import executorch_call_delegate
from torch.export import ExportedProgram
from torch.fx import Node

from tinyai.errors import OptionError, UsageWarning
from tinyai.frontends.executorch.barred import checked_names, without_match
from tinyai.frontends.executorch.edge import BACKEND, target_of
from tinyai.frontends.executorch.hints import hint
from tinyai.frontends.executorch.macs import macs_of
from tinyai.frontends.executorch.operators import KEPT_WHOLE
from tinyai.frontends.executorch.program import division_of, operators_of
from tinyai.own import own_of
from tinyai.partition.division import Division
from tinyai.partition.told import DivisionReport, Told, nothing_taken
from tinyai.report import Report


def explain(
    edge: Any,
    *,
    operators_not_to_delegate: Collection[Any] = (),
    method: str = "",
    backend: str = "",
    **options: Any,
) -> Report:
    """What ``TinyAIPartitioner`` would leave outside of delegates, and why, and the delegates.

    ``edge`` is what ``executorch.exir.to_edge`` returns, or ``to_edge_transform_and_lower`` without
    tinyai's partitioner, or an exported program, of it or of ``torch.export``; ``method`` is one of
    its methods, without it the only one. The other arguments are those of the partitioner. Raises
    ``OptionError`` for what is neither, and for a program with delegates of tinyai's.
    """
    program = _program(edge, method)
    _require_no_delegates(program)
    without = checked_names(operators_not_to_delegate)
    missing = without_match(program, without)
    if missing is not None:
        warnings.warn(missing, stacklevel=2)
    own = own_of(backend)
    return report_of(division_of(program, target_of(options), without, own))


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


def nothing_delegated(division: Division[Node]) -> UsageWarning | None:
    """What to say of a program of which nothing is delegated, though something computes."""
    if division.regions:
        return None
    what = "nothing of a program is delegated to tinyai"
    return nothing_taken(report_of(division), what, "tinyai.executorch.explain")


def report_of(division: Division[Node]) -> Report:
    """The report of a program's division."""
    symbols = (f"tinyai_{number}" for number, _ in enumerate(division.regions))
    return DivisionReport(tuple(_TOLD.host(division)), tuple(_TOLD.regions(division, symbols)))


_TOLD = Told(macs_of, hint, operators_of, "a delegate")
