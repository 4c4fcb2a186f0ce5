"""C to be read: weights in the source model's order, one element after the other."""

from __future__ import annotations

from tinyai.codegen.isa.variant import InstructionSet, IsaVariant

VARIANT = IsaVariant("scalar", ("scalar",))
SET = InstructionSet(alone=VARIANT)
