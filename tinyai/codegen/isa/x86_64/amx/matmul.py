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


_TILES = ProductsText("tinyai_products_amx")
BYTES = replace(
    VECTORS,
    products=Definition(_TILES.name, TEMPLATE, (TILES,), "tinyai_products_tiles", arguments=_TILES),
)
_EITHER = EitherText(
    f"{_TILES.name}_or_{VECTORS.products.name}", _TILES.name, VECTORS.products.name
)
ASKED = replace(
    VECTORS,
    products=Definition(
        _EITHER.name,
        TEMPLATE,
        (ASK, BYTES.products, VECTORS.products),
        "tinyai_products_either",
        arguments=_EITHER,
    ),
)
