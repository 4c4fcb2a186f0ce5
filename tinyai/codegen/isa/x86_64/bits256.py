"""256 bits: one text of each microkernel for AVX2 and for AVX-VNNI, which multiplies and adds bytes
in one instruction. They take one block of 16 channels at a time and any number of outputs, so that
one serves every layer."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tinyai.codegen.isa.microkernels import Microkernels, Options, Sums, chosen, name_of
from tinyai.codegen.isa.section import Isa
from tinyai.codegen.isa.x86_64 import X86_64, sums
from tinyai.codegen.isa.x86_64.transpose import transpose
from tinyai.codegen.steps import Epilogue
from tinyai.codegen.templates import render_core

if TYPE_CHECKING:
    from tinyai.codegen.kernels.depthwise import Slicing
    from tinyai.codegen.kernels.tiling import Tiling


def isa_of(name: str, row: str, *features: str, question: str = "") -> Isa:
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
            functools.partial(sums.float_add, isa=isa, wide=False),
            fused=False,
        ),
        transpose=functools.partial(transpose, isa=isa),
    )


def tile(
    epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: Options, isa: str
) -> str:
    """Name of the tile microkernel. It asks at run time whether the last block is whole."""
    options = {**options, "masked": 0, "ahead": 0}
    many = t.outputs > 1
    height = "many" if many else str(pixels)
    name = name_of("tile", f"{height}x{16 * blocks}", *chosen(options), isa)
    shared = name_of("tile", height, *chosen(options), isa)
    panel = "const tinyai_panel *const p, const ptrdiff_t blocks"
    _add(epilogue, isa, shared, "tile_256.c.j2", panel, many=many, **options)
    epilogue.cores[name] = render_core("tile_width.c.j2", name=name, shared=shared, blocks=blocks)
    return name


def depthwise(epilogue: Epilogue, s: Slicing, *, lanes: int, options: Options, isa: str) -> str:
    """Name of the depthwise microkernel: loops, which ask at run time whether the input is
    flipped."""
    options = {**options, "flipped": 0}
    name = name_of("depthwise", *s.said(), *chosen(options), isa)
    _add(
        epilogue,
        isa,
        name,
        "depthwise_256.c.j2",
        "const tinyai_slice *const p",
        window=s.g.window,
        groups=s.groups,
        **options,
    )
    return name


def _add(
    epilogue: Epilogue, isa: str, name: str, template: str, parameters: str, /, **values: object
) -> None:
    """The file then holds the function ``name`` that the template makes of the values, and of
    whether it is for AVX-VNNI (``vnni``). ``parameters`` are its parameters in C, whose last words
    are their names."""
    epilogue.cores["simd_256"] = render_core("simd_256.c.j2")
    if isa != "either":
        epilogue.cores[name] = render_core(template, name=name, vnni=isa == "avxvnni", **values)
        return
    old, new = f"{name}_avx2", f"{name}_avxvnni"
    epilogue.cores[old] = render_core(template, name=old, vnni=False, **values)
    text = render_core(template, name=new, vnni=True, **values)
    epilogue.cores["ask_avxvnni"] = render_core("ask_avxvnni.c.j2")
    epilogue.cores[new] = render_core("avxvnni.c.j2", text=text)
    arguments = ", ".join(parameter.split()[-1] for parameter in parameters.split(","))
    epilogue.cores[name] = render_core(
        "either.c.j2", name=name, parameters=parameters, arguments=arguments, old=old, new=new
    )
