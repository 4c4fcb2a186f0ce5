"""The microkernel for AVX-512 of products of int16 by int8, 32 at a time (``vpdpwssd``)."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.definitions import Definition
from tinyai.codegen.steps import Epilogue


@dataclass(frozen=True)
class DotText:
    """So many ``patches`` meet so many ``rows`` of weights at once."""

    patches: int
    rows: int = 4


def dot(epilogue: Epilogue, patches: int) -> str:
    """Name of the microkernel."""
    name = f"tinyai_dot_{patches}_patches_avx512vnni"
    return epilogue.need(Definition(name, "dot_avx512vnni.c.j2", arguments=DotText(patches)))
