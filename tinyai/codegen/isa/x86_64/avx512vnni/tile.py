"""The tile microkernel for AVX-512: a straight line of instructions for each number of outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import TILE_ARGS
from tinyai.codegen.isa.microkernels import ConvOptions, name_of
from tinyai.codegen.isa.x86_64.avx512vnni.simd import IN_ORDER, SIMD, scale
from tinyai.codegen.isa.x86_64.avx512vnni.vector_steps import LANES
from tinyai.codegen.shapes.schedule import Tile
from tinyai.codegen.shapes.tiling import Tiling
from tinyai.codegen.steps import Epilogue


@dataclass(frozen=True)
class ProductsText:
    blocks: int
    flipped: bool


@dataclass(frozen=True, kw_only=True)
class TileText(ConvOptions):
    """Sums of ``pixels`` outputs by ``blocks`` of channels. Windows ``overlap`` (columns of one,
    and bytes of a column), or are ``unrolled`` (rows, and words of a row), or ``turn`` words are in
    each turn of the loop over a row."""

    pixels: int
    blocks: int
    overlap: tuple[int, int] | None
    unrolled: tuple[int, int] | None
    turn: int


def tile(epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: ConvOptions) -> str:
    """Name of the microkernel."""
    of = Tile(pixels, LANES * blocks)
    overlap, unrolled = t.overlap(of), t.written_out(of)
    if unrolled or overlap:  # too short to fetch much
        options = replace(options, ahead=0)
    turn = 1 if unrolled or overlap else t.turn(blocks)
    name = name_of(
        "tile",
        f"{pixels}x{LANES * blocks}",
        *options.chosen,
        f"{unrolled[0]}x{unrolled[1]}" if unrolled else f"by{turn}" if turn > 1 else "",
        f"overlap_{overlap[0]}x{overlap[1]}" if overlap else "",
        "avx512vnni",
    )
    needs = [TILE_ARGS, SIMD]
    for number in range(1, min(overlap[0], pixels) + 1) if overlap else (blocks,):
        # The statement for the products of four bytes by the weights of so many blocks.
        products = f"TINYAI_PRODUCTS_{number}{'_FLIPPED' if options.flipped else ''}"
        facts = ProductsText(number, options.flipped)
        needs.append(Definition(products, "products_avx512vnni.c.j2", (SIMD,), arguments=facts))
    if not options.raw:
        needs.append(scale(twice=options.twice, floats=options.floats))
        if blocks == 4 and not options.masked:
            needs.append(IN_ORDER)
    text = TileText(
        **vars(options),
        pixels=pixels,
        blocks=blocks,
        overlap=overlap,
        unrolled=unrolled,
        turn=turn,
    )
    template = "tile_avx512vnni.c.j2"
    parameters = f"{'' if options.ahead else 'const '}tinyai_tile_args *const p"
    return epilogue.need(
        Definition(name, template, tuple(needs), arguments=text, parameters=parameters)
    )
