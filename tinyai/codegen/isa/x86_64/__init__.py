"""x86-64: what its instruction sets have in common."""

from __future__ import annotations

from tinyai.codegen.isa.variant import Architecture

# Compilers know no test for AVX-VNNI that is as old as the instructions: see ask_avxvnni.c.j2.
_ASKED = {"avxvnni": "tinyai_has_avxvnni"}


X86_64 = Architecture(
    "x86_64",
    "defined(__x86_64__) && defined(__GNUC__)",
    "immintrin.h",
    lambda feature: _ASKED.get(feature, f'__builtin_cpu_supports("{feature}")'),
    spins="defined(__x86_64__) || defined(__i386__)",
    pause="__builtin_ia32_pause();",
)
