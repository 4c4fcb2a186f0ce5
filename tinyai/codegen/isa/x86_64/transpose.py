"""Microkernels that transpose squares of 16 bytes a row in registers, as every x86-64 CPU can."""

from __future__ import annotations

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import STRING_H
from tinyai.codegen.isa.microkernels import name_of
from tinyai.codegen.steps import Epilogue

CACHE_LINE = 64


def transpose(epilogue: Epilogue, side: int, size: int, *, isa: str) -> str:
    """Name of the microkernel for squares of ``side`` elements of ``size`` bytes."""
    name = name_of("transpose", f"{side}x{side}", isa)
    values = {
        "name": name,
        "together": CACHE_LINE // size,
        "side": side,
        "stages": side.bit_length() - 1,
        "size": size,
    }
    return epilogue.need(Definition(name, "transpose_core.c.j2", (STRING_H,), values=values))
