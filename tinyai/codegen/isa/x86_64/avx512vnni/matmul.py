"""The microkernels of products of two matrices of bytes that are both computed at run time."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import STRING_H
from tinyai.codegen.isa.microkernels import ByteProducts
from tinyai.codegen.isa.x86_64.avx512vnni.simd import SIMD


@dataclass(frozen=True)
class ProductsText:
    """Of the function ``name``: so many ``rows`` and ``columns`` at once."""

    name: str
    rows: int = ByteProducts.rows
    columns: int = ByteProducts.columns


def _defined(what: str) -> Definition:
    name, needs = f"tinyai_{what}_avx512vnni", (SIMD, STRING_H)
    template = "matmul_avx512vnni.c.j2"
    return Definition(name, template, needs, f"tinyai_{what}", arguments=ProductsText(name))


BYTES = ByteProducts(_defined("columns"), _defined("rows"), _defined("products"))
