"""The tile microkernel of weights in groups, in files that are for AVX2 alone."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import STRING_H, TILE_ARGS
from tinyai.codegen.isa.microkernels import ConvOptions, Packed, name_of
from tinyai.codegen.isa.x86_64.avx2.groups import COPY, PIECE, grouped
from tinyai.codegen.isa.x86_64.bits256 import SIMD, TileText, WidthText, ends
from tinyai.codegen.shapes.tiling import Tiling
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Array

# Outputs of a tile, at most: with four vectors of weights their sums fill the registers.
OUTPUTS = 8
# The share of words that are widened from which on copies of widened bytes save time, and that
# from which on other tiles do: these read the bytes of an output once for 16 channels, not for 8.
MANY, TOO_MANY = 1 / 6, 1 / 2


@dataclass(frozen=True)
class GroupsText:
    piece: int
    copy: int


@dataclass(frozen=True)
class SumsText:
    pixels: int
    copied: bool


# The parameters of what adds up products of weights in groups.
SUMS = (
    "const uint8_t *const from, const int8_t **const weights, "
    "const int32_t *const start, int32_t *const sums"
)
GROUPS = Definition(
    "groups_avx2", "groups_avx2.c.j2", (SIMD, STRING_H), arguments=GroupsText(PIECE, COPY)
)


def packed(taps: Array) -> Packed | str:
    """[channels, bytes of the window] in groups."""
    found = grouped(taps)
    if found.wide > TOO_MANY:
        return f"{found.wide:.0%} of the words would be widened"
    microkernel = functools.partial(tile, copied=found.wide > MANY)
    return Packed(found.streams, microkernel, str(found))


def tile(
    epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: ConvOptions, copied: bool
) -> str:
    """Name of the tile microkernel, with ``copied`` widened bytes. It asks at run time whether the
    last block is whole, and whether the input is flipped."""
    options = replace(options, masked=False, ahead=0, flipped=False)
    # A group costs as much as seven tenths of an output more.
    heights = range(OUTPUTS, 0, -1)
    outputs = min(heights, key=lambda n: -(-t.schedule.stripe // n) * (10 * n + 7))
    copies = "copied" if copied else ""
    sums = Definition(
        name_of("sums", str(outputs), copies, "avx2"),
        "sums_avx2.c.j2",
        (GROUPS,),
        arguments=SumsText(outputs, copied),
        parameters=SUMS,
    )
    text = TileText(
        **vars(options),
        pixels=outputs,
        widest=max(t.machine.widths),
        products=sums.name,
        grouped=PIECE,
        copied=copied,
    )
    shared = Definition(
        name_of("tile_groups", str(outputs), copies, *options.chosen, "avx2"),
        "tile_avx2.c.j2",
        (TILE_ARGS, *ends(options), sums),
        arguments=text,
        parameters="const tinyai_tile_args *const p, const ptrdiff_t blocks",
    )
    name = name_of("tile_groups", f"{outputs}x{16 * blocks}", copies, *options.chosen, "avx2")
    width = WidthText(shared.name, blocks)
    return epilogue.need(Definition(name, "tile_width.c.j2", (shared,), arguments=width))
