"""The tile microkernel for AVX-512: a straight line of instructions for each number of outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyai.codegen.isa.microkernels import Options, chosen, name_of
from tinyai.codegen.isa.x86_64.avx512vnni.vector_steps import LANES, simd
from tinyai.codegen.lowered import Tile
from tinyai.codegen.steps import Epilogue
from tinyai.codegen.templates import render_core

if TYPE_CHECKING:
    from tinyai.codegen.kernels.tiling import Tiling


def tile(epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: Options) -> str:
    """Name of the microkernel."""
    of = Tile(pixels, LANES * blocks)
    overlap, unrolled = t.overlap(of), t.written_out(of)
    if unrolled or overlap:  # too short to fetch much
        options = {**options, "ahead": 0}
    turn = 1 if unrolled or overlap else t.turn(blocks)
    name = name_of(
        "tile",
        f"{pixels}x{LANES * blocks}",
        *chosen(options),
        f"{unrolled[0]}x{unrolled[1]}" if unrolled else f"by{turn}" if turn > 1 else "",
        f"overlap_{overlap[0]}x{overlap[1]}" if overlap else "",
        "avx512vnni",
    )
    simd(epilogue)
    for number in range(1, min(overlap[0], pixels) + 1) if overlap else (blocks,):
        products = f"TINYAI_PRODUCTS_{number}{'_FLIPPED' if options['flipped'] else ''}"
        epilogue.cores[products] = render_core(
            "products_avx512vnni.c.j2", name=products, blocks=number, flipped=options["flipped"]
        )
    epilogue.cores[name] = render_core(
        "tile_avx512vnni.c.j2",
        name=name,
        pixels=pixels,
        blocks=blocks,
        overlap=overlap,
        unrolled=unrolled,
        turn=turn,
        **options,
    )
    return name
