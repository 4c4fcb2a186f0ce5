"""How convolutions and dense layers are cut into tiles, and what that costs.

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
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tinyai.codegen.kernels.geometry import Geometry
from tinyai.codegen.lowered import Schedule, Tile

LANES = 16
# Of 32 registers of 64 bytes: sums, weights, a value of the input; two are left for other things.
REGISTERS = 30
# Candidates: blocks of the widest panel (more than four are for very few outputs), and the most
# outputs of a tile. Tall tiles load less; low ones overlap better with their neighbours, which no
# term here says.
WIDTHS = (1, 2, 3, 4, 6, 8)
HEIGHTS = (8, 5, 4)
# Where windows overlap: as many times the outputs, and the most columns of a window (a statement of
# assembly takes 30 operands).
TALLER, COLUMNS = 2, 7
# Candidates that the model thinks much slower than the cheapest are dropped.
WORTH = 1.25
# Outputs of a stripe in layers with several panels; and the results of a stripe that wait for
# steps, as shares of ``NEAR_BYTES``; and the most bytes of all results that may wait at once.
STRIPE = 192
SHARES = (0.5, 1.0)
WAITING_BYTES = 192 * 1024
# Windows of at most so many words are written out, and in panels of at most so many blocks longer
# ones too: narrow panels gain most, and what is written out more costs the compiler time.
UNROLLED, NARROW, UNROLLED_NARROW = 16, 2, 48
# Words in a turn of the loop over a window's row, and blocks of weights that it reads, at most. A
# load of a turn finds its next weights so many blocks on; with larger strides the hardware fetches
# nothing ahead (two thirds of the speed, where the weights lie in the second-level cache).
TURN_WORDS, TURN_BLOCKS = 4, 8

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


@dataclass(frozen=True)
class WeightPanel:
    """``blocks`` of 16 channels from ``channel`` on, by ``outputs`` at a time."""

    channel: int
    blocks: int
    outputs: int


@dataclass(frozen=True)
class Tiling:
    """A convolution or dense layer that is cut up."""

    g: Geometry
    schedule: Schedule

    @property
    def joined(self) -> bool:
        """Whether the bytes of all columns of a window's row are neighbours."""
        return self.g.groups == 1 and self.g.window.dilation[1] == 1

    @property
    def columns(self) -> int:
        return 1 if self.joined else self.g.window.kernel[1]

    @property
    def bytes(self) -> int:
        """Bytes of a step's column, whole words."""
        width = self.g.window.kernel[1] if self.joined else 1
        return -(-width * self.g.group_in // 4) * 4

    @property
    def k(self) -> int:
        """Bytes of a packed window."""
        return self.g.window.kernel[0] * self.columns * self.bytes

    @property
    def reaches_behind(self) -> bool:
        """Whether the last word of a window may reach beyond the input."""
        width = self.g.window.kernel[1] if self.joined else 1
        return width * self.g.group_in % 4 != 0

    def overlap(self, tile: Tile) -> tuple[int, int] | None:
        """Columns of a window and bytes of a column, where the outputs of such a tile are computed
        from windows that overlap: neighbours in one row."""
        columns, bytes = self.g.window.kernel[1], self.g.group_in
        whole = self.joined and self.g.window.strides[1] == 1 and bytes % 4 == 0
        near = 1 < columns <= COLUMNS and 1 < tile.outputs <= self.g.ow
        return (columns, bytes) if whole and near and tile.channels == LANES else None

    def written_out(self, tile: Tile) -> tuple[int, int] | None:
        """Rows and words of a window that panels of such tiles write out."""
        if not self.schedule.unrolled or not self._is_short(tile):
            return None
        return self.g.window.kernel[0], self.bytes // 4

    @property
    def may_be_written_out(self) -> bool:
        """Whether the window is short for any of the panels, and has no loop over columns."""
        return self.columns == 1 and any(map(self._is_short, self.schedule.panels))

    def _is_short(self, tile: Tile) -> bool:
        most = UNROLLED_NARROW if tile.channels <= NARROW * LANES else UNROLLED
        return self.k // 4 <= most and not self.overlap(tile)

    def turn(self, blocks: int) -> int:
        """Words in one turn of the loop over the words of a window's row, for so many blocks."""
        return math.gcd(self.bytes // 4, min(TURN_WORDS, TURN_BLOCKS // blocks))

    @property
    def outputs(self) -> int:
        return self.g.oh * self.g.ow

    @property
    def panels(self) -> tuple[WeightPanel, ...]:
        """The panels of a group."""
        tiles = self.schedule.panels
        firsts = np.cumsum([0, *(tile.channels for tile in tiles)])[:-1]
        return tuple(
            WeightPanel(int(first), tile.channels // LANES, tile.outputs)
            for first, tile in zip(firsts, tiles, strict=True)
        )

    @property
    def channels(self) -> int:
        """Channels of a group, whole blocks."""
        return sum(tile.channels for tile in self.schedule.panels)

    def waiting_bytes(self, each: int) -> int:
        """What a stripe takes whose results of ``each`` so many bytes wait for steps."""
        return each * self.schedule.stripe * self.channels

    def by_panels(self, threads: int) -> bool:
        """Whether threads share the panels, each with all outputs: where these are few, or where
        no cache holds the weights and the panels can be dealt out evenly. Otherwise a thread finds
        most of its input where it wrote it itself, in its own caches."""
        tiles = self.schedule.panels * self.g.groups
        if threads == 1 or len(tiles) < threads:
            return False
        if self.schedule.by_panels is not None:
            return self.schedule.by_panels
        shares = [0.0] * threads
        for number, tile in enumerate(tiles):
            shares[number % threads] += self._panel_cycles(tile, self.outputs)
        even = max(shares) <= 1.1 * sum(shares) / threads
        heavy = self.k * self.channels * self.g.groups > HEAVY_BYTES
        return self.outputs < 12 * threads or (heavy and even)

    def rejection(self) -> str | None:
        """Why the schedule does not fit the layer, or None."""
        blocks = -(-self.g.group_out // LANES)
        for tile in self.schedule.panels:
            if tile.channels < LANES or tile.channels % LANES or not _fits(tile):
                return f"a tile {tile}, where {LANES} channels a block by outputs fit registers"
        if self.channels != LANES * blocks:
            return f"panels of {self.channels} channels for {LANES * blocks}"
        if not 1 <= self.schedule.stripe <= self.outputs:
            return f"stripes of {self.schedule.stripe} outputs of {self.outputs}"
        if self.schedule.unrolled and not self.may_be_written_out:
            return f"a window of {self.k // 4} words written out, or one with a loop over columns"
        return None

    def cycles(self, *, waiting: int, threads: int) -> float:
        """Cost of an image by the model above; of one thread's share where there are several.
        Results of ``waiting`` bytes each, or none, wait for steps."""
        panels, stripe = self.schedule.panels, self.schedule.stripe
        by_panels = self.by_panels(threads)
        outputs = self.outputs if by_panels else -(-self.outputs // threads)
        stripes = -(-outputs // stripe)
        work = sum(
            number * (outputs // stripe * self._panel_cycles(tile, stripe))
            + (number * self._panel_cycles(tile, outputs % stripe) if outputs % stripe else 0)
            for tile, number in Counter(panels).items()
        )
        image, weights = self.g.h * self.g.w * self.g.group_in, self.k * self.channels
        work += CALL * len(panels) * stripes
        share = outputs / self.outputs
        written = min(stripe, outputs) * self.g.oc
        held = image * share / stripes
        work += (len(panels) - 1) * image * share * _fetch(held, held + written)
        work += (stripes - 1) * weights * _fetch(weights, weights)
        results = waiting * outputs * self.channels
        work += 2 * results * _fetch(results / stripes, results / stripes)
        return work * self.g.groups / (threads if by_panels else 1)

    def _panel_cycles(self, tile: Tile, outputs: int) -> float:
        """Cycles of one panel for so many outputs."""
        if self.overlap(tile):
            rows, rest = divmod(outputs, self.g.ow)
            tiles = rows * -(-self.g.ow // tile.outputs) + -(-rest // tile.outputs)
            return tiles * self._tile_cycles(tile)
        first, others = cover(outputs, tile.outputs)
        if not others:
            return -(-outputs // tile.outputs) * self._tile_cycles(tile)
        less = Tile(tile.outputs - 1, tile.channels)
        rest = (outputs - first) // less.outputs
        return first // tile.outputs * self._tile_cycles(tile) + rest * self._tile_cycles(less)

    def _tile_cycles(self, tile: Tile) -> float:
        blocks, overlap = tile.channels // LANES, self.overlap(tile)
        columns = overlap[0] if overlap else 1
        steps = self.k // 4 * max(LATENCY, SLOT * _slots(tile, columns))
        rows = self.g.window.kernel[0] * self.columns
        turns = rows * (self.bytes // 4 // (columns if overlap else self.turn(blocks)))
        loops = 0.0 if self.written_out(tile) else ROW * rows + TURN * turns
        return TILE + steps + loops + STORE * tile.outputs * blocks


def _fetch(again: float, between: float) -> float:
    """Cycles for a byte of ``again`` that is read once more after so many bytes ``between``."""
    if between > FAR_BYTES:
        return 1 / FAR
    return 1 / NEAR if again > NEAR_BYTES else 0.0


def cover(outputs: int, pixels: int) -> tuple[int, bool]:
    """``outputs`` as a · pixels + b · (pixels - 1), a as large as it can be: the outputs of the
    first kind, and whether the others are of the second kind (else the last tile has idle
    places)."""
    for a in range(outputs // pixels, -1, -1):
        if pixels > 1 and (outputs - a * pixels) % (pixels - 1) == 0:
            rest = outputs - a * pixels
            return a * pixels, rest > 0
    return outputs, False


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


def _fits(tile: Tile) -> bool:
    blocks = tile.channels // LANES
    return tile.outputs >= 1 and (tile.outputs + 1) * blocks < REGISTERS


@functools.cache
def schedules(g: Geometry, *, waiting: int, threads: int) -> tuple[Schedule, ...]:
    """Schedules worth a try, the cheapest first by the cost model."""
    found = dict.fromkeys(_schedules(g, waiting=waiting))
    cycles = {each: Tiling(g, each).cycles(waiting=waiting, threads=threads) for each in found}
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
    return min(filter(_fits, tiles), key=lambda tile: whole._panel_cycles(tile, whole.outputs))


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
