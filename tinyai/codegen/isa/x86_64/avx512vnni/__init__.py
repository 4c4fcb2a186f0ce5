"""AVX-512 with VNNI: 512 bits, masks, byte products of unsigned by signed (``vpdpbusd``)."""

from __future__ import annotations

import functools

from tinyai.codegen.float_add import FloatAdd
from tinyai.codegen.isa.microkernels import Microkernels, Sums
from tinyai.codegen.isa.section import InstructionSet, Isa
from tinyai.codegen.isa.x86_64 import X86_64, sums
from tinyai.codegen.isa.x86_64.avx512vnni.depthwise import depthwise
from tinyai.codegen.isa.x86_64.avx512vnni.tile import tile
from tinyai.codegen.isa.x86_64.avx512vnni.vector_steps import simd, write_lanes
from tinyai.codegen.isa.x86_64.transpose import transpose
from tinyai.codegen.steps import Epilogue

NAME = "avx512vnni"
ISA = Isa(
    NAME,
    (NAME, "scalar"),
    X86_64,
    ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"),
    options=("prefer-vector-width=512",),
    unsigned=True,
)


def _float_add(epilogue: Epilogue, add: FloatAdd) -> str:
    simd(epilogue)
    return sums.float_add(epilogue, add, isa=NAME, wide=True)


MICROKERNELS = Microkernels(
    NAME,
    tile,
    depthwise,
    tall=True,
    fetches=True,
    half=True,
    lanes=write_lanes,
    sums=Sums(functools.partial(sums.quantized_add, isa=NAME, bits=512), _float_add, fused=True),
    transpose=functools.partial(transpose, isa=NAME),
)
SET = InstructionSet(alone=ISA, among=ISA, microkernels=(MICROKERNELS,))
