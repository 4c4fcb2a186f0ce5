"""Convolutions and dense layers that are cut into tiles: windows in bytes, weight panels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.shapes.machine import Machine
from tinyai.codegen.shapes.schedule import Schedule, Tile


@dataclass(frozen=True)
class WeightPanel:
    """``blocks`` of channels from ``channel`` on, by ``outputs`` at a time."""

    channel: int
    blocks: int
    outputs: int


@dataclass(frozen=True)
class Tiling:
    """A convolution or dense layer that is cut up for a machine. ``own_bytes``: of a block of
    channels, where weights are packed in a form of one instruction set's own."""

    g: Geometry
    schedule: Schedule
    machine: Machine
    own_bytes: int = 0

    @property
    def joined(self) -> bool:
        """Whether the bytes of all columns of a window's row are neighbours."""
        return self.g.groups == 1 and self.g.window.dilation[1] == 1

    @property
    def columns(self) -> int:
        return 1 if self.joined else self.g.window.kernel[1]

    @property
    def bytes(self) -> int:
        """Bytes of a step's column, as many as whole products take."""
        depth = self.machine.depth
        return -(-self._column // depth) * depth

    @property
    def _column(self) -> int:
        """Values of a step's column."""
        return (self.g.window.kernel[1] if self.joined else 1) * self.g.group_in

    @property
    def k(self) -> int:
        """Bytes of a packed window."""
        return self.g.window.kernel[0] * self.columns * self.bytes

    @property
    def block_bytes(self) -> int:
        """Of the packed weights of a block of channels."""
        return self.own_bytes or self.k * self.machine.lanes

    @property
    def reaches_behind(self) -> bool:
        """Whether the last product of a window may reach beyond the input."""
        return self._column % self.machine.depth != 0

    def overlap(self, tile: Tile) -> tuple[int, int] | None:
        """Columns of a window and bytes of a column, where the outputs of such a tile are computed
        from windows that overlap: neighbours in one row."""
        columns, bytes = self.g.window.kernel[1], self.g.group_in
        whole = self.joined and self.g.window.strides[1] == 1 and bytes % 4 == 0
        near = 1 < columns <= self.machine.columns and 1 < tile.outputs <= self.g.ow
        return (columns, bytes) if whole and near and tile.channels == self.machine.lanes else None

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
        machine = self.machine
        narrow = machine.blocks(tile) <= machine.narrow
        most = machine.unrolled_narrow if narrow else machine.unrolled
        return self.k // 4 <= most and not self.overlap(tile)

    def turn(self, blocks: int) -> int:
        """Words in one turn of the loop over the words of a window's row, for so many blocks."""
        return math.gcd(
            self.bytes // 4, min(self.machine.turn_words, self.machine.turn_blocks // blocks)
        )

    @property
    def outputs(self) -> int:
        return self.g.oh * self.g.ow

    @property
    def panels(self) -> tuple[WeightPanel, ...]:
        """The panels of a group."""
        tiles = self.schedule.panels
        firsts = np.cumsum([0, *(tile.channels for tile in tiles)])[:-1]
        return tuple(
            WeightPanel(int(first), self.machine.blocks(tile), tile.outputs)
            for first, tile in zip(firsts, tiles, strict=True)
        )

    @property
    def channels(self) -> int:
        """Channels of a group, whole blocks."""
        return sum(tile.channels for tile in self.schedule.panels)

    def waiting_bytes(self, each: int) -> int:
        """What a stripe takes whose results of ``each`` so many bytes wait for steps."""
        return each * self.schedule.stripe * self.channels

    def rejection(self) -> str | None:
        """Why the schedule does not fit the layer, or None."""
        lanes = self.machine.lanes
        channels = -(-self.g.group_out // lanes) * lanes
        for tile in self.schedule.panels:
            if not self.machine.fits(tile):
                return f"a tile {tile}, where {lanes} channels a block by outputs fit registers"
        if self.channels != channels:
            return f"panels of {self.channels} channels for {channels}"
        if not 1 <= self.schedule.stripe <= self.outputs:
            return f"stripes of {self.schedule.stripe} outputs of {self.outputs}"
        if self.schedule.unrolled and not self.may_be_written_out:
            return f"a window of {self.k // 4} words written out, or one with a loop over columns"
        return None


def cover(outputs: int, pixels: int) -> tuple[int, bool]:
    """``outputs`` as a · pixels + b · (pixels - 1), a as large as it can be: the outputs of the
    first kind, and whether the others are of the second kind (else the last tile has idle
    places)."""
    for a in range(outputs // pixels, -1, -1):
        if pixels > 1 and (outputs - a * pixels) % (pixels - 1) == 0:
            rest = outputs - a * pixels
            return a * pixels, rest > 0
    return outputs, False
