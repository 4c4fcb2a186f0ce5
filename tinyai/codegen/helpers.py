"""What kernels share on any machine. The C is in ``templates/helpers.h.j2``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyai.codegen.definitions import Definition


def _helper(name: str, *needs: Definition, macro: str = "") -> Definition:
    return Definition(name, "helpers.h.j2", needs, macro or name, portable=True)


# Patches that share a pass over the weights, at most: four accumulators fit the registers.
PATCHES = 4
# Products of int16 by int8 whose sum fits 32 bits; a whole number of vectors.
PRODUCTS_IN_32_BITS = 448


@dataclass(frozen=True)
class DotPatches:
    """Products of so many patches by weights of a type in C, added up in another one; ``part``
    of them at a time in 32 bits, or 0."""

    name: str
    weight: str
    sum: str
    patches: int
    part: int


STRING_H = _helper("string.h", macro="string_h")
# The storage of a function that only calls microkernels.
CALLER = _helper("TINYAI_CALLER", macro="tinyai_caller")
NOW = _helper("tinyai_now")
MATH = _helper("tinyai_math")
ADD_BORDER = _helper("tinyai_add_border", STRING_H)
WRITE_BORDER = _helper("tinyai_write_border", STRING_H)
# The arguments of microkernels: for depthwise convolutions, and for other ones.
DEPTHWISE_ARGS = _helper("tinyai_depthwise_args")
TILE_ARGS = _helper("tinyai_tile_args")
COVER = _helper("tinyai_cover")
SOFTMAX = _helper("tinyai_softmax")
INVERSE_ROOT = _helper("tinyai_inverse_root", SOFTMAX)
DOUBLE = _helper("tinyai_double", STRING_H)
ROUND = {mode: _helper(f"tinyai_round_{mode}") for mode in ("away", "even", "floor", "cut")}
REAL = {mode: _helper(f"tinyai_real_{mode}") for mode in ("floor", "cut", "away")}
FIXED_POINT = {
    "upward": _helper("tinyai_fixed_point"),
    "tonearest": _helper("tinyai_fixed_point_nearest"),
    "twice": _helper("tinyai_fixed_point_tflite"),
}


def dot_patches(weight: str, total: str, patches: int) -> Definition:
    wide = "" if weight == "int8_t" else "_wide"
    few = "" if patches == PATCHES else f"_{patches}"
    name = f"tinyai_dot_patches{few}{wide}{'_in_64_bits' if total == 'int64_t' else ''}"
    dot = _helper(name, macro="tinyai_dot_patches")
    part = PRODUCTS_IN_32_BITS if (weight, total) == ("int8_t", "int64_t") else 0
    return replace(dot, arguments=DotPatches(name, weight, total, patches, part))
