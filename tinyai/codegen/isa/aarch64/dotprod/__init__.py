"""Dot products of four signed bytes a lane (SDOT): ARMv8.2 with its option, ARMv8.4."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import DEPTHWISE_ARGS, STRING_H, TILE_ARGS
from tinyai.codegen.isa.aarch64 import AARCH64
from tinyai.codegen.isa.aarch64.endings import endings
from tinyai.codegen.isa.aarch64.lookup import lookups
from tinyai.codegen.isa.microkernels import ConvOptions, Microkernels, name_of
from tinyai.codegen.isa.variant import InstructionSet, IsaVariant
from tinyai.codegen.shapes.channel_blocks import ChannelBlocks
from tinyai.codegen.shapes.tiling import Tiling
from tinyai.codegen.steps import Epilogue
from tinyai.ops.window import Window

NAME = "dotprod"
VARIANT = IsaVariant(NAME, (NAME, "scalar"), AARCH64, (NAME,))
# Windows of no more words are written out.
WRITTEN_OUT = 16
# As an instruction: clang before 16 knows no intrinsic in a function of its own target.
_DOT = Definition("dot_dotprod", "dot_dotprod.c.j2")


@dataclass(frozen=True, kw_only=True)
class TileText(ConvOptions):
    """Of so many ``pixels`` at a time. Windows are ``unrolled`` (rows, and words of a row), or are
    one ``point``, of bytes that so many, up to 32, divide (0 where they are more)."""

    pixels: int
    blocks: int
    unrolled: tuple[int, int] | None
    point: int


@dataclass(frozen=True, kw_only=True)
class DepthwiseText(ConvOptions):
    """Of so many neighbouring ``pixels`` at a time, in the variant of ``isa``."""

    isa: str
    window: Window
    groups: int
    pixels: int
    skipped: int = 0


def tile(
    epilogue: Epilogue,
    t: Tiling,
    *,
    pixels: int,
    blocks: int,
    options: ConvOptions,
    isa: str = NAME,
    products: Definition = _DOT,
    template: str = f"tile_{NAME}.c.j2",
    heights: tuple[int, int] = (5, 1),
) -> str:
    """Any number of outputs, 16 channels of them at a time; whether the last block is whole is
    asked at run time. In the variant of ``isa``, whose ``products`` they are made of; ``heights``
    are how many outputs there are at a time, where they are many and where there is one."""
    options = replace(options, masked=False, ahead=0)
    many = t.outputs > 1
    height = heights[0] if many else heights[1]
    rows, words = t.g.window.kernel[0], t.bytes // 4
    unrolled = (rows, words) if t.columns == 1 and rows * words <= WRITTEN_OUT else None
    point = math.gcd(t.bytes, 32) if rows * t.columns == 1 and not unrolled else 0
    name = name_of(
        "tile",
        "many" if many else "one",
        f"{16 * blocks}",
        *options.chosen,
        f"{rows}x{words}" if unrolled else f"by{point}" if point else "",
        isa,
    )
    text = TileText(**vars(options), pixels=height, blocks=blocks, unrolled=unrolled, point=point)
    needs = (TILE_ARGS, STRING_H, products, *endings(options, isa))
    return epilogue.need(Definition(name, template, needs, arguments=text))


def depthwise(
    epilogue: Epilogue, s: ChannelBlocks, *, lanes: int, options: ConvOptions, isa: str = NAME
) -> str:
    """Eight channels at a time of two rows of outputs, where these see four rows of the input; else
    16 of one output, or of two neighbours."""
    (rows, columns), near = s.window.kernel, (1, 1) == s.g.window.strides == s.g.window.dilation
    # Not where the rest of the steps takes the results row by row.
    in_two_rows = near and not s.flat and s.g.oh > 1 and epilogue.calls_only
    if in_two_rows and rows <= 3 and columns <= 3:
        name = name_of("depthwise", *s.said(), "rows", *options.chosen, isa)
        text = DepthwiseText(**vars(options), isa=isa, window=s.window, groups=1, pixels=1)
        needs = (DEPTHWISE_ARGS, _DOT, *endings(options, isa))
        return epilogue.need(Definition(name, "depthwise_rows_dotprod.c.j2", needs, arguments=text))
    pixels = 1 if s.flat or s.g.ow == 1 or s.window.dilation[1] > 1 else 2
    name = name_of("depthwise", *s.said(), f"by{pixels}", *options.chosen, isa)
    text = DepthwiseText(
        **vars(options), isa=isa, window=s.window, groups=s.groups, pixels=pixels, skipped=s.skipped
    )
    needs = (DEPTHWISE_ARGS, _DOT, *endings(options, isa))
    return epilogue.need(Definition(name, "depthwise_dotprod.c.j2", needs, arguments=text))


SET = InstructionSet(
    alone=VARIANT,
    among=VARIANT,
    microkernels=(
        Microkernels(
            NAME,
            tile,
            depthwise,
            rounds=True,
            fewest=8,
            fewest_of_stride_2=16,
            lookup=lookups(NAME),
        ),
    ),
)
