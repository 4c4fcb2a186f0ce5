"""256 bits: one text of each microkernel for AVX2 and for AVX-VNNI, which multiplies and adds bytes
in one instruction. They take one block of 16 channels at a time and any number of outputs, so that
one serves every layer."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import PANEL, SLICE, STRING_H
from tinyai.codegen.isa.microkernels import Microkernels, Options, Sums, name_of
from tinyai.codegen.isa.section import Isa
from tinyai.codegen.isa.x86_64 import X86_64, sums
from tinyai.codegen.isa.x86_64.transpose import transpose
from tinyai.codegen.steps import Epilogue
from tinyai.codegen.templates import rendered

if TYPE_CHECKING:
    from tinyai.codegen.kernels.depthwise import Slicing
    from tinyai.codegen.kernels.tiling import Tiling


SIMD = Definition("simd_256", "simd_256.c.j2")


def _ending(name: str, *needs: Definition) -> Definition:
    return Definition(f"tinyai_{name}_256", "scale_256.c.j2", needs, name)


SCALE = _ending("scale", SIMD)
SCALES = {
    "": SCALE,
    "twice": _ending("scale_twice", SCALE),
    "floats": _ending("scale_floats", SIMD),
}
STORE = _ending("store", STRING_H)
ASK = Definition("ask_avxvnni", "ask_avxvnni.c.j2")


def isa_of(name: str, row: str, *features: str, question: Definition | None = None) -> Isa:
    """A section whose layers are compiled for AVX2 and these features."""
    needs = ("avx2", *features)
    options = ("prefer-vector-width=512",)
    return Isa(name, (row, "scalar"), X86_64, needs, options, question, unsigned=True)


def microkernels(isa: str) -> Microkernels:
    """Those for "avx2", "avxvnni", or "either", which asks the CPU at each call."""
    return Microkernels(
        isa,
        functools.partial(tile, isa=isa),
        functools.partial(depthwise, isa=isa),
        sums=Sums(
            functools.partial(sums.quantized_add, isa=isa, bits=256),
            functools.partial(sums.float_add, isa=isa),
            fused=False,
        ),
        transpose=functools.partial(transpose, isa=isa),
    )


def tile(
    epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: Options, isa: str
) -> str:
    """Name of the tile microkernel. It asks at run time whether the last block is whole."""
    options = replace(options, masked=False, ahead=0)
    many = t.outputs > 1
    height = "many" if many else str(pixels)
    name = name_of("tile", f"{height}x{16 * blocks}", *options.chosen, isa)
    shared = _either(
        name_of("tile", height, *options.chosen, isa),
        "tile_256.c.j2",
        "const tinyai_panel *const p, const ptrdiff_t blocks",
        (PANEL, SIMD, *_ends(options)),
        {"many": many, **vars(options)},
        isa,
    )
    values = {"name": name, "shared": shared.name, "blocks": blocks}
    return epilogue.need(Definition(name, "tile_width.c.j2", (shared,), values=values))


def depthwise(epilogue: Epilogue, s: Slicing, *, lanes: int, options: Options, isa: str) -> str:
    """Name of the depthwise microkernel: loops, which ask at run time whether the input is
    flipped."""
    options = replace(options, flipped=False)
    microkernel = _either(
        name_of("depthwise", *s.said(), *options.chosen, isa),
        "depthwise_256.c.j2",
        "const tinyai_slice *const p",
        (SLICE, SIMD, *_ends(options)),
        {"window": s.g.window, "groups": s.groups, **vars(options)},
        isa,
    )
    return epilogue.need(microkernel)


def _ends(options: Options) -> tuple[Definition, ...]:
    """What requantizes and stores sums, where they are not stored raw."""
    if options.raw:
        return ()
    scale = "floats" if options.floats else "twice" if options.twice else ""
    return SCALES[scale], STORE


def _either(
    name: str,
    template: str,
    parameters: str,
    needs: tuple[Definition, ...],
    values: Mapping[str, object],
    isa: str,
) -> Definition:
    """The function ``name`` that the template makes of the values, and of whether it is for
    AVX-VNNI (``vnni``); of ``isa`` "either" the one of both that suits the CPU. ``parameters`` are
    its parameters in C, whose last words are their names."""
    if isa != "either":
        vnni = isa == "avxvnni"
        return Definition(name, template, needs, values={"name": name, "vnni": vnni, **values})
    old, new = f"{name}_avx2", f"{name}_avxvnni"
    text = rendered(template, "", name=new, vnni=True, **values)
    each = (
        Definition(old, template, needs, values={"name": old, "vnni": False, **values}),
        Definition(new, "avxvnni.c.j2", (*needs, ASK), values={"text": text}),
    )
    arguments = ", ".join(parameter.split()[-1] for parameter in parameters.split(","))
    called = {"parameters": parameters, "arguments": arguments, "old": old, "new": new}
    return Definition(name, "either.c.j2", each, values={"name": name, **called})
