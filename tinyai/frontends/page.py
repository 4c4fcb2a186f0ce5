"""The page of a network that was compiled whole."""

from __future__ import annotations

from dataclasses import replace

from tinyai.backend.pipeline import Compiled
from tinyai.network import Network
from tinyai.partition.rows import region_row
from tinyai.report.page import Page
from tinyai.target import Target


def facts_of(target: Target) -> tuple[tuple[str, str], ...]:
    """What a page says of a target."""
    return (("target", str(replace(target, tuning=""))), ("rounding", target.rounding))


def page_of_network(network: Network, compiled: Compiled, target: Target, title: str = "") -> Page:
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
    return Page(title or network.name, "tinyai compile", facts, regions=(row,))
