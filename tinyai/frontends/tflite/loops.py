"""A WHILE of a .tflite file whose number of rounds is known before a call: its rounds, one after
the other. So Keras writes LSTM and GRU."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tinyai.frontends.faults import Fault
from tinyai.frontends.tflite.file import File, FileOperator
from tinyai.frontends.tflite.variables import KINDS
from tinyai.source import Constant, Expr, Refusal, require
from tinyai.vocabulary import constant

MOST_ROUNDS, MOST_NESTED = 1000, 4


@dataclass(frozen=True)
class Subgraph:
    """A subgraph of a file, and its constants, which all rounds share."""

    file: File
    constants: Mapping[int, Expr]

    @classmethod
    def of(cls, file: File, number: int) -> Subgraph:
        try:
            found = file.subgraph(number)
        except Fault as fault:
            raise Refusal("subgraph of a WHILE", fault.found, fault.allowed) from None
        kinds = sorted({each.kind for each in found.operators} & {*KINDS})
        require(not kinds, "operators of a WHILE", ", ".join(kinds), "none that keeps a variable")
        known = {n: of.value for n, of in enumerate(found.tensors) if of.value is not None}
        return cls(found, {n: constant(value) for n, value in known.items()})

    def at(self, number: int) -> File:
        """The subgraph of a round: its results have names of their own."""
        made = copy.copy(self.file)
        made.tensors = [
            of if index in self.constants else replace(of, name=f"{of.name}/round{number}")
            for index, of in enumerate(self.file.tensors)
        ]
        return made


# Reads a subgraph, whose constants are given, of the values of its inputs, to those of its outputs.
ReadGraph = Callable[[File, Mapping[int, Expr], Sequence[Expr]], list[Expr]]


def results_of_loop(
    file: File, operator: FileOperator, values: Sequence[Expr], read: ReadGraph
) -> list[Expr]:
    """The values after the last round. Raises ``Refusal`` where only a call knows which that is."""
    operator.options.require("WhileOptions")
    condition = Subgraph.of(file, int(operator.options("CondSubgraphIndex")))
    body = Subgraph.of(file, int(operator.options("BodySubgraphIndex")))
    for each in (condition, body):
        found = len(each.file.inputs)
        require(found == len(values), "inputs of a WHILE's subgraph", found, len(values))
    found = len(body.file.outputs)
    require(found == len(values), "outputs of a WHILE's body", found, len(values))
    for number in range(MOST_ROUNDS):
        (goes_on, *_) = read(condition.at(number), condition.constants, values)
        if not isinstance(goes_on, Constant) or goes_on.value.size != 1:
            raise Refusal("rounds of a WHILE", "known in a call alone", "a number known before")
        if not goes_on.value.item():
            return [*values]
        values = read(body.at(number), body.constants, values)
    raise Refusal("rounds of a WHILE", f"more than {MOST_ROUNDS}", f"at most {MOST_ROUNDS}")
