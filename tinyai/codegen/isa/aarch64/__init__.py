"""AArch64 under Linux: what its instruction sets have in common."""

from __future__ import annotations

from tinyai.codegen.isa.variant import Architecture

# Bits of the words that the kernel hands to each program (uapi/asm/hwcap.h).
_BITS = {
    "neon": ("AT_HWCAP", 1 << 1),
    "dotprod": ("AT_HWCAP", 1 << 20),
    "i8mm": ("AT_HWCAP2", 1 << 13),
}


def _has(feature: str) -> str:
    word, bit = _BITS[feature]
    return f"(getauxval({word}) & {bit:#x}) != 0"


def _gcc(features: tuple[str, ...]) -> str:
    """The oldest version of the architecture that has them, and those it does not bring itself."""
    more = [feature for feature in features if feature != "neon"]
    return "+".join(("arch=armv8.2-a" if more else "arch=armv8-a", *(more or ["simd"])))


AARCH64 = Architecture(
    "aarch64",
    "defined(__aarch64__) && defined(__linux__) && defined(__GNUC__)",
    "arm_neon.h",
    _has,
    asks="sys/auxv.h",
    gcc=_gcc,
    spins="defined(__aarch64__)",
    pause='__asm__ __volatile__("yield");',
)
