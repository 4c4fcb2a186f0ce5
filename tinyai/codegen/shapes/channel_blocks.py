"""Depthwise convolutions in blocks of 64 channels, whose bytes are interleaved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyai.codegen.shapes.geometry import Geometry
from tinyai.ir import Array
from tinyai.ops.window import Window

# Channels of a block, and rows of a window that are interleaved.
LANES, ROWS = 64, 4
# Channels that are moved as one where pixels are left out.
WORD = 4
# Lane l of register j holds channel ORDER[j, l] of its 64.
ORDER = np.array([[16 * (lane // 4) + 4 * j + lane % 4 for lane in range(16)] for j in range(4)])


@dataclass(frozen=True)
class ChannelBlocks:
    """How a depthwise convolution is cut up, for microkernels that fill the lanes with neighbouring
    outputs where the channels are fewer than ``fewest``, or than ``fewest_of_stride_2`` where these
    see every other pixel."""

    g: Geometry
    fewest: int = LANES
    fewest_of_stride_2: int = 0

    @property
    def repeats(self) -> bool:
        """Whether the numbers of the channels are stored as often as they fill the lanes."""
        stride = self.g.window.strides[1]
        near = stride == 1 or (stride == 2 and self.g.c % WORD == 0)
        return near and self.g.c < LANES and LANES % self.g.c == 0

    @property
    def flat(self) -> bool:
        """Whether neighbouring outputs fill the lanes."""
        stride = self.g.window.strides[1]
        return self.repeats and self.g.c < (self.fewest, self.fewest_of_stride_2)[stride - 1]

    @property
    def skipped(self) -> int:
        """The channels of a pixel where these see every other one; else 0."""
        return self.g.c if self.flat and self.g.window.strides[1] == 2 else 0

    @property
    def blocks(self) -> int:
        """Blocks of 64 channels."""
        return -(-self.g.c // LANES)

    @property
    def width(self) -> int:
        """Outputs of a row, of 64 lanes."""
        return -(-self.g.ow * self.g.c // LANES) if self.flat else self.g.ow

    @property
    def groups(self) -> int:
        """Groups of four rows of the window."""
        return -(-self.g.window.kernel[0] // ROWS)

    @property
    def window(self) -> Window:
        """The window along a row: how far rows are apart, microkernels are told."""
        of = self.g.window
        return Window(of.kernel, (1, of.strides[1]), (1, of.dilation[1]))

    def said(self) -> list[str]:
        """The window, as parts of a microkernel's name."""
        window = self.g.window
        dilation = [f"d{window.dilation[1]}"] if window.dilation[1] > 1 else []
        skipped = [f"c{self.skipped}"] if self.skipped else []
        return ["x".join(map(str, window.kernel)), f"s{window.strides[1]}", *dilation, *skipped]

    def by_blocks(self, threads: int, *, stepped: bool) -> bool:
        """Whether threads share the blocks of channels, because the rows would leave more to one
        of them. Raw sums meet their epilogue row by row."""

        def most(count: int) -> float:
            return -(-count // threads) / count

        return threads > 1 and not stepped and most(self.blocks) < most(self.g.oh)

    @property
    def reaches_behind(self) -> bool:
        """Whether 64 bytes from the last pixel on reach beyond the input."""
        return self.g.c % LANES != 0

    def lanes(self, values: Array) -> Array:
        """[…, channels] -> […, blocks, 4, 16] in the order of the lanes; zeros fill up."""
        fill = LANES // self.g.c if self.repeats else 1
        values = np.tile(values, (*(1,) * (values.ndim - 1), fill))
        ends = [(0, 0)] * (values.ndim - 1) + [(0, self.blocks * LANES - values.shape[-1])]
        values = np.pad(values, ends)
        return values.reshape(*values.shape[:-1], self.blocks, LANES)[..., ORDER]
