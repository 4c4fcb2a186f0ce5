"""Numbers of the layers of a page as Model Explorer's node data: plain values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tinyai.model_explorer.graph import layer_id
from tinyai.report.page import Page

# From white, for the least, to the colour of the most.
_SHADES = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#f0883e"}]


def data_of_page(page: Page) -> Iterator[dict[str, Any]]:
    """Node data of each kind that the page knows: the times come first."""
    kinds: dict[str, dict[str, float]] = {
        kind: {} for kind in ("time (µs)", "MACs", "weights (bytes)", "arena (bytes)")
    }
    times, macs, weights, arena = kinds.values()
    for number, region in enumerate(page.regions):
        if region.anatomy is None:
            continue
        live = region.anatomy.live_bytes
        for layer, in_use in zip(region.anatomy.layers, live, strict=True):
            name = layer_id(number, layer.number)
            macs[name], weights[name], arena[name] = layer.macs, layer.weight_bytes, in_use
            if layer.microseconds is not None:
                times[name] = round(layer.microseconds, 3)
    for kind, values in kinds.items():
        if any(values.values()):
            results = {name: {"value": value} for name, value in values.items()}
            yield {"name": kind, "results": results, "gradient": _SHADES}
