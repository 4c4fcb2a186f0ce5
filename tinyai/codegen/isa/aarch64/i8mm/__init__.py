"""Products of two by two rows of eight signed bytes (SMMLA): ARMv8.2 with its option, ARMv8.6."""

from __future__ import annotations

from functools import partial

from tinyai.codegen.definitions import Definition
from tinyai.codegen.isa.aarch64 import AARCH64, dotprod
from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.isa.variant import InstructionSet, IsaVariant

NAME = "i8mm"
VARIANT = IsaVariant(NAME, (NAME, "scalar"), AARCH64, (dotprod.NAME, NAME))
_PRODUCTS = Definition("products_i8mm", "products_i8mm.c.j2")
_MICROKERNELS = Microkernels(
    NAME,
    partial(dotprod.tile, isa=NAME, products=_PRODUCTS),
    partial(dotprod.depthwise, isa=NAME),
    rounds=True,
    fewest=8,
)
SET = InstructionSet(alone=VARIANT, among=VARIANT, microkernels=(_MICROKERNELS,))
