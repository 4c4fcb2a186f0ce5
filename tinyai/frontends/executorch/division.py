"""Which nodes of an edge program tinyai takes: those that its builders can build.

There is no list of conditions. Nodes that are read are grouped (``grouping.py``), each group is
built up to its C (``trials.py``), and what fails leaves it with the reason, until nothing fails.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from executorch.exir.delegate import executorch_call_delegate
from torch.export import ExportedProgram
from torch.fx import Node

from tinyai.backend.pipeline import Compiled
from tinyai.frontends.executorch.barred import names_of
from tinyai.frontends.executorch.grouping import calls, groups_of, without_loose_ends
from tinyai.frontends.executorch.hints import NOT_TO_DELEGATE
from tinyai.frontends.executorch.operators import READERS
from tinyai.frontends.executorch.reader import Reading, operator_of
from tinyai.frontends.executorch.reasons import reason_of
from tinyai.frontends.executorch.trials import Group
from tinyai.partition.reasons import such_as
from tinyai.report import Reason
from tinyai.source import Refusal
from tinyai.target import Target


@dataclass(frozen=True)
class Part:
    """A delegate to be: its nodes in the order of the graph, and its C."""

    nodes: tuple[Node, ...]
    compiled: Compiled


@dataclass(frozen=True)
class Division:
    """What of a program is delegated, and why the rest is not."""

    reading: Reading
    target: Target
    parts: tuple[Part, ...]
    reasons: dict[Node, Reason] = field(repr=False)

    @property
    def left(self) -> tuple[Node, ...]:
        """The operators outside of delegates, of other back ends too, that are computed at run
        time."""
        inside = {node for part in self.parts for node in part.nodes}
        return tuple(
            node
            for node in calls(self.reading.program)
            if node not in inside
            and node.target is not executorch_call_delegate
            and operator_of(node) != "getitem"
            and self.reading.known(node) is None
        )


def divide(program: ExportedProgram, target: Target, without: Collection[str] = ()) -> Division:
    """The parts of a program that tinyai can build, without the operators of the names
    ``without``. It may be a program of ATen, before anything is taken apart."""
    reading = Reading(program, READERS)
    reading.read()
    reasons = _barred(reading, frozenset(without))
    while True:
        taken = without_loose_ends(program, set(calls(program)) - reasons.keys())
        groups = [Group(reading, nodes) for nodes in groups_of(program, taken)]
        found = [(group, group.tried(target)) for group in groups]
        failed = [why for _, why in found if not isinstance(why, Compiled)]
        if not failed:
            parts = (Part(g.nodes, made) for g, made in found if isinstance(made, Compiled))
            return Division(reading, target, tuple(parts), reasons)
        for each in failed:
            reasons |= each


def _barred(reading: Reading, without: frozenset[str]) -> dict[Node, Reason]:
    """The operators that no group may have, each with the reason."""
    found = {}
    for node in calls(reading.program):
        if reading.known(node) is not None:
            continue  # a constant by now: a delegate has its value, not what computes it
        if without and names_of(node) & without:
            found[node] = Refusal(NOT_TO_DELEGATE, operator_of(node), "others")
        elif node in reading.refused:
            found[node] = _with_names(operator_of(node), reading.refused[node])
    return {node: reason_of(node, refusal) for node, refusal in found.items()}


def _with_names(name: str, refusal: Refusal) -> Refusal:
    """Of an operator that nobody reads, with those that are read and have names like it."""
    if name in READERS:
        return refusal
    like = such_as(name, sorted(READERS))
    return Refusal(refusal.clause, refusal.found, f"one that tinyai reads{like}")
