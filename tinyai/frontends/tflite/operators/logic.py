"""Comparisons, logic, the choice between two values, and running sums."""

from __future__ import annotations

from tinyai.frontends.tflite.operators.rows import reads
from tinyai.frontends.tflite.reader import Site
from tinyai.source import Expr, require

_COMPARED = {
    "EQUAL": "equal",
    "NOT_EQUAL": "not_equal",
    "LESS": "less",
    "LESS_EQUAL": "less_equal",
    "GREATER": "greater",
    "GREATER_EQUAL": "greater_equal",
}


@reads("EQUAL", options="EqualOptions", inputs=2)
@reads("NOT_EQUAL", options="NotEqualOptions", inputs=2)
@reads("LESS", options="LessOptions", inputs=2)
@reads("LESS_EQUAL", options="LessEqualOptions", inputs=2)
@reads("GREATER", options="GreaterOptions", inputs=2)
@reads("GREATER_EQUAL", options="GreaterEqualOptions", inputs=2)
def _compared(site: Site) -> Expr:
    """Of numbers as they are: TFLite's kernel brings quantized ones to a common scale before, where
    it may lose what they differ by."""
    site.require_broadcast()
    scaled = [each.dtype for each in map(site.tensor, (0, 1)) if each.is_quantized]
    require(not scaled, "types", ", ".join(scaled), "bool, int32, int64, float32")
    return site.call(_COMPARED[site.kind], site.value(0), site.value(1))


@reads("LOGICAL_AND", options="LogicalAndOptions", inputs=2)
@reads("LOGICAL_OR", options="LogicalOrOptions", inputs=2)
def _logic(site: Site) -> Expr:
    site.require_broadcast()
    return site.call(site.kind.lower(), site.value(0), site.value(1))


@reads("LOGICAL_NOT", options="LogicalNotOptions")
def _not(site: Site) -> Expr:
    return site.call("logical_not", site.value(0))


@reads("SELECT", options="SelectOptions", inputs=3)
@reads("SELECT_V2", options="SelectV2Options", inputs=3)
def _select(site: Site) -> Expr:
    """Values of one scale; the older operator has no broadcast."""
    site.require_same_scale(1, 2)
    if site.kind == "SELECT":
        shapes = [site.tensor(place).shape for place in range(3)]
        require(set(shapes) == {site.shape}, "shapes", shapes, f"all {site.shape}")
    site.require_broadcast(3)
    return site.call("where", *(site.value(place) for place in range(3)))


@reads("CUMSUM", options="CumsumOptions", inputs=2)
def _cumsum(site: Site) -> Expr:
    axis, rank = int(site.known(1, "axis").reshape(())), len(site.shape)
    require(-rank <= axis < rank, "axis", axis, f"one of {rank} dimensions")
    exclusive, reverse = (bool(site.options(name)) for name in ("Exclusive", "Reverse"))
    attrs = {"axis": axis % rank, "exclusive": exclusive, "reverse": reverse}
    return site.call("cumulative_sum", site.value(0), of=None, **attrs)
