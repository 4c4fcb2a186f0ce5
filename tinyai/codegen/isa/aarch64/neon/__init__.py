"""What every AArch64 CPU has: products of bytes in 16 bits, added in pairs into 32."""

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

NAME = "neon"
# Outputs of a tile, where there are many.
MANY = 2
_PRODUCTS = Definition("products_neon", "products_neon.c.j2")
VARIANT = IsaVariant(NAME, (NAME, "scalar"), AARCH64, (NAME,))


@dataclass(frozen=True, kw_only=True)
class TileText(ConvOptions):
    """Of so many outputs (``pixels``) at a time. Windows may be one ``point``, of bytes that so
    many, up to 32, divide (0 where they are more). ``pairs``: the sum of two products fits 16
    bits."""

    pixels: int
    blocks: int
    point: int
    pairs: bool


@dataclass(frozen=True, kw_only=True)
class DepthwiseText(ConvOptions):
    window: Window
    groups: int
    skipped: int
    pixels: int
    pairs: bool


def _tile(epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: ConvOptions) -> str:
    """Any number of outputs, 16 channels of them at a time; whether the last block is whole is
    asked at run time."""
    options = replace(options, masked=False, ahead=0)
    many, pairs = t.outputs > 1, _pairs(epilogue)
    point = math.gcd(t.bytes, 32) if t.g.window.kernel[0] * t.columns == 1 else 0
    said = ("many" if many else "one", "pairs" if pairs else "", f"by{point}" if point else "")
    name = name_of("tile", *said, f"{16 * blocks}", *options.chosen, NAME)
    text = TileText(
        **vars(options), pixels=MANY if many else 1, blocks=blocks, point=point, pairs=pairs
    )
    needs = (TILE_ARGS, STRING_H, _PRODUCTS, *endings(options, NAME))
    return epilogue.need(Definition(name, "tile_neon.c.j2", needs, arguments=text))


def _depthwise(epilogue: Epilogue, s: ChannelBlocks, *, lanes: int, options: ConvOptions) -> str:
    """16 channels at a time of one output, or of two whose windows overlap."""
    pairs = _pairs(epilogue)
    pixels = 1 if s.flat or s.g.ow == 1 or s.window.dilation[1] > 1 else 2
    said = (*s.said(), f"by{pixels}", "pairs" if pairs else "")
    name = name_of("depthwise", *said, *options.chosen, NAME)
    text = DepthwiseText(
        **vars(options),
        window=s.window,
        groups=s.groups,
        skipped=s.skipped,
        pixels=pixels,
        pairs=pairs,
    )
    return epilogue.need(
        Definition(
            name, "depthwise_neon.c.j2", (DEPTHWISE_ARGS, *endings(options, NAME)), arguments=text
        )
    )


def _pairs(epilogue: Epilogue) -> bool:
    """Whether two products fit: 2 * 128 * 127 does, 2 * 128 * 128 does not."""
    return bool(epilogue.graph.constants[epilogue.node.inputs[1]].min() > -128)


SET = InstructionSet(
    alone=VARIANT,
    among=VARIANT,
    microkernels=(
        Microkernels(
            NAME,
            _tile,
            _depthwise,
            rounds=True,
            fewest=16,
            fewest_of_stride_2=16,
            lookup=lookups(NAME),
        ),
    ),
)
