"""AMX: tiles of 16 rows of 64 bytes, whose products of unsigned or signed bytes by signed ones
(``tdpbusd``, ``tdpbssd``) are added up in 16 by 16 sums. All else is AVX-512's with VNNI.

Linux must permit a process to use tiles, and may refuse. A file for AMX alone does not run then;
one for every machine, or for the one at hand, has both kinds of microkernels over the same weights
and asks at the first call.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.isa.variant import InstructionSet, Peak
from tinyai.codegen.isa.x86_64 import avx512vnni
from tinyai.codegen.isa.x86_64.amx.matmul import ASKED as ASKED_BYTES
from tinyai.codegen.isa.x86_64.amx.matmul import BYTES
from tinyai.codegen.isa.x86_64.amx.tile import ASK, FEWEST, suits, tile

NAME, ASKED = "amx", "amx_or_avx512vnni"
_MICROKERNELS = Microkernels(
    NAME,
    tile,
    fetches=True,
    in_tiles=suits,
    bytes=BYTES,
    base=avx512vnni.MICROKERNELS,
    outputs=FEWEST,
)
_ASKED = replace(
    _MICROKERNELS, name=ASKED, tile=functools.partial(tile, asks=True), bytes=ASKED_BYTES
)
_EITHER = replace(avx512vnni.VARIANT, rows=(ASKED, *avx512vnni.VARIANT.rows))
SET = InstructionSet(
    alone=replace(
        avx512vnni.VARIANT,
        name=NAME,
        rows=(NAME, *avx512vnni.VARIANT.rows),
        question=ASK,
        asks=(f"{ASK.name}()",),
    ),
    among=_EITHER,
    native=_EITHER,
    microkernels=(_MICROKERNELS, _ASKED),
    peak=Peak("AMX", Path(__file__).with_name("peak.c")),
)
