"""The microkernels for AMX of products of two matrices that are both computed at run time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyai.codegen.definitions import Definition
from tinyai.codegen.isa.x86_64.amx.tile import ASK, TILES
from tinyai.codegen.isa.x86_64.avx512vnni.matmul import BYTES as VECTORS
from tinyai.codegen.isa.x86_64.avx512vnni.matmul import ProductsText

TEMPLATE = "matmul_amx.c.j2"


@dataclass(frozen=True)
class EitherText:
    """The function ``name``, which calls one of two."""

    name: str
    tiles: str
    vectors: str


def _tiles() -> Definition:
    text = ProductsText("tinyai_products_amx")
    return Definition(text.name, TEMPLATE, (TILES,), "tinyai_products_tiles", arguments=text)


def _either(tiles: Definition, vectors: Definition) -> Definition:
    text = EitherText(f"{tiles.name}_or_{vectors.name}", tiles.name, vectors.name)
    needs = ASK, tiles, vectors
    return Definition(text.name, TEMPLATE, needs, "tinyai_products_either", arguments=text)


BYTES = replace(VECTORS, products=_tiles())
ASKED = replace(VECTORS, products=_either(BYTES.products, VECTORS.products))
