"""Kernels of conv2d and dense in tiles whose weights are in a form of one instruction set's own."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tinyai.codegen.ctree import Code
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import Microkernels, Packed
from tinyai.codegen.kernels.tile import Tiled
from tinyai.codegen.kernels.tiling import split
from tinyai.codegen.lowered import Kernel, Lowered
from tinyai.codegen.shapes.schedule import Schedule, Tile
from tinyai.codegen.shapes.tiling import Tiling
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Array, Node
from tinyai.ops import Conv2d, Dense

# Bytes of weights of a panel, at most.
NEAR = 256 * 1024


@dataclass(frozen=True)
class OwnTiled(Tiled):
    """A convolution or dense layer in tiles, of weights that are ``packed``."""

    packed: Packed

    @classmethod
    def of(cls, graph: Lowered, node: Node, micro: Microkernels) -> OwnTiled | str:
        base = Tiled.of(graph, node, micro)
        if isinstance(base, str):
            return base
        if base.numbers != (1,):
            return "few channels, which several outputs share"
        assert micro.own
        taps = base.taps(graph, base.cut(Schedule((), 1, unrolled=False), (1,)))
        packed = micro.own.packed(taps.reshape(-1, taps[0, 0].size))
        if isinstance(packed, str):
            return packed
        own = replace(micro, tile=packed.tile)
        return cls(node, own, base.g, base.channels, packed)

    def cut(self, schedule: Schedule, numbers: tuple[int, ...]) -> Tiling:
        return replace(super().cut(schedule, numbers), own_bytes=self.packed.block_bytes)

    def candidates(self, graph: Lowered) -> Iterator[Schedule]:
        """Those of other tiles, in the widest panels whose weights stay in a core's caches: all
        outputs are copied for each panel."""
        lanes = self.machine.lanes
        widest = min(max(self.machine.widths), max(1, NEAR // self.packed.block_bytes))
        widths = split(-(-self.g.group_out // lanes), widest)
        panels = tuple(Tile(1, lanes * blocks) for blocks in widths)
        wide = (replace(each, panels=panels, unrolled=False) for each in super().candidates(graph))
        for schedule in dict.fromkeys(wide):
            # Threads that share narrow panels may have too few of these.
            if self.schedule_rejection(graph, schedule) is None:
                yield schedule

    def weights(self, graph: Lowered) -> Array:
        """The panels of each group, each block in as many bytes as the longest takes."""
        t = self.tiling(graph)
        lanes, blocks = t.machine.lanes, t.channels // t.machine.lanes
        parts = [
            self.packed.panel(group * blocks + panel.channel // lanes, panel.blocks)
            for group in range(t.g.groups)
            for panel in t.panels
        ]
        return np.concatenate(parts)

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        epilogue.told.append(self.packed.told)
        return super().code(graph, epilogue)


KERNELS = tuple(
    Kernel(
        name=f"{op.name}_{micro.own.name}_{micro.name}",
        op=op,
        isa=micro.name,
        prepare=functools.partial(OwnTiled.of, micro=micro),
        # The row of other tiles says why there are none.
        kind=lambda graph, node: False,
        split=True,
    )
    for micro in MICROKERNELS
    if micro.own
    for op in (Conv2d, Dense)
)
