"""Products of two by two rows of eight signed bytes (SMMLA): ARMv8.2 with its option, ARMv8.6."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import PANEL, STRING_H
from tinyai.codegen.isa.aarch64 import AARCH64, dotprod
from tinyai.codegen.isa.aarch64.endings import endings
from tinyai.codegen.isa.microkernels import Microkernels, Options, name_of
from tinyai.codegen.isa.section import InstructionSet, Isa
from tinyai.codegen.steps import Epilogue

if TYPE_CHECKING:
    from tinyai.codegen.kernels.tiling import Tiling

NAME = "i8mm"
ISA = Isa(NAME, (NAME, "scalar"), AARCH64, (dotprod.NAME, NAME))
_PRODUCTS = Definition("products_i8mm", "products_i8mm.c.j2")


@dataclass(frozen=True, kw_only=True)
class PanelText(Options):
    """Of ``many`` outputs, or of one."""

    many: bool
    blocks: int


def _tile(epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: Options) -> str:
    """Any number of outputs, 16 channels of them at a time; whether the last block is whole is
    asked at run time."""
    options = replace(options, masked=False, ahead=0)
    many = t.outputs > 1
    name = name_of("tile", "many" if many else "one", f"{16 * blocks}", *options.chosen, NAME)
    text = PanelText(**vars(options), many=many, blocks=blocks)
    needs = (PANEL, STRING_H, _PRODUCTS, *endings(options, NAME))
    return epilogue.need(Definition(name, "tile_i8mm.c.j2", needs, arguments=text))


SET = InstructionSet(
    alone=ISA,
    among=ISA,
    microkernels=(Microkernels(NAME, _tile, functools.partial(dotprod.depthwise, isa=NAME)),),
)
