"""What the quantizer would make of a float model: a report, before any sample is there."""

from __future__ import annotations

from tinyai.frontends.attempt import moves_floats, rows_once
from tinyai.frontends.source_model import SourceModel
from tinyai.partition.reasons import Whole
from tinyai.partition.rows import float_row, host_row
from tinyai.partition.told import DivisionReport
from tinyai.quantizer import QuantConfig
from tinyai.quantizer.folding import Folding
from tinyai.quantizer.points import Points
from tinyai.report import Reason
from tinyai.source import TVMS_OWN, Call, Unread, post_order


def report_of_floats(model: SourceModel) -> DivisionReport:
    """All operators of ``model``, which computes in floats alone: those that would become integers,
    and those that would stay float, each with the reason."""
    folding = Folding(model.result, model.fold, model.image_channels)
    points = Points(folding.result, QuantConfig(), model.fold, sources=folding.new)
    whole = Whole.of([model.result], (), {}, None, TVMS_OWN, model.language)
    rows = []
    for call in post_order(model.result):
        if not isinstance(call, Call) or moves_floats(call):
            continue
        unread = call.origin.refusal if isinstance(call.origin, Unread) else None
        refusal = unread or points.refused.get(folding.new.get(call, call))
        if refusal is None:
            rows.append(float_row(call, model.language))
        else:
            told = refusal.clause, refusal.found, refusal.allowed
            rows.append(host_row(call, whole, Reason("none", "", 0, *told)))
    return DivisionReport(rows_once(rows), ())
