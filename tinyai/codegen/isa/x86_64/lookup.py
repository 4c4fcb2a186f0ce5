"""The microkernel for AVX2 that looks bytes up in a table of 16 rows, in each of which 16 bytes are
found at once."""

from __future__ import annotations

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import STRING_H
from tinyai.codegen.isa.microkernels import Lookups, name_of
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Array


def lookups(isa: str) -> Lookups:
    """The microkernel, and the table as differences."""

    def write(epilogue: Epilogue) -> str:
        return epilogue.need(Definition(name_of("lookup", isa), "lookup_avx2.c.j2", (STRING_H,)))

    return Lookups(write, differences)


def differences(table: Array) -> Array:
    """The table's rows of 16 bytes as differences (exclusive or) to the row before, in each half:
    those of rows 0 to i together are row i."""
    rows = table.reshape(2, 8, 16).copy()
    rows[:, 1:] ^= rows[:, :-1].copy()
    return rows.reshape(256)
