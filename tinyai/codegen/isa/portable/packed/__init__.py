"""C over the weights as vector instructions want them: what a file for every machine of an
architecture runs on any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import PANEL, ROUND, SLICE, STRING_H
from tinyai.codegen.isa.microkernels import Microkernels, Options, chosen, name_of
from tinyai.codegen.isa.section import InstructionSet, Isa
from tinyai.codegen.steps import Epilogue

if TYPE_CHECKING:
    from tinyai.codegen.kernels.depthwise import Slicing
    from tinyai.codegen.kernels.tiling import Tiling


def _tile(epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: Options) -> str:
    options = {**options, "flipped": 0, "masked": 0, "ahead": 0}  # of which two are asked for in C
    name = name_of("tile", f"{pixels}x{16 * blocks}", *chosen(options), "packed")
    values = {"name": name, "blocks": blocks, **options}
    needs = (PANEL, *([STRING_H] if options["raw"] else _scale(options)))
    return epilogue.need(Definition(name, "tile_packed.c.j2", needs, values=values))


def _depthwise(epilogue: Epilogue, s: Slicing, *, lanes: int, options: Options) -> str:
    options = {**options, "flipped": 0}
    name = name_of("depthwise", *s.said(), *chosen(options), "packed")
    values = {"name": name, "window": s.g.window, "groups": s.groups, **options}
    needs = (SLICE, *([] if options["raw"] else _scale(options)))
    return epilogue.need(Definition(name, "depthwise_packed.c.j2", needs, values=values))


def _scale(options: Options) -> tuple[Definition, ...]:
    """What the requantization needs."""
    return (STRING_H, ROUND["even"]) if options["floats"] else ()


ISA = Isa("packed", ("packed", "scalar"), unsigned=True)
SET = InstructionSet(
    alone=ISA, among=ISA, microkernels=(Microkernels("packed", _tile, _depthwise),)
)
