"""The reason for every boundary: what of a Relax module stays on the host, and why."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import tvm
from tvm import relax

from tinyai.errors import OptionError, UsageWarning
from tinyai.frontends.relax.division import Divided, divided, regions_of, target_of
from tinyai.frontends.relax.operators import READERS
from tinyai.partition.macs import macs
from tinyai.partition.reasons import Hints, about, hint_of
from tinyai.partition.told import (
    NOT_QUANTIZED,
    DivisionReport,
    Told,
    nothing_taken,
)
from tinyai.report import Reason, Report
from tinyai.source import Call, post_order
from tinyai.target import Target


def explain(
    mod: tvm.IRModule,
    *,
    target: str | Target | None = None,
    names: str | os.PathLike[str] = "",
    backend: str = "",
    **options: Any,
) -> Report:
    """What ``partition_for_tinyai`` would leave on the host, and why, and the regions; arguments
    and errors are its own, and ``OptionError`` for a module that has regions of tinyai's."""
    if found := regions_of(mod):
        raise OptionError(
            "module to explain",
            found=f"regions of tinyai's: {', '.join(found)}",
            allowed="a module that is not partitioned yet",
            hint="explain it before partition_for_tinyai",
        )
    chosen = target_of(target, options, names)
    return report_of(mod, divided(mod, chosen, names, backend))


def report_of(mod: tvm.IRModule, found: Iterable[Divided]) -> Report:
    """The report of a module's divisions, under the names that its regions get."""
    host, regions = [], []
    for each in found:
        told = _told(each)
        host += told.host(each.division)
        regions += told.regions(each.division, each.symbols)
    return DivisionReport(tuple(host), tuple(regions))


def nothing_partitioned(report: Report) -> UsageWarning | None:
    return nothing_taken(report, "tinyai takes nothing of a module", "tinyai.relax.explain")


def _told(divided: Divided) -> Told[relax.Var]:
    block = divided.block

    def work(item: relax.Var) -> int | None:
        """Of the first call that was made of an item."""
        calls = (e for e in post_order(block(item)) if isinstance(e, Call))
        found = (macs(call) for call in calls if call.name == block.name(item))
        return next((count for count in found if count is not None), None)

    def operators(items: Iterable[relax.Var]) -> str:
        return ", ".join(sorted({block.operator(each) for each in items})) or "an output"

    return Told(work, hint, operators)


def hint(reason: Reason) -> str:
    """What to change so that the clause holds."""
    return hint_of(reason, _HINTS)


_HINTS: Hints = (
    (
        lambda reason: reason.found.startswith("relax.call_tir"),
        "partition before LegalizeOps. Of ONNX's operators, TVM's importer writes Pad, Tile, Clip, "
        "Einsum, CumSum in reverse and Resize of one or three dimensions so; the first three "
        "are read, where shapes are fixed: export the model without the others",
    ),
    (
        about("operator"),
        f"write it with operators that tinyai reads: {len(READERS)} of relax.op, the keys of "
        "tinyai.frontends.relax.operators.READERS",
    ),
    (
        lambda reason: reason.allowed == "fixed dimensions",
        'relax.transform.BindSymbolicVars({"N": 1}, "main") before the partition, or import with '
        "fixed shapes",
    ),
    (
        lambda reason: (
            reason.clause in (NOT_QUANTIZED, "dtype of the quantization")
            or reason.allowed == "a quantized value"
        ),
        "quantize this part of the network; partition before FoldConstant, which makes floats of "
        "quantized weights",
    ),
    (
        lambda reason: "computed at run time" in reason.found and "constant" in reason.allowed,
        'hand its values over: relax.transform.BindParams("main", params), or '
        "from_onnx(..., keep_params_in_input=False)",
    ),
    (
        lambda reason: reason.clause.startswith(
            ("TFLite's arithmetic of", "ONNX Runtime's arithmetic of", "PyTorch's arithmetic of")
        ),
        'rounding="upward", which computes it as TVM does',
    ),
)
