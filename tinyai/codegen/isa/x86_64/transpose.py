"""Microkernels that transpose squares of 16 bytes a row in registers, as every x86-64 CPU can."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import STRING_H
from tinyai.codegen.isa.microkernels import name_of
from tinyai.codegen.steps import Epilogue

CACHE_LINE = 64


@dataclass(frozen=True)
class Squares:
    """What is turned in ``stages`` of interleaving: squares of ``side`` elements of ``size`` bytes,
    of which a line of the cache holds so many ``together``."""

    side: int
    size: int
    stages: int
    together: int


def transpose(epilogue: Epilogue, side: int, size: int, *, isa: str) -> str:
    """Name of the microkernel for squares of ``side`` elements of ``size`` bytes."""
    name = name_of("transpose", f"{side}x{side}", isa)
    squares = Squares(side, size, side.bit_length() - 1, CACHE_LINE // size)
    return epilogue.need(Definition(name, "transpose.c.j2", (STRING_H,), arguments=squares))
