"""The tile microkernel for AMX: patches of 16 outputs by 16 channels in tile registers."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import COVER, STRING_H, TILE_ARGS
from tinyai.codegen.isa.microkernels import ConvOptions, name_of
from tinyai.codegen.isa.x86_64.avx512vnni.simd import IN_ORDER, SIMD, scale
from tinyai.codegen.isa.x86_64.avx512vnni.tile import tile as vector_tile
from tinyai.codegen.shapes.schedule import Tile
from tinyai.codegen.shapes.tiling import Tiling, cover
from tinyai.codegen.steps import Epilogue

ASK = Definition("tinyai_amx", "ask_amx.c.j2", (SIMD,))
TILES = Definition("simd_amx", "simd_amx.c.j2", (SIMD, STRING_H))
_PATCHES = Definition("patches_amx", "patches_amx.c.j2", (TILE_ARGS, TILES))
# Patches of outputs that meet so many blocks of channels at a time: at most four tiles of sums.
PATCHES = {1: 4, 2: 2, 3: 1, 4: 1}
# Outputs of a layer from which on a tile, which has 16 rows, is worth its while.
FEWEST = 5
# Bytes of a product, and of a window, below which vectors are faster: a product of tiles takes as
# long for few bytes as for 64.
LEAST, SHORT = 16, 32
# Bytes of a window from which on weights are better read once for two patches.
LONG = 1024


@dataclass(frozen=True, kw_only=True)
class TileText(ConvOptions):
    """Sums of so many ``patches`` of outputs by ``columns`` of the panel's ``blocks``."""

    patches: int
    columns: int
    blocks: int


@dataclass(frozen=True)
class EitherText:
    """A call of the microkernel of ``tiles``, or of those of vectors: for ``pixels`` outputs
    (``tall``), and for one less (``low``)."""

    tiles: str
    tall: str
    low: str
    pixels: int


def tile(
    epilogue: Epilogue,
    t: Tiling,
    *,
    pixels: int,
    blocks: int,
    options: ConvOptions,
    asks: bool = False,
) -> str:
    """Name of the microkernel, which takes any number of outputs. It ``asks`` whether tiles may be
    used; otherwise they are."""
    tiles = _tiles(t, blocks, options) if suits(t) else None
    if tiles and not asks:
        return epilogue.need(tiles)
    outputs = next(panel.outputs for panel in t.panels if panel.blocks == blocks)
    lower = not t.overlap(Tile(outputs, t.machine.lanes * blocks)) and (
        outputs > 1 if epilogue.threads > 1 else any(cover(n, outputs)[1] for n in _stripes(t))
    )
    tall, *low = (
        vector_tile(epilogue, t, pixels=number, blocks=blocks, options=options)
        for number in (outputs, outputs - 1)[: 1 + lower]
    )
    text = EitherText(tiles.name if tiles else "", tall, "".join(low), outputs)
    needs = [epilogue.needs[tall], *(epilogue.needs[name] for name in low)]
    needs += ([COVER] if low else []) + ([tiles, ASK] if tiles else [])
    name = f"{tiles.name}_or_{tall}" if tiles else f"{tall}_of_any"
    name += "_both" if low else ""
    return epilogue.need(Definition(name, "tile_either_amx.c.j2", tuple(needs), arguments=text))


def suits(t: Tiling) -> bool:
    """Whether the products of a layer are long enough for tiles."""
    return _chunk(t) >= LEAST and t.k >= SHORT


def _stripes(t: Tiling) -> tuple[int, ...]:
    """How many outputs stripes have where one thread computes all."""
    whole, rest = t.schedule.stripe, t.outputs % t.schedule.stripe
    return (whole, rest) if rest else (whole,)


def _chunk(t: Tiling) -> int:
    """Bytes of a window's row that a product takes: the fewest equal parts of at most 64."""
    words = t.bytes // 4
    return 4 * max(part for part in range(1, 17) if words % part == 0)


def _tiles(t: Tiling, blocks: int, options: ConvOptions) -> Definition:
    """The microkernel of tiles."""
    whole = next(columns for columns in (4, 3, 2, 1) if blocks % columns == 0)
    columns = 2 if whole == 4 and t.k >= LONG else whole
    patches = PATCHES[columns]
    name = name_of(
        "tile",
        f"{16 * patches}x{16 * columns}",
        f"of_{16 * blocks}" if blocks > columns else "",
        *options.chosen,
        "amx",
    )
    needs = [TILE_ARGS, SIMD, TILES, _PATCHES]
    if not options.raw:
        needs.append(scale(twice=options.twice, floats=options.floats))
        if columns > 2:
            needs.append(IN_ORDER)
    text = TileText(**vars(options), patches=patches, columns=columns, blocks=blocks)
    parameters = f"{'' if options.ahead else 'const '}tinyai_tile_args *const p"
    return Definition(name, "tile_amx.c.j2", tuple(needs), arguments=text, parameters=parameters)
