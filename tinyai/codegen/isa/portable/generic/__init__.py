"""C over the weights as vector instructions want them: what a file for every machine of an
architecture runs on any other."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyai.codegen.c import C_TYPES
from tinyai.codegen.definitions import Definition, Linkage
from tinyai.codegen.helpers import DEPTHWISE_ARGS, ROUND, STRING_H, TILE_ARGS
from tinyai.codegen.isa.microkernels import ConvOptions, Microkernels, name_of
from tinyai.codegen.isa.variant import InstructionSet, IsaVariant
from tinyai.codegen.shapes.channel_blocks import ChannelBlocks
from tinyai.codegen.shapes.tiling import Tiling
from tinyai.codegen.steps import Epilogue
from tinyai.ops.window import Window

MICROKERNEL = Definition("microkernel_generic", "microkernel_generic.c.j2", arguments=Linkage())


@dataclass(frozen=True, kw_only=True)
class TileText(ConvOptions):
    blocks: int
    byte_type: str


@dataclass(frozen=True, kw_only=True)
class DepthwiseText(ConvOptions):
    window: Window
    byte_type: str


def _tile(epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: ConvOptions) -> str:
    options = replace(options, flipped=False, masked=False, ahead=0)
    name = name_of("tile", f"{pixels}x{16 * blocks}", *options.chosen, "generic")
    text = TileText(**vars(options), blocks=blocks, byte_type=_byte_type(epilogue))
    needs = (TILE_ARGS, MICROKERNEL, *([STRING_H] if options.raw else _scale(options)))
    return epilogue.need(_microkernel(name, "tile", needs, text))


def _depthwise(epilogue: Epilogue, s: ChannelBlocks, *, lanes: int, options: ConvOptions) -> str:
    options = replace(options, flipped=False)
    name = name_of("depthwise", *s.said(), *options.chosen, "generic")
    text = DepthwiseText(**vars(options), window=s.window, byte_type=_byte_type(epilogue))
    needs = (DEPTHWISE_ARGS, MICROKERNEL, *([] if options.raw else _scale(options)))
    return epilogue.need(_microkernel(name, "depthwise", needs, text))


def _microkernel(
    name: str, kind: str, needs: tuple[Definition, ...], text: TileText | DepthwiseText
) -> Definition:
    """One that may be compiled apart."""
    parameters = f"const tinyai_{kind}_args *const p"
    return Definition(name, f"{kind}_generic.c.j2", needs, arguments=text, parameters=parameters)


def _byte_type(epilogue: Epilogue) -> str:
    return C_TYPES[epilogue.graph.bytes_are]


def _scale(options: ConvOptions) -> tuple[Definition, ...]:
    """What the requantization needs."""
    return (STRING_H, ROUND["even"]) if options.floats else ()


VARIANT = IsaVariant("generic", ("generic", "scalar"), unsigned=True)
SET = InstructionSet(
    alone=VARIANT, among=VARIANT, microkernels=(Microkernels("generic", _tile, _depthwise),)
)
