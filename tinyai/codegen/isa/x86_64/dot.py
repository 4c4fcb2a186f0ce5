"""The microkernels of products of int16 by int8: 32 at a time by AVX-512 (``vpdpwssd``), 16 by AVX2
(``vpmaddwd``)."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import PRODUCTS_IN_32_BITS
from tinyai.codegen.steps import Epilogue


@dataclass(frozen=True)
class DotText:
    """So many ``patches`` meet so many ``rows`` of weights at once. Where ``part`` is not 0, the
    sums have 64 bits, of parts with so many products in 32."""

    patches: int
    part: int
    rows: int = 4


def dot(epilogue: Epilogue, patches: int, wide: bool, *, by: str) -> str:
    """Name of the microkernel; ``by`` "avx512vnni" or "avx2"."""
    name = f"tinyai_dot_{patches}_patches_{'in_64_bits_' if wide else ''}{by}"
    text = DotText(patches, PRODUCTS_IN_32_BITS if wide else 0)
    return epilogue.need(Definition(name, f"dot_{by}.c.j2", arguments=text))
