"""What ways to cut convolutions and dense layers into tiles there are, and what each costs.

A *schedule* cuts the channels of a layer into panels, says how many outputs meet a panel at a time,
how many outputs are computed for all panels before the next ones, and whether the products of a
window are written out. ``schedules`` lists those worth a try, the cheapest first by a model of the
``Machine``, in cycles:

- For every step of the window, a tile of p registers of outputs by b blocks of channels loads b
  weights and p values and makes p · b products; but a sum waits for the one before it.
- Neighbouring outputs of a row whose windows overlap load a value once for all of them, in panels
  of one block, where loads would be half of the work.
- Every panel but the first reads the input again, every stripe but the first the weights: free from
  the first-level cache, slower where the bytes in between push them out. So are results that wait
  for steps, written and read.

Idle places count: the last tiles of a stripe are computed whole.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.shapes.machine import Machine
from tinyai.codegen.shapes.schedule import Schedule, Tile
from tinyai.codegen.shapes.tiling import Tiling, cover

# Outputs of a tile where windows overlap: as many times those of others.
TALLER = 2
# Candidates that the model thinks much slower than the cheapest are dropped.
WORTH = 1.25
# Outputs of a stripe in layers with several panels; and the results of a stripe that wait for
# steps, as shares of what stays near.
STRIPE = 192
# So many times that many are one stripe: a short second one would read all weights for few outputs.
WHOLE = 1.25
SHARES = (0.5, 1.0)


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
    heavy = t.k * t.channels * t.g.groups > t.machine.heavy_bytes
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
    work += t.machine.call * len(panels) * stripes
    share = outputs / t.outputs
    written = min(stripe, outputs) * t.g.oc
    held = image * share / stripes
    work += (len(panels) - 1) * image * share * _fetch(t.machine, held, held + written)
    work += (stripes - 1) * weights * _fetch(t.machine, weights, weights)
    results = waiting * outputs * t.channels
    work += 2 * results * _fetch(t.machine, results / stripes, results / stripes)
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
    m, overlap = t.machine, t.overlap(tile)
    blocks, columns = m.blocks(tile), overlap[0] if overlap else 1
    outputs = m.sums(tile)
    # Products and loads of a step: values of windows that overlap are loaded once.
    slots = outputs * blocks + (outputs + columns - 1) / columns + blocks
    steps = t.k // m.depth * max(m.latency, m.slot * slots)
    rows = t.g.window.kernel[0] * t.columns
    turns = rows * (t.bytes // 4 // (columns if overlap else t.turn(blocks)))
    loops = 0.0 if t.written_out(tile) else m.row * rows + m.turn * turns
    return m.tile + steps + loops + m.store * tile.outputs * blocks


def _fetch(machine: Machine, again: float, between: float) -> float:
    """Cycles for a byte of ``again`` that is read once more after so many bytes ``between``."""
    if between > machine.far_bytes:
        return 1 / machine.far
    return 1 / machine.near if again > machine.near_bytes else 0.0


def split(blocks: int, widest: int) -> tuple[int, ...]:
    """Blocks of a layer as few panels of at most ``widest``, as even as can be: what a panel costs
    more when it is narrower grows with every block that it lacks."""
    number = -(-blocks // widest)
    return tuple((blocks + number - 1 - i) // number for i in range(number))


@functools.cache
def schedules(g: Geometry, machine: Machine, *, waiting: int, threads: int) -> tuple[Schedule, ...]:
    """Schedules worth a try, the cheapest first by the cost model."""
    found = dict.fromkeys(_schedules(g, machine, waiting=waiting))
    tilings = {each: Tiling(g, each, machine) for each in found}
    cycles = {each: cost(t, waiting=waiting, threads=threads) for each, t in tilings.items()}
    bound = WORTH * min(cycles.values())
    return tuple(sorted((s for s in found if cycles[s] <= bound), key=cycles.__getitem__))


def _schedules(g: Geometry, machine: Machine, *, waiting: int) -> Iterator[Schedule]:
    """Panels of every width by tiles of every height, stripes, with and without a loop."""
    blocks = -(-g.group_out // machine.lanes)
    for widths in dict.fromkeys(split(blocks, widest) for widest in machine.widths):
        for most in machine.heights:
            best = {width: _best_tile(g, machine, width, most) for width in set(widths)}
            tiles = tuple(best[width] for width in widths)
            for stripe in _stripes(g, machine, tiles, waiting=waiting):
                loop = Schedule(tiles, stripe, unrolled=False)
                yield loop
                if Tiling(g, loop, machine).may_be_written_out:
                    yield replace(loop, unrolled=True)


def _best_tile(g: Geometry, machine: Machine, width: int, most: int) -> Tile:
    """The cheapest tile of so many blocks by at most so many outputs; of equals the tallest."""
    whole = Tiling(g, Schedule((), g.oh * g.ow, unrolled=False), machine)
    heights = range(min(TALLER * most, whole.outputs), 0, -1)
    tiles = [Tile(outputs, machine.lanes * width) for outputs in heights]
    tiles = [tile for tile in tiles if tile.outputs <= most or whole.overlap(tile)]
    return min(
        filter(machine.fits, tiles), key=lambda tile: _panel_cycles(whole, tile, whole.outputs)
    )


def _stripes(
    g: Geometry, machine: Machine, tiles: tuple[Tile, ...], *, waiting: int
) -> Iterator[int]:
    outputs = g.oh * g.ow
    if waiting:
        row = waiting * sum(tile.channels for tile in tiles)
        whole = Tiling(g, Schedule(tiles, outputs, unrolled=False), machine)
        several = g.ow if any(map(whole.overlap, tiles)) else 24
        for share in SHARES:
            number = int(share * machine.near_bytes) // row // several
            yield min(outputs, several * max(1, number))
        if g.k * g.group_out > machine.far_bytes and row * outputs <= machine.waiting_bytes:
            yield outputs  # weights that no cache holds are read once
    else:
        yield outputs
        if len(tiles) > 1 and outputs > WHOLE * STRIPE:
            yield STRIPE
