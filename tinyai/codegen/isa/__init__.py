"""The instruction sets of one C file: which kernels serve each, and how a compiler is told.

Each has a folder with its microkernels: its instructions, its templates, and nothing else.

A file for every x86-64 machine (``-isa=auto``) holds the network once for each of several
instruction sets and asks the CPU which to run. Their kernels read the same packed weights, so a
weight is stored once.
"""

from __future__ import annotations

from collections.abc import Iterable

from tinyai.codegen.isa import portable
from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.isa.section import Isa
from tinyai.codegen.isa.x86 import avx2, avx512vnni
from tinyai.doctor import cpu_description, instruction_sets
from tinyai.target import Target

# Of all instruction sets that have some.
MICROKERNELS: tuple[Microkernels, ...] = (
    avx512vnni.MICROKERNELS,
    avx2.AVXVNNI,
    avx2.AVX2,
    avx2.EITHER,
    portable.PACKED,
)
# From the strongest to the weakest; the last one serves every machine.
_FILES: dict[str, tuple[Isa, ...]] = {
    "auto": (avx512vnni.ISA, avx2.ISA_EITHER, portable.ISA_PACKED),
    "avx512vnni": (avx512vnni.ISA,),
    "avxvnni": (avx2.ISA_AVXVNNI,),
    "avx2": (avx2.ISA_AVX2,),
    "packed": (portable.ISA_PACKED,),
    "scalar": (portable.ISA_SCALAR,),
}


def isas_of(target: Target) -> tuple[Isa, ...]:
    """The instruction sets of the target's C file, the strongest first."""
    name = best_of_this_machine() if target.isa == "native" else target.isa
    return _FILES[name]


def runs_here(isas: Iterable[Isa]) -> Isa:
    """The one of a file's instruction sets, the strongest first, that this machine's CPU takes."""
    here = instruction_sets(cpu_description())
    return next(isa for isa in isas if isa.name in here or not isa.features)


def best_of_this_machine() -> str:
    """The strongest value of the option ``isa`` that this machine's CPU has."""
    here = instruction_sets(cpu_description())
    return next(name for name in ("avx512vnni", "avxvnni", "avx2", "scalar") if name in here)
