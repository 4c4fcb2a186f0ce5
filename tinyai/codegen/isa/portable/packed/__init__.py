"""C over the weights as vector instructions want them: what a file for every machine of an
architecture runs on any other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tinyai.codegen.c import C_TYPES
from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import PANEL, ROUND, SLICE, STRING_H
from tinyai.codegen.isa.microkernels import Microkernels, Options, name_of
from tinyai.codegen.isa.section import InstructionSet, Isa
from tinyai.codegen.steps import Epilogue

if TYPE_CHECKING:
    from tinyai.codegen.kernels.depthwise import Slicing
    from tinyai.codegen.kernels.tiling import Tiling


def _tile(epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: Options) -> str:
    options = replace(options, flipped=False, masked=False, ahead=0)
    name = name_of("tile", f"{pixels}x{16 * blocks}", *options.chosen, "packed")
    values = {"name": name, "blocks": blocks, "byte_type": _byte_type(epilogue)}
    values |= vars(options)
    needs = (PANEL, *([STRING_H] if options.raw else _scale(options)))
    return epilogue.need(Definition(name, "tile_packed.c.j2", needs, values=values))


def _depthwise(epilogue: Epilogue, s: Slicing, *, lanes: int, options: Options) -> str:
    options = replace(options, flipped=False)
    name = name_of("depthwise", *s.said(), *options.chosen, "packed")
    shape = {"window": s.g.window, "groups": s.groups, "byte_type": _byte_type(epilogue)}
    values = {"name": name, **shape, **vars(options)}
    needs = (SLICE, *([] if options.raw else _scale(options)))
    return epilogue.need(Definition(name, "depthwise_packed.c.j2", needs, values=values))


def _byte_type(epilogue: Epilogue) -> str:
    return C_TYPES[epilogue.graph.bytes_are]


def _scale(options: Options) -> tuple[Definition, ...]:
    """What the requantization needs."""
    return (STRING_H, ROUND["even"]) if options.floats else ()


ISA = Isa("packed", ("packed", "scalar"), unsigned=True)
SET = InstructionSet(
    alone=ISA, among=ISA, microkernels=(Microkernels("packed", _tile, _depthwise),)
)
