"""AArch64: what its instruction sets have in common."""

from __future__ import annotations

from tinyai.codegen.isa.section import Architecture

# Bits of the words that the kernel hands to each program (Linux, arch/arm64, uapi/asm/hwcap.h).
_BITS = {"dotprod": ("AT_HWCAP", 1 << 20), "i8mm": ("AT_HWCAP2", 1 << 13)}


def _has(feature: str) -> str:
    word, bit = _BITS[feature]
    return f"(getauxval({word}) & {bit:#x}) != 0"


AARCH64 = Architecture("aarch64", "defined(__aarch64__) && defined(__GNUC__)", "arm_neon.h", _has)
