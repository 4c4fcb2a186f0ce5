"""What microkernels for AVX-512 are written with. The C is in ``templates/``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyai.codegen.definitions import Definition, Linkage


@dataclass(frozen=True)
class Words:
    """How names end: _8 for vectors of 8 lanes."""

    words: str


def _defined(name: str, template: str, macro: str, *needs: Definition) -> Definition:
    return Definition(name, f"{template}_avx512vnni.c.j2", needs, macro)


# Statements of single instructions.
SIMD = replace(_defined("simd_avx512vnni", "simd", ""), arguments=Linkage())
# Requantizations of 16 sums, and of 8.
SCALES = {
    (scale, words): replace(
        _defined(f"tinyai_{scale}{words}", "scale", scale, SIMD), arguments=Words(words)
    )
    for scale in ("scale", "scale_twice", "scale_floats")
    for words in ("", "_8")
}
IN_ORDER = _defined("tinyai_in_order", "scale", "in_order")


def _vector(name: str, *needs: Definition) -> Definition:
    return _defined(name, "vector", name, *needs)


LINE = _vector("tinyai_line_16")
FIXED_POINT_RIGHT = _vector("tinyai_fixed_point_right_16")
FIXED_POINT = {
    "upward": _vector("tinyai_fixed_point_16"),
    "tonearest": _vector("tinyai_fixed_point_nearest_16"),
    "twice": _vector("tinyai_fixed_point_tflite_16", _vector("tinyai_twice_8")),
}
LOOKUP = _vector("tinyai_lookup_16")
ROUND_AWAY = _vector("tinyai_round_away_16")
ROUND_CUT = _vector("tinyai_round_cut_16")
DIVIDE = _vector("tinyai_divide_16")
MEAN = _vector("tinyai_mean_16", DIVIDE)
QUOTIENT = _vector("tinyai_quotient_16")


def scale(*, twice: bool = False, floats: bool = False, words: str = "") -> Definition:
    """A requantization; ``words`` is _8 for that of 8 sums."""
    return SCALES[f"scale{'_floats' if floats else '_twice' if twice else ''}", words]
