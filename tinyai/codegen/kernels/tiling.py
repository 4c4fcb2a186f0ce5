"""What ways to cut convolutions and dense layers into tiles there are, and what each costs.

A *schedule* cuts the channels of a layer into panels, says how many outputs meet a panel at a time,
how many outputs are computed for all panels before the next ones, and whether the products of a
window are written out. ``schedules`` lists those worth a try, the cheapest first by a model of a
core with 32 registers of 64 bytes, in cycles. One model serves all instruction sets, whose variants
in a file share schedules and packed weights:

- A product of registers or a load takes ``SLOT``. For every four bytes of the window, a tile of p
  outputs by b blocks of 16 channels loads b weights and p values and makes p · b products; but a
  sum waits ``LATENCY`` for the one before it.
- A tile is begun and stored in ``TILE`` + ``STORE`` · p · b. A loop over the window adds ``ROW``
  for each row (or column, where these are no neighbours) and ``TURN`` for each turn.
- Neighbouring outputs of a row whose windows overlap load a value once for all of them, in panels
  of one block, where loads would be half of the work.
- A panel of a stripe is a ``CALL``.
- Every panel but the first reads the input again, every stripe but the first the weights: free from
  the first-level cache, and ``NEAR`` bytes a cycle from the second or ``FAR`` from beyond it where
  the bytes in between push them out. So are results that wait for steps, written and read.

Idle places count: the last tiles of a stripe are computed whole.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.shapes.schedule import Schedule, Tile
from tinyai.codegen.shapes.tiling import LANES, Tiling, cover, fits

# Candidates: blocks of the widest panel (more than four are for very few outputs), and the most
# outputs of a tile. Tall tiles load less; low ones overlap better with their neighbours, which no
# term here says.
WIDTHS = (1, 2, 3, 4, 6, 8)
HEIGHTS = (8, 5, 4)
# Outputs of a tile where windows overlap: as many times those of others.
TALLER = 2
# Candidates that the model thinks much slower than the cheapest are dropped.
WORTH = 1.25
# Outputs of a stripe in layers with several panels; and the results of a stripe that wait for
# steps, as shares of ``NEAR_BYTES``; and the most bytes of all results that may wait at once.
STRIPE = 192
SHARES = (0.5, 1.0)
WAITING_BYTES = 192 * 1024

# Cycles.
SLOT = 0.5
LATENCY = 4.0
TILE = 10.0
STORE = 6.0
ROW = 12.0
TURN = 1.0
CALL = 40.0
# Bytes a cycle, and the bytes that stay in a core's caches beside what else is there.
NEAR, FAR = 64.0, 16.0
NEAR_BYTES = 48 * 1024
FAR_BYTES = 512 * 1024
# Weights that are better read once, by whichever thread, than an input from its own caches.
HEAVY_BYTES = 1024 * 1024


def shares_panels(t: Tiling, threads: int) -> bool:
    """Whether threads share the panels, each with all outputs: where these are few, or where no
    cache holds the weights and the panels can be dealt out evenly. Otherwise a thread finds most of
    its input where it wrote it itself, in its own caches."""
    tiles = t.schedule.panels * t.g.groups
    if threads == 1 or len(tiles) < threads:
        return False
    if t.schedule.by_panels is not None:
        return t.schedule.by_panels
    shares = [0.0] * threads
    for number, tile in enumerate(tiles):
        shares[number % threads] += _panel_cycles(t, tile, t.outputs)
    even = max(shares) <= 1.1 * sum(shares) / threads
    heavy = t.k * t.channels * t.g.groups > HEAVY_BYTES
    return t.outputs < 12 * threads or (heavy and even)


def cost(t: Tiling, *, waiting: int, threads: int) -> float:
    """Cost of an image by the model above; of one thread's share where there are several. Results
    of ``waiting`` bytes each, or none, wait for steps."""
    panels, stripe = t.schedule.panels, t.schedule.stripe
    by_panels = shares_panels(t, threads)
    outputs = t.outputs if by_panels else -(-t.outputs // threads)
    stripes = -(-outputs // stripe)
    work = sum(
        number * (outputs // stripe * _panel_cycles(t, tile, stripe))
        + (number * _panel_cycles(t, tile, outputs % stripe) if outputs % stripe else 0)
        for tile, number in Counter(panels).items()
    )
    image, weights = t.g.h * t.g.w * t.g.group_in, t.k * t.channels
    work += CALL * len(panels) * stripes
    share = outputs / t.outputs
    written = min(stripe, outputs) * t.g.oc
    held = image * share / stripes
    work += (len(panels) - 1) * image * share * _fetch(held, held + written)
    work += (stripes - 1) * weights * _fetch(weights, weights)
    results = waiting * outputs * t.channels
    work += 2 * results * _fetch(results / stripes, results / stripes)
    return work * t.g.groups / (threads if by_panels else 1)


def _panel_cycles(t: Tiling, tile: Tile, outputs: int) -> float:
    """Cycles of one panel for so many outputs."""
    if t.overlap(tile):
        rows, rest = divmod(outputs, t.g.ow)
        tiles = rows * -(-t.g.ow // tile.outputs) + -(-rest // tile.outputs)
        return tiles * _tile_cycles(t, tile)
    first, others = cover(outputs, tile.outputs)
    if not others:
        return -(-outputs // tile.outputs) * _tile_cycles(t, tile)
    less = Tile(tile.outputs - 1, tile.channels)
    rest = (outputs - first) // less.outputs
    return first // tile.outputs * _tile_cycles(t, tile) + rest * _tile_cycles(t, less)


def _tile_cycles(t: Tiling, tile: Tile) -> float:
    blocks, overlap = tile.channels // LANES, t.overlap(tile)
    columns = overlap[0] if overlap else 1
    steps = t.k // 4 * max(LATENCY, SLOT * _slots(tile, columns))
    rows = t.g.window.kernel[0] * t.columns
    turns = rows * (t.bytes // 4 // (columns if overlap else t.turn(blocks)))
    loops = 0.0 if t.written_out(tile) else ROW * rows + TURN * turns
    return TILE + steps + loops + STORE * tile.outputs * blocks


def _fetch(again: float, between: float) -> float:
    """Cycles for a byte of ``again`` that is read once more after so many bytes ``between``."""
    if between > FAR_BYTES:
        return 1 / FAR
    return 1 / NEAR if again > NEAR_BYTES else 0.0


def split(blocks: int, widest: int) -> tuple[int, ...]:
    """Blocks of a layer as few panels of at most ``widest``, as even as can be: what a panel costs
    more when it is narrower grows with every block that it lacks."""
    number = -(-blocks // widest)
    return tuple((blocks + number - 1 - i) // number for i in range(number))


def _slots(tile: Tile, overlapping: int) -> float:
    """Products and loads of a tile for four bytes of the window, of which so many columns overlap
    with those of neighbouring outputs; one where none do."""
    blocks = tile.channels // LANES
    values = (tile.outputs + overlapping - 1) / overlapping
    return tile.outputs * blocks + values + blocks


@functools.cache
def schedules(g: Geometry, *, waiting: int, threads: int) -> tuple[Schedule, ...]:
    """Schedules worth a try, the cheapest first by the cost model."""
    found = dict.fromkeys(_schedules(g, waiting=waiting))
    cycles = {each: cost(Tiling(g, each), waiting=waiting, threads=threads) for each in found}
    bound = WORTH * min(cycles.values())
    return tuple(sorted((s for s in found if cycles[s] <= bound), key=cycles.__getitem__))


def _schedules(g: Geometry, *, waiting: int) -> Iterator[Schedule]:
    """Panels of every width by tiles of every height, stripes, with and without a loop."""
    blocks = -(-g.group_out // LANES)
    for widths in dict.fromkeys(split(blocks, widest) for widest in WIDTHS):
        for most in HEIGHTS:
            best = {width: _best_tile(g, width, most) for width in set(widths)}
            tiles = tuple(best[width] for width in widths)
            for stripe in _stripes(g, tiles, waiting=waiting):
                loop = Schedule(tiles, stripe, unrolled=False)
                yield loop
                if Tiling(g, loop).may_be_written_out:
                    yield replace(loop, unrolled=True)


def _best_tile(g: Geometry, width: int, most: int) -> Tile:
    """The cheapest tile of so many blocks by at most so many outputs; of equals the tallest."""
    whole = Tiling(g, Schedule((), g.oh * g.ow, unrolled=False))
    heights = range(min(TALLER * most, whole.outputs), 0, -1)
    tiles = [Tile(outputs, LANES * width) for outputs in heights]
    tiles = [tile for tile in tiles if tile.outputs <= most or whole.overlap(tile)]
    return min(filter(fits, tiles), key=lambda tile: _panel_cycles(whole, tile, whole.outputs))


def _stripes(g: Geometry, tiles: tuple[Tile, ...], *, waiting: int) -> Iterator[int]:
    outputs = g.oh * g.ow
    if waiting:
        row = waiting * sum(tile.channels for tile in tiles)
        whole = Tiling(g, Schedule(tiles, outputs, unrolled=False))
        several = g.ow if any(map(whole.overlap, tiles)) else 24
        for share in SHARES:
            number = int(share * NEAR_BYTES) // row // several
            yield min(outputs, several * max(1, number))
        if g.k * g.group_out > FAR_BYTES and row * outputs <= WAITING_BYTES:
            yield outputs  # weights that no cache holds are read once
    else:
        yield outputs
        if len(tiles) > 1:
            yield min(STRIPE, outputs)
