"""The microkernel of products of rows and columns of int16 that are both computed at run time, in
256 bits (``vpmaddwd``)."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import STRING_H
from tinyai.codegen.isa.microkernels import Pairs, name_of
from tinyai.codegen.steps import Epilogue


@dataclass(frozen=True)
class PairsText:
    """Of so many ``rows`` at once."""

    rows: int = Pairs.rows


def pairs(isa: str) -> Pairs:
    """The microkernel, by two vectors of columns."""

    def write(epilogue: Epilogue) -> str:
        name = name_of("pairs", isa)
        return epilogue.need(Definition(name, "pairs.c.j2", (STRING_H,), arguments=PairsText()))

    return Pairs(16, write)
