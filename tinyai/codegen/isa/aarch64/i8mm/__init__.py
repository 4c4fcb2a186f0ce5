"""Products of two by two rows of eight signed bytes (SMMLA): ARMv8.2 with its option, ARMv8.6.

A file for it alone has weights in their order. In a file for every machine they are those of the
other sets, and two words of a channel are put side by side at run time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tinyai.codegen.definitions import Definition
from tinyai.codegen.isa.aarch64 import AARCH64, dotprod
from tinyai.codegen.isa.aarch64.lookup import lookups
from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.isa.variant import InstructionSet, IsaVariant
from tinyai.codegen.shapes.machine import VECTORS, Machine

NAME, SHARED = "i8mm", "i8mm_shared"
VARIANT = IsaVariant(NAME, (NAME, "scalar"), AARCH64, (dotprod.NAME, NAME))
_PRODUCTS = Definition("products_i8mm", "products_i8mm.c.j2")
_TILE = partial(dotprod.tile, isa=NAME, products=_PRODUCTS, heights=(6, 2))
_MICROKERNELS = Microkernels(
    NAME,
    partial(_TILE, template="tile_paired_i8mm.c.j2"),
    partial(dotprod.depthwise, isa=NAME),
    machine=Machine(words=2),
    rounds=True,
    fewest=8,
    fewest_of_stride_2=16,
    lookup=lookups(NAME),
)
_SHARED = replace(
    _MICROKERNELS, name=SHARED, tile=partial(_TILE, template="tile_i8mm.c.j2"), machine=VECTORS
)
SET = InstructionSet(
    alone=VARIANT,
    among=replace(VARIANT, rows=(SHARED, "scalar")),
    microkernels=(_MICROKERNELS, _SHARED),
)
