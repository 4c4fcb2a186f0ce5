"""Which nodes of a program tinyai takes, by ``tinyai.partition``."""

from __future__ import annotations

from collections.abc import Collection

from torch.export import ExportedProgram
from torch.fx import Node

from tinyai.frontends.executorch.barred import names_of
from tinyai.frontends.executorch.hints import NOT_TO_DELEGATE
from tinyai.frontends.executorch.operators import READERS
from tinyai.frontends.executorch.program import Program
from tinyai.frontends.executorch.reader import calls, operator_of
from tinyai.partition.division import Division, divide
from tinyai.partition.reasons import such_as
from tinyai.source import Refusal
from tinyai.target import Target


def division_of(
    program: ExportedProgram, target: Target, without: Collection[str] = ()
) -> Division[Node]:
    """The regions of a program that tinyai can build, without the operators of the names
    ``without``. It may be a program of ATen, before anything is taken apart."""
    reading, names = Program(program), frozenset(without)
    barred = {}
    for node in calls(program):
        if reading.is_known(node):
            continue  # a constant by now: a delegate has its value, not what computes it
        if names and names_of(node) & names:
            barred[node] = Refusal(NOT_TO_DELEGATE, operator_of(node), "others")
        elif node in reading.refused:
            barred[node] = _with_names(operator_of(node), reading.refused[node])
    return divide(reading, target, barred)


def _with_names(name: str, refusal: Refusal) -> Refusal:
    """Of an operator that nobody reads, with those that are read and have names like it."""
    if name in READERS:
        return refusal
    like = such_as(name, sorted(READERS))
    return Refusal(refusal.clause, refusal.found, f"one that tinyai reads{like}")
