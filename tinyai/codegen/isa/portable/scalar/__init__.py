"""C to be read: weights in the source model's order, one element after the other."""

from __future__ import annotations

from tinyai.codegen.isa.section import InstructionSet, Isa

ISA = Isa("scalar", ("scalar",))
SET = InstructionSet(alone=ISA)
