"""The page of a network that was compiled whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tinyai.backend.pipeline import Compiled
from tinyai.network import Network
from tinyai.partition.rows import region_row
from tinyai.report import RegionRow
from tinyai.report.page import Page
from tinyai.runtime.layers import LayerTime
from tinyai.target import Target


def facts_of(target: Target) -> tuple[tuple[str, str], ...]:
    """What a page says of a target."""
    return (("target", str(replace(target, tuning=""))), ("rounding", target.rounding))


def page_of_network(
    network: Network,
    compiled: Compiled,
    target: Target,
    title: str = "",
    made_by: str = "tinyai compile",
) -> Page:
    """The page of a network's C, under its name if there is no ``title``."""
    row = region_row(
        network.name,
        compiled,
        {},
        arena_limit=target.arena_limit,
        weight_limit=target.weight_limit,
        states=network.states,
    )
    ports = [
        (
            f"{kind} {number}",
            f"{port.name}: {port.type}" + (f", {port.quant}" if port.quant else ""),
        )
        for kind, each in (("input", network.inputs), ("output", network.outputs))
        for number, port in enumerate(each)
    ]
    facts = (*facts_of(target), *ports)
    return Page(title or network.name, made_by, facts, regions=(row,))


def with_times(
    page: Page, times: Mapping[str, Sequence[LayerTime]], peak: float | None = None
) -> Page:
    """The page with the times of the layers of regions, by their symbols; without those regions
    that were not timed. ``peak`` is ``Page.peak``."""
    return replace(
        page,
        regions=tuple(
            _timed(row, times[row.symbol]) for row in page.regions if row.symbol in times
        ),
        peak=peak,
    )


def with_code(page: Page, sizes: Mapping[str, int]) -> Page:
    """The page with the bytes of the layers' machine code, by those of functions: what several
    layers call counts for the first. Without ``sizes`` the page as it is."""
    return (
        replace(page, regions=tuple(_sized(row, sizes) for row in page.regions)) if sizes else page
    )


def _sized(row: RegionRow, sizes: Mapping[str, int]) -> RegionRow:
    assert row.anatomy is not None
    left = dict(sizes)
    layers = []
    for layer in row.anatomy.layers:
        servings = []
        for serving in layer.servings:
            known = [left.pop(name, 0) for name in serving.functions]
            own = serving.functions and serving.functions[0] in sizes
            servings.append(replace(serving, code_bytes=sum(known) if own else None))
        layers.append(replace(layer, servings=tuple(servings)))
    return replace(row, anatomy=replace(row.anatomy, layers=tuple(layers)))


def _timed(row: RegionRow, times: Sequence[LayerTime]) -> RegionRow:
    assert row.anatomy is not None
    layers = tuple(
        replace(layer, microseconds=time.microseconds)
        for layer, time in zip(row.anatomy.layers, times, strict=True)
    )
    return replace(row, anatomy=replace(row.anatomy, layers=layers))
