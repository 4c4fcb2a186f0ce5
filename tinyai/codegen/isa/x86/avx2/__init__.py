"""256 bits: one text of each microkernel for two instruction sets, AVX2, and AVX-VNNI, which
multiplies and adds bytes in one instruction. ``EITHER`` holds both, and the CPU says which runs."""

from __future__ import annotations

import functools

from tinyai.codegen.isa.microkernels import Microkernels, Sums
from tinyai.codegen.isa.section import Isa
from tinyai.codegen.isa.x86 import X86_64, sums
from tinyai.codegen.isa.x86.avx2.cores import depthwise, tile
from tinyai.codegen.isa.x86.transpose import transpose


def _microkernels(name: str) -> Microkernels:
    return Microkernels(
        name,
        functools.partial(tile, isa=name),
        functools.partial(depthwise, isa=name),
        sums=Sums(
            functools.partial(sums.quantized_add, isa=name, bits=256),
            functools.partial(sums.float_add, isa=name, wide=False),
            fused=False,
        ),
        transpose=functools.partial(transpose, isa=name),
    )


AVXVNNI, AVX2, EITHER = (_microkernels(name) for name in ("avxvnni", "avx2", "either"))


def _isa(name: str, row: str, *features: str, question: str = "") -> Isa:
    options = ("prefer-vector-width=512",)
    return Isa(name, (row, "scalar"), X86_64, features, options, question, unsigned=True)


ISA_AVXVNNI = _isa("avxvnni", "avxvnni", "avx2", "avxvnni", question="ask_avxvnni.c.j2")
ISA_AVX2 = _isa("avx2", "avx2", "avx2")
# With microkernels for AVX-VNNI beside those for AVX2: the layers around them are compiled once.
ISA_EITHER = _isa("avx2", "either", "avx2")
