"""The loops of a depthwise convolution: blocks of 64 channels, rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinyai.codegen.ctree import Assign, CallStatement, Code, Declare, For, If
from tinyai.codegen.helpers import DEPTHWISE_ARGS
from tinyai.codegen.kernels.channels import Channels
from tinyai.codegen.kernels.image import Images
from tinyai.codegen.kernels.work_stealing import shared
from tinyai.codegen.shapes.channel_blocks import LANES, ChannelBlocks
from tinyai.codegen.steps import Epilogue

ALL = "~0ULL"


@dataclass(frozen=True)
class DepthwiseLoops:
    """A depthwise layer whose channel blocks are calls of microkernels.

    - ``microkernel`` and ``last_microkernel``: for whole blocks of channels (None where there are
      none), and for the last one, whose lanes that count are ``mask``, at the end of a row
      ``last_mask``.
    - ``arrays``: names of the numbers of the channels that there are.
    - ``rest``: takes the results of pixel ``x`` in ``acc`` through the steps after the
      microkernels; None where there are none.
    - ``by_blocks``: threads share blocks of channels, otherwise rows; in so many ``pieces``.
    """

    s: ChannelBlocks
    images: Images
    channels: Channels
    microkernel: str | None
    last_microkernel: str
    mask: str
    last_mask: str
    arrays: Mapping[str, str]
    rest: Code
    by_blocks: bool
    pieces: int
    threads: int

    def code(self, epilogue: Epilogue) -> Code:
        epilogue.need(DEPTHWISE_ARGS)
        g, s = self.s.g, self.s
        rows = self._rows() if self.rest else self._blocks()
        if self.threads > 1:
            whole = self.by_blocks or self.rest
            mine = None if whole else (Assign("p.first", "begin"), Assign("p.last", "end"))
            count = s.blocks if self.by_blocks else g.oh
            rows = shared(count, self.pieces, epilogue, mine, rows)
        return [
            Declare("tinyai_depthwise_args", "p"),
            [Assign(f"p.{name}", value) for name, value in self._layer().items()],
            self._where(),
            For("n", 0, g.n, self.images.opened(epilogue), rows),
        ]

    def _layer(self) -> dict[str, str | int]:
        """What is the same for all blocks."""
        g, s, row = self.s.g, self.s, self.images.source.row
        return {
            "row_stride": g.window.strides[0] * row,
            "row_step": g.window.dilation[0] * row,
            "in_row": row,
            "channels": g.c,
            "flip": self.images.signs.flip,
            "width": s.width,
            "mask": self.mask if s.blocks == 1 else ALL,
            "last_mask": self.last_mask if s.blocks == 1 else ALL,
            **self.channels.layer(self.arrays),
        }

    def _where(self) -> Code:
        """Where the results go: to the output, or a row of them to ``acc``, where they wait."""
        s, stored, target = self.s, self.channels.rest.start, self.images.target
        if not self.rest:
            return (
                Assign("p.out_row", target.row),
                Assign("p.out_column", LANES if s.flat else target.pixel),
                Assign("p.first", 0),
                Assign("p.last", s.g.oh),
            )
        share = s.width * s.blocks * LANES if self.threads > 1 else 0
        return (
            self.channels.waiting(self.images.source.copy_bytes, share),
            Assign("p.out_row", 0),
            Assign("p.out_column", stored.bytes * (LANES if s.flat else LANES * s.blocks)),
        )

    def _rows(self) -> Code:
        """Row by row, each with the steps that are left."""
        ends = ("begin", "end") if self.threads > 1 else (0, self.s.g.oh)
        row = Assign("p.first", "y"), Assign("p.last", "y + 1")
        return For("y", *ends, *row, self._blocks(), For("x", 0, self.s.g.ow, self.rest))

    def _blocks(self) -> Code:
        target = self.images.target
        taps = self.s.groups * self.s.g.window.kernel[1] * LANES * 4
        out = f"(char *)out + n * {target.image} + {target.first} + {LANES} * block"
        at = f"{LANES} * block"
        return For(
            *("block", *(("begin", "end") if self.by_blocks else (0, self.s.blocks))),
            Assign("p.in", f"image + {at}"),
            Assign("p.weights", f"in1 + {taps} * block"),
            self.channels.numbers(self.arrays, at),
            Assign("p.out", f"(char *)(acc + {at})" if self.rest else out),
            self._call(),
        )

    def _call(self) -> Code:
        last = CallStatement(self.last_microkernel, "&p")
        if self.microkernel is None or self.s.blocks == 1:
            return last
        masked = Assign("p.mask", self.mask), Assign("p.last_mask", self.last_mask), last
        whole = (
            Assign("p.mask", ALL),
            Assign("p.last_mask", ALL),
            CallStatement(self.microkernel, "&p"),
        )
        return If(f"block == {self.s.blocks - 1}", *masked, otherwise=whole)
