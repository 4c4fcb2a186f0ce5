"""What is true or not: comparisons, logic, and the choice between two values."""

from __future__ import annotations

from dataclasses import replace

from tinyai.frontends.onnx.operators.elementwise import combined
from tinyai.frontends.onnx.operators.rows import reads
from tinyai.frontends.onnx.reader import Site, broadcast
from tinyai.source import Call, Expr, children

_COMPARED = {
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
}


@reads(*_COMPARED)
def _compared(site: Site) -> Expr:
    operator = _COMPARED[site.node.op_type]
    return combined(site, operator, site.expr(0), site.expr(1), "bool")


@reads("Not")
def _not(site: Site) -> Expr:
    return site.call("logical_not", site.expr(0), of=site.expr(0).type)


@reads("Where")
def _where(site: Site) -> Expr:
    """Also a value where it is a number, as torch guards a softmax: integers are always some."""
    condition, data, other = site.exprs()
    guards = isinstance(condition, Call) and condition.spelled == "IsNaN"
    if guards and children(condition) == (other,) and site.known(1) is not None:
        return other
    shape = broadcast(site, condition, data, other)
    return site.call("where", condition, data, other, of=replace(data.type, shape=shape))
