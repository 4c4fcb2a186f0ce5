"""AVX2: 256 bits. In a file for every machine its variant holds the microkernels of AVX-VNNI too,
and the CPU says which run. In a file for AVX2 alone weights are in groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tinyai.codegen.isa.microkernels import OwnWeights
from tinyai.codegen.isa.variant import InstructionSet, Peak
from tinyai.codegen.isa.x86_64.avx2.tile import packed
from tinyai.codegen.isa.x86_64.bits256 import isa_of, microkernels

SET = InstructionSet(
    alone=isa_of("avx2", "avx2"),
    # The layers around both kinds of microkernels are compiled once.
    among=isa_of("avx2", "either"),
    microkernels=(
        replace(microkernels("avx2"), own=OwnWeights("groups", packed)),
        microkernels("either"),
    ),
    peak=Peak("AVX2", Path(__file__).with_name("peak.c")),
)
