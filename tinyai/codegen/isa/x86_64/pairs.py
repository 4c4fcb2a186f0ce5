"""The microkernel of products of rows and columns of int16 that are both computed at run time: by
AVX-512 (``vpdpwssd``), or by AVX2 (``vpmaddwd``)."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import STRING_H
from tinyai.codegen.isa.microkernels import Pairs, name_of
from tinyai.codegen.steps import Epilogue


@dataclass(frozen=True)
class PairsText:
    """Of vectors of so many ``bits``, and so many ``rows`` at once."""

    bits: int
    rows: int


def pairs(isa: str, bits: int) -> Pairs:
    """The microkernel by vectors of 512 or 256 bits."""
    text = PairsText(bits, Pairs.rows)

    def write(epilogue: Epilogue) -> str:
        name = name_of("pairs", isa)
        return epilogue.need(Definition(name, "pairs.c.j2", (STRING_H,), arguments=text))

    return Pairs(2 * bits // 32, write)
