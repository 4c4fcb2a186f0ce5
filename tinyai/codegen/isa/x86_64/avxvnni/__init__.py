"""AVX-VNNI: 256 bits, and byte products of unsigned by signed (``vpdpbusd``)."""

from __future__ import annotations

from pathlib import Path

from tinyai.codegen.isa.variant import InstructionSet, Peak
from tinyai.codegen.isa.x86_64.bits256 import ASK, isa_of, microkernels

SET = InstructionSet(
    alone=isa_of("avxvnni", "avxvnni", "avxvnni", question=ASK),
    microkernels=(microkernels("avxvnni"),),
    peak=Peak("AVX-VNNI", Path(__file__).with_name("peak.c")),
)
