"""C over the weights as vector instructions want them: what a file for every machine of an
architecture runs on any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyai.codegen.isa.microkernels import Microkernels, Options, chosen, name_of
from tinyai.codegen.isa.section import InstructionSet, Isa
from tinyai.codegen.steps import Epilogue
from tinyai.codegen.templates import render, render_core

if TYPE_CHECKING:
    from tinyai.codegen.kernels.depthwise import Slicing
    from tinyai.codegen.kernels.tiling import Tiling


def _tile(epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: Options) -> str:
    options = _asked(epilogue, {**options, "masked": 0, "ahead": 0})
    name = name_of("tile", f"{pixels}x{16 * blocks}", *chosen(options), "packed")
    epilogue.cores[name] = render_core("tile_packed.c.j2", name=name, blocks=blocks, **options)
    return name


def _depthwise(epilogue: Epilogue, s: Slicing, *, lanes: int, options: Options) -> str:
    options = _asked(epilogue, options)
    name = name_of("depthwise", *s.said(), *chosen(options), "packed")
    epilogue.cores[name] = render(
        "depthwise_packed.c.j2", name=name, window=s.g.window, groups=s.groups, **options
    )
    return name


def _asked(epilogue: Epilogue, options: Options) -> Options:
    """The options without the one that is asked for at run time: whether the input is flipped."""
    if options["floats"]:
        epilogue.helpers.add("tinyai_round_even")
    return {**options, "flipped": 0}


ISA = Isa("packed", ("packed", "scalar"), unsigned=True)
SET = InstructionSet(
    alone=ISA, among=ISA, microkernels=(Microkernels("packed", _tile, _depthwise),)
)
