"""The microkernel for AVX-512 that looks bytes up in a table, 64 at a time."""

from __future__ import annotations

from tinyai.codegen.definitions import Definition
from tinyai.codegen.steps import Epilogue

LOOKUP = Definition("tinyai_lookup_avx512vnni", "lookup_avx512vnni.c.j2")


def lookup(epilogue: Epilogue) -> str:
    """Name of the microkernel."""
    return epilogue.need(LOOKUP)
