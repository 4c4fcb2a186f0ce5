"""The three things to know of a model: where its memory peaks, what takes most, what is outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinyai.report.anatomy import Anatomy, LayerFacts
from tinyai.report.rows import HostRow, RegionRow
from tinyai.safe_text import safe

_NAME = 60  # the longest name, in characters


@dataclass(frozen=True)
class Highlight:
    """A thing to know: what it is about, its ``figure``, and a sentence or two. ``link`` is the
    part of the page's address that shows it, "" for none."""

    about: str
    figure: str
    text: str
    link: str = ""


def highlights_of(regions: Sequence[RegionRow], host: Sequence[HostRow]) -> tuple[Highlight, ...]:
    known = [(number, row) for number, row in enumerate(regions) if row.anatomy]
    highlights = []
    if known:
        highlights.append(_memory(*max(known, key=lambda each: each[1].arena_bytes)))
        highlights.append(_dearest(regions))
    return (*highlights, _outside(regions, host))


def of_comparison(facts: Mapping[str, Any], regions: Sequence[RegionRow]) -> tuple[Highlight, ...]:
    """Whether all values are equal, and which layer differs first."""
    beside = f"{facts['samples']} samples beside {safe(facts['opponent'])}"
    if facts["equal"]:
        return (Highlight("check", "equal", f"All values of all outputs, {beside}."),)
    differing = sum(output["differing"] for output in facts["outputs"])
    text = f"{differing:,} values of the outputs differ, {beside}."
    if not (first := facts["first"]):
        return (Highlight("check", "different", text),)
    links = (
        f"layer={number}.{layer.number}"
        for number, row in enumerate(regions)
        for layer in (row.anatomy or Anatomy((), (), ())).layers
        if not {*first["names"]}.isdisjoint(layer.sources)
    )
    text += f" The first layer that differs is {safe(first['name'], _NAME)}."
    return (Highlight("check", "different", text, next(links, "")),)


def of_quantization(facts: Mapping[str, Any]) -> tuple[Highlight, ...]:
    """How near the results are, which value suffers most, and what stays in float."""
    noisy = [row for row in facts["layers"] if isinstance(row["sqnr"], float)]
    results = [row["sqnr"] for row in facts["outputs"] if isinstance(row["sqnr"], float)]
    agreement = min((row["agreement"] for row in facts["outputs"]), default=1.0)
    figure = f"{min(results):.1f} dB" if results else "exact"
    text = (
        "Signal to quantization noise of the worst result; the same largest value in "
        f"{agreement:.1%} of {facts['compared']} samples."
    )
    found = [Highlight("results", figure, text)]
    if noisy:
        worst = min(noisy, key=lambda row: float(row["sqnr"]))
        name = safe(worst["name"], _NAME)
        text = f"{safe(worst['operator'], _NAME)} {name} has the most noise, that of the layers "
        found.append(Highlight("layers", f"{worst['sqnr']:.1f} dB", text + "before it included."))
    count = len(facts["left"])
    text = f"{len(facts['layers']):,} values are integers."
    figure = f"{count} operator{'' if count == 1 else 's'}" if count else "none"
    return (*found, Highlight("in float", figure, text))


def in_bytes(count: int) -> str:
    """A number of bytes with three digits and a unit of ten."""
    for unit, size in (("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def _named(layer: LayerFacts) -> str:
    name = f" {safe(layer.sources[0].split(';')[0], _NAME)}" if layer.sources else ""
    return f"layer {layer.number}, {layer.operator}{name}"


def _memory(number: int, row: RegionRow) -> Highlight:
    assert row.anatomy is not None
    live = row.anatomy.live_bytes
    figure = in_bytes(row.arena_bytes)
    if not any(live):
        return Highlight("memory", figure, "No tensor lives in the arena.")
    at = live.index(max(live))
    spare = row.arena_bytes - row.arena_lower_bound
    bound = f"No plan can be smaller than {row.arena_lower_bound:,} bytes, and this one is " + (
        f"{spare:,} bytes larger." if spare else "no larger."
    )
    text = f"The arena is fullest at {_named(row.anatomy.layers[at])}. {bound}"
    return Highlight("memory", figure, text, f"layer={number}.{at}")


def _dearest(regions: Sequence[RegionRow]) -> Highlight:
    """The layer with most of the time, or where none was taken of the multiply-accumulates."""
    layers = [
        (f"layer={number}.{layer.number}", layer)
        for number, row in enumerate(regions)
        for layer in (row.anatomy or Anatomy((), (), ())).layers
    ]
    time = sum(layer.microseconds or 0.0 for _, layer in layers)
    if time:
        link, layer = max(layers, key=lambda each: each[1].microseconds or 0.0)
        taken = layer.microseconds or 0.0
        text = f"Most of the time goes to {_named(layer)}: {taken:,.1f} µs, {taken / time:.0%}."
        return Highlight("time", f"{time:,.1f} µs", text, link)
    work = sum(layer.macs for _, layer in layers)
    if not work:
        return Highlight("work", "0 MACs", "No layer multiplies and accumulates.")
    link, layer = max(layers, key=lambda each: each[1].macs)
    text = f"Most of the work is {_named(layer)}: {layer.macs:,} MACs, {layer.macs / work:.0%}."
    figure = f"{work / 1e6:,.4g} M MACs" if work >= 10**6 else f"{work:,} MACs"
    return Highlight("work", figure, text, link)


def _outside(regions: Sequence[RegionRow], host: Sequence[HostRow]) -> Highlight:
    computing = [(number, row) for number, row in enumerate(host) if row.computes]
    inside = f"{len(regions)} region{'' if len(regions) == 1 else 's'}"
    if not computing:
        moving = f", but for {len(host)} that only move values" if host else ""
        return Highlight("host", "none", f"All operators are in {inside}{moving}.")
    number, row = max(computing, key=lambda each: each[1].macs or 0)
    name = f" {safe(row.name, _NAME)}" if row.name else ""
    text = (
        f"{inside}; the host computes the rest. {safe(row.operator, _NAME)}{name} is there because "
        f'of "{safe(row.reason.clause)}": found {safe(row.reason.found)}.'
    )
    count = len(computing)
    return Highlight("host", f"{count} operator{'' if count == 1 else 's'}", text, f"host={number}")
