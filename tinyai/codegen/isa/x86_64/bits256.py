"""256 bits: one text of each microkernel for AVX2 and for AVX-VNNI, which multiplies and adds bytes
in one instruction. They take one block of 16 channels at a time and any number of outputs, so that
one serves every layer."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tinyai.codegen.definitions import Definition, Linkage
from tinyai.codegen.helpers import DEPTHWISE_ARGS, STRING_H, TILE_ARGS
from tinyai.codegen.isa.microkernels import ConvOptions, Microkernels, Sums, name_of
from tinyai.codegen.isa.variant import IsaVariant
from tinyai.codegen.isa.x86_64 import X86_64, sums
from tinyai.codegen.isa.x86_64.dot import dot
from tinyai.codegen.isa.x86_64.lookup import lookups
from tinyai.codegen.isa.x86_64.pairs import pairs
from tinyai.codegen.isa.x86_64.transpose import transpose
from tinyai.codegen.shapes.channel_blocks import ChannelBlocks
from tinyai.codegen.shapes.tiling import Tiling
from tinyai.codegen.steps import Epilogue
from tinyai.ops.window import Window

SIMD = Definition("simd_256", "simd_256.c.j2", arguments=Linkage())
WIDEN = Definition("widen_avx2", "widen_avx2.c.j2", (SIMD,))
# Outputs of a tile, where there are many.
OUTPUTS = 6
# The parameters of what adds up products with AVX2.
PRODUCTS = (
    "const int32_t *const even, const int32_t *const odd, const ptrdiff_t words, "
    "const int8_t *const weights, const ptrdiff_t blocks, int32_t *const sums"
)


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


def isa_of(name: str, row: str, *features: str, question: Definition | None = None) -> IsaVariant:
    """A variant whose layers are compiled for AVX2 and these features."""
    needs = ("avx2", *features)
    options = ("prefer-vector-width=512",)
    return IsaVariant(name, (row, "scalar"), X86_64, needs, options, question, unsigned=True)


def microkernels(isa: str) -> Microkernels:
    """Those for "avx2", "avxvnni", or "either", which asks the CPU at each call."""
    return Microkernels(
        isa,
        functools.partial(tile, isa=isa),
        functools.partial(depthwise, isa=isa),
        fewest_of_stride_2=64,
        sums=Sums(
            functools.partial(sums.quantized_add, isa=isa, bits=256),
            functools.partial(sums.fixed_add, isa=isa, bits=256, vnni=isa == "avxvnni"),
            functools.partial(sums.float_add, isa=isa),
            forms=("fixed", "floats"),
        ),
        transpose=functools.partial(transpose, isa=isa),
        lookup=lookups(isa),
        dot=functools.partial(dot, by="avx2"),
        pairs=pairs(isa),
    )


@dataclass(frozen=True, kw_only=True)
class TileText(ConvOptions):
    """Of so many outputs (``pixels``) at a time, by at most the ``widest`` number of blocks;
    ``products`` adds up those of widened bytes, or of weights that are ``grouped`` in pieces of so
    many words; then ``copied`` says that there are copies of widened bytes, too."""

    pixels: int
    widest: int
    products: str
    grouped: int = 0
    copied: bool = False


@dataclass(frozen=True)
class ProductsText:
    pixels: int


@dataclass(frozen=True, kw_only=True)
class DepthwiseText(ConvOptions):
    """``skipped``: the channels of a pixel where neighbouring outputs see every other one."""

    window: Window
    groups: int
    skipped: int
    vnni: bool = False


@dataclass(frozen=True)
class WidthText:
    """Panels of so many ``blocks``, by the microkernel for all."""

    shared: str
    blocks: int


@dataclass(frozen=True)
class Wrapped:
    text: str


@dataclass(frozen=True)
class EitherText:
    """A call of the microkernel for ``old`` CPUs, or for ``new`` ones."""

    parameters: str
    arguments: str
    old: str
    new: str


def tile(
    epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: ConvOptions, isa: str
) -> str:
    """Name of the tile microkernel. It asks at run time whether the last block is whole."""
    options = replace(options, masked=False, ahead=0)
    if isa == "avx2":  # input is turned where it is widened, or not, at run time
        options = replace(options, flipped=False)
    # Instructions for a word: eight an output, and eight that load and widen weights.
    heights = range(OUTPUTS, 0, -1) if isa == "avx2" else (OUTPUTS,) if t.outputs > 1 else (1,)
    outputs = min(heights, key=lambda n: -(-t.schedule.stripe // n) * (8 * n + 8))
    height = "many" if outputs == OUTPUTS else str(outputs)
    name = name_of("tile", f"{height}x{16 * blocks}", *options.chosen, isa)
    products = Definition(
        f"tinyai_products_{outputs}_avx2",
        "products_avx2.c.j2",
        (WIDEN,),
        arguments=ProductsText(outputs),
        parameters=PRODUCTS,
    )
    text = TileText(
        **vars(options), pixels=outputs, widest=max(t.machine.widths), products=products.name
    )
    defined = functools.partial(Definition, name_of("tile", height, *options.chosen, isa))
    needs = TILE_ARGS, *ends(options)
    shared = _either(
        defined("tile_avx2.c.j2", (*needs, products), arguments=text),
        defined("tile_avxvnni.c.j2", (*needs, SIMD), arguments=text),
        {"p": "const tinyai_tile_args *const", "blocks": "const ptrdiff_t"},
        isa,
    )
    width = WidthText(shared.name, blocks)
    return epilogue.need(Definition(name, "tile_width.c.j2", (shared,), arguments=width))


def depthwise(
    epilogue: Epilogue, s: ChannelBlocks, *, lanes: int, options: ConvOptions, isa: str
) -> str:
    """Name of the depthwise microkernel: loops, which ask at run time whether the input is
    flipped."""
    options = replace(options, flipped=False)
    text = DepthwiseText(**vars(options), window=s.window, groups=s.groups, skipped=s.skipped)
    old = Definition(
        name_of("depthwise", *s.said(), *options.chosen, isa),
        "depthwise_256.c.j2",
        (DEPTHWISE_ARGS, SIMD, *ends(options)),
        arguments=text,
    )
    new = replace(old, arguments=replace(text, vnni=True))
    microkernel = _either(old, new, {"p": "const tinyai_depthwise_args *const"}, isa)
    return epilogue.need(microkernel)


def ends(options: ConvOptions) -> tuple[Definition, ...]:
    """What requantizes and stores sums, where they are not stored raw."""
    if options.raw:
        return ()
    scale = "floats" if options.floats else "twice" if options.twice else ""
    return SCALES[scale], STORE


def _either(
    old: Definition, new: Definition, parameters: Mapping[str, str], isa: str
) -> Definition:
    """The function that is ``old`` with AVX2 and ``new`` with AVX-VNNI; of ``isa`` "either" the one
    of both that suits the CPU. ``parameters`` are the types in C of its parameters, by their
    names."""
    declared = ", ".join(f"{c_type} {name}" for name, c_type in parameters.items())
    name = old.name
    if isa != "either":
        return replace(new if isa == "avxvnni" else old, parameters=declared)
    old = replace(old, name=f"{name}_avx2", parameters=declared)
    new = replace(new, name=f"{name}_avxvnni", parameters=declared)
    wrapped = replace(
        new, template="avxvnni.c.j2", needs=(*new.needs, ASK), arguments=Wrapped(new.text)
    )
    either = EitherText(declared, ", ".join(parameters), old.name, new.name)
    return Definition(name, "either.c.j2", (old, wrapped), arguments=either)
