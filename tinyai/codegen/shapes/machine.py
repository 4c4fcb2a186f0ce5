"""A core, as kernels that cut layers into tiles see it."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.shapes.schedule import Tile


@dataclass(frozen=True)
class Machine:
    """What a core has for sums of products, and what they cost there. The defaults are a core with
    32 vector registers of 64 bytes: variants of a file whose machines are equal share schedules and
    packed weights.

    A register has sums of ``rows`` outputs by ``lanes`` channels, a *block* of them: one row in a
    vector, more in a tile of two dimensions. An instruction adds to them the products of ``depth``
    bytes of each output's window by as many weights of each channel.

    - ``registers``: for sums, weights and a value of the input. Of 32, two are left for others.
    - ``words``: of four bytes of a channel's weights that are neighbours in a panel.
    - ``widths``: blocks of the widest panel, as candidates; more than four are for very few
      outputs. ``heights``: the most outputs of a tile. Tall tiles load less; low ones overlap
      better with their neighbours, which no cost here says.
    - ``columns``: the most of a window that overlaps with its neighbours; 0 where values in
      registers are not shared. A statement of assembly takes 30 operands.
    - ``unrolled``: windows of at most so many words are written out, and in panels of at most
      ``narrow`` blocks those of ``unrolled_narrow``: narrow panels gain most, and what is written
      out more costs the compiler time.
    - ``turn_words``, ``turn_blocks``: words in a turn of the loop over a window's row, and blocks
      of weights that it reads, at most. A load of a turn finds its next weights so many blocks on;
      with larger strides the hardware fetches nothing ahead (two thirds of the speed, where the
      weights lie in the second-level cache).

    Costs, in cycles:

    - A product of registers or a load takes a ``slot``, and a sum waits ``latency`` for the one
      before it.
    - A tile is begun in ``tile`` and stored in ``store`` for each block of an output. A loop over
      the window adds ``row`` for each row (or column, where these are no neighbours) and ``turn``
      for each turn. A panel of a stripe is a ``call``.
    - ``near`` and ``far`` bytes a cycle come from beyond the first-level and the second-level
      cache, of which ``near_bytes`` and ``far_bytes`` stay beside what else is there.

    Results that wait for steps are at most ``waiting_bytes``. Weights of more than ``heavy_bytes``
    are better read once, by whichever thread, than an input from its own caches. While a panel is
    computed, the next one is fetched, and ``ahead`` bytes after it as far as there is time. With
    ``macs`` multiply-accumulates a cycle, and ``depthwise_macs`` of a depthwise layer, work is
    shared.
    """

    registers: int = 30
    lanes: int = 16
    rows: int = 1
    depth: int = 4
    words: int = 1
    widths: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    heights: tuple[int, ...] = (8, 5, 4)
    columns: int = 7
    unrolled: int = 16
    narrow: int = 2
    unrolled_narrow: int = 48
    turn_words: int = 4
    turn_blocks: int = 8
    slot: float = 0.5
    latency: float = 4.0
    tile: float = 10.0
    store: float = 6.0
    row: float = 12.0
    turn: float = 1.0
    call: float = 40.0
    near: float = 64.0
    far: float = 16.0
    near_bytes: int = 48 * 1024
    far_bytes: int = 512 * 1024
    waiting_bytes: int = 192 * 1024
    heavy_bytes: int = 1024 * 1024
    ahead: int = 512 * 1024
    macs: int = 64
    depthwise_macs: int = 12

    def blocks(self, tile: Tile) -> int:
        """Of the channels of a tile."""
        return tile.channels // self.lanes

    def sums(self, tile: Tile) -> int:
        """Registers of a block's sums."""
        return -(-tile.outputs // self.rows)

    def fits(self, tile: Tile) -> bool:
        """Whether a tile is whole blocks whose sums, and what they are made of, fit the
        registers."""
        blocks, rest = divmod(tile.channels, self.lanes)
        whole = rest == 0 and min(blocks, tile.outputs) >= 1
        return whole and (self.sums(tile) + 1) * blocks < self.registers


# That of the microkernels which say nothing of theirs.
VECTORS = Machine()
