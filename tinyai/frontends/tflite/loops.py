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

# So many operators are read of all rounds of a file.
MOST_OPERATORS = 10_000
_DAMAGED = "a damaged one", "a whole file"


@dataclass(frozen=True)
class Subgraph:
    """A subgraph of a file, and its constants, which all rounds share."""

    file: File
    constants: Mapping[int, Expr]

    @classmethod
    def of(cls, file: File, number: int) -> Subgraph:
        try:
            found = file.subgraph(number)
        except MemoryError:
            raise
        except Exception as error:  # of any kind, where the file is damaged there
            told = (error.found, error.allowed) if isinstance(error, Fault) else _DAMAGED
            raise Refusal("subgraph of a WHILE", *told) from None
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
    file: File, operator: FileOperator, values: Sequence[Expr], read: ReadGraph, most: int
) -> list[Expr]:
    """The values after the last round. Raises ``Refusal`` where only a call knows which that is,
    and where more than ``most`` operators would be read."""
    operator.options.require("WhileOptions")
    condition = Subgraph.of(file, int(operator.options("CondSubgraphIndex")))
    body = Subgraph.of(file, int(operator.options("BodySubgraphIndex")))
    for each, count in ((condition, 1), (body, len(values))):
        found = len(each.file.inputs), len(each.file.outputs)
        allowed = len(values), count
        require(found == allowed, "inputs and outputs of a WHILE's subgraph", found, allowed)
    operators = len(condition.file.operators) + len(body.file.operators)
    rounds = most // max(operators, 1)
    for number in range(rounds):
        (goes_on,) = read(condition.at(number), condition.constants, values)
        if not isinstance(goes_on, Constant) or goes_on.value.size != 1:
            raise Refusal("rounds of a WHILE", "known in a call alone", "a number known before")
        if not goes_on.value.item():
            return [*values]
        values = read(body.at(number), body.constants, values)
    fewer = f"{rounds}, so that no more than {MOST_OPERATORS:,} operators are read"
    raise Refusal("rounds of a WHILE", f"more than {rounds}", fewer)
