"""AVX2: 256 bits. In a file for every machine its variant holds the microkernels of AVX-VNNI too,
and the CPU says which run."""

from __future__ import annotations

from tinyai.codegen.isa.variant import InstructionSet
from tinyai.codegen.isa.x86_64.bits256 import isa_of, microkernels

SET = InstructionSet(
    alone=isa_of("avx2", "avx2"),
    # The layers around both kinds of microkernels are compiled once.
    among=isa_of("avx2", "either"),
    microkernels=(microkernels("avx2"), microkernels("either")),
)
