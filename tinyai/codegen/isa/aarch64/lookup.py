"""The microkernel for AArch64 that looks bytes up in a table, 16 at a time."""

from __future__ import annotations

from tinyai.codegen.definitions import Definition
from tinyai.codegen.isa.microkernels import Lookups, name_of
from tinyai.codegen.steps import Epilogue


def lookups(isa: str) -> Lookups:
    """The microkernel, in instructions that every such CPU has."""

    def write(epilogue: Epilogue) -> str:
        return epilogue.need(Definition(name_of("lookup", isa), "lookup_neon.c.j2"))

    return Lookups(write)
