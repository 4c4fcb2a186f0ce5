"""AVX-512 with VNNI: 512 bits, masks, byte products of unsigned by signed (``vpdpbusd``). In a file
for every machine its variant holds the tiles of AMX too (``amx``)."""

from __future__ import annotations

import functools
from pathlib import Path

from tinyai.codegen.isa.microkernels import Lookups, Microkernels, Sums
from tinyai.codegen.isa.variant import InstructionSet, IsaVariant, Peak
from tinyai.codegen.isa.x86_64 import X86_64, sums
from tinyai.codegen.isa.x86_64.avx512vnni.depthwise import depthwise
from tinyai.codegen.isa.x86_64.avx512vnni.lookup import lookup
from tinyai.codegen.isa.x86_64.avx512vnni.matmul import BYTES
from tinyai.codegen.isa.x86_64.avx512vnni.simd import IN_ORDER
from tinyai.codegen.isa.x86_64.avx512vnni.tile import tile
from tinyai.codegen.isa.x86_64.avx512vnni.vectors import Vectors512
from tinyai.codegen.isa.x86_64.dot import dot
from tinyai.codegen.isa.x86_64.transpose import transpose

NAME = "avx512vnni"
VARIANT = IsaVariant(
    NAME,
    (NAME, "scalar"),
    X86_64,
    ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"),
    options=("prefer-vector-width=512",),
    unsigned=True,
)


MICROKERNELS = Microkernels(
    NAME,
    tile,
    depthwise,
    tall=True,
    fetches=True,
    fewest_of_stride_2=64,
    half=True,
    vectors=Vectors512(),
    sums=Sums(
        functools.partial(sums.quantized_add, isa=NAME, bits=512),
        functools.partial(sums.fixed_add, isa=NAME, bits=512, vnni=True),
        functools.partial(sums.float_add, isa=NAME, order=IN_ORDER),
        forms=("fixed", "fused"),
    ),
    transpose=functools.partial(transpose, isa=NAME),
    lookup=Lookups(lookup),
    dot=functools.partial(dot, by=NAME),
    bytes=BYTES,
)
SET = InstructionSet(
    alone=VARIANT,
    microkernels=(MICROKERNELS,),
    peak=Peak("AVX512-VNNI", Path(__file__).with_name("peak.c")),
)
