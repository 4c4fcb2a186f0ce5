"""Kernels of depthwise convolution that compute 64 channels at once.

Four rows of a column of the window are interleaved byte by byte, so that every 32-bit lane holds
the four taps of one channel: one instruction multiplies and adds them. A column that several
outputs see is interleaved once. Where the channels are few and their number divides 64,
neighbouring pixels of a row take the places of the missing channels.

The interleaving leaves channels in the order 16 (l / 4) + 4 j + l % 4 (lane l of register j), which
packing to bytes puts right; weights and numbers of the channels are stored in it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from tinyai.codegen.ctree import Code
from tinyai.codegen.index import Axis
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.isa.vectors import write_lanes
from tinyai.codegen.kernels.channels import Channels, no_bytes
from tinyai.codegen.kernels.depthwise_loops import DepthwiseLoops
from tinyai.codegen.kernels.image import Image, Images, Signs, image_in, image_of, takes_image
from tinyai.codegen.kernels.work_stealing import pieces
from tinyai.codegen.lowered import Kernel, Lowered, Prepared, result_at_strides
from tinyai.codegen.shapes.channel_blocks import LANES, ROWS, ChannelBlocks
from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.steps import Epilogue, write_scalar
from tinyai.ir import Array, DType, Node
from tinyai.ops import Conv2d

# Of few channels, or for the last ones: half a vector costs two thirds of the time.
HALF = 32


def is_depthwise(graph: Lowered, node: Node) -> bool:
    """Whether each channel is a group."""
    g = Geometry.of(graph, node)
    return g.group_in == g.group_out == 1 < g.groups


@dataclass(frozen=True)
class Depthwise(Prepared):
    """A depthwise convolution in blocks of 64 channels, by the microkernels of ``micro``."""

    micro: Microkernels
    s: ChannelBlocks
    channels: Channels

    @classmethod
    def of(cls, graph: Lowered, node: Node, micro: Microkernels) -> Depthwise | str:
        g = Geometry.of(graph, node)
        if rejection := no_bytes(g):
            return rejection
        if not is_depthwise(graph, node):
            return "channels that are not each a group"
        if node.inputs[1] not in graph.constants or g.weight is not DType.INT8:
            return "weights that are no int8 constant"
        if g.window.upsample != (1, 1):
            return "spread data"
        if max(g.window.kernel) > 16:
            return f"a window of {g.window.kernel}"
        channels = Channels.of(graph, node, g, rounds=micro.rounds)
        blocks = ChannelBlocks(g, micro.fewest, micro.fewest_of_stride_2)
        return cls(node, micro, blocks, channels)

    def source(self, graph: Lowered) -> Image:
        """Where the input lies."""
        return image_in(graph, self.node, self.s.g, reaches_behind=self.s.reaches_behind)

    def scratch(self, graph: Lowered) -> int:
        row = self.channels.rest.start.bytes * self.s.width * self.s.blocks * LANES
        waiting = graph.threads * row if self.channels.stepped else 0
        return self.source(graph).copy_bytes + waiting

    def takes(self, graph: Lowered, name: str) -> bool:
        """Images with a border; results at strides where each output has lanes of its own."""
        if graph.stored(name).border:
            return takes_image(graph, self.node, name)
        return not self.s.flat and result_at_strides(graph, self.node, name)

    def weights(self, graph: Lowered) -> Array:
        """[channels, kernel…, 1] -> [block][group of rows][column][4][16 lanes][4 rows]."""
        s, weight = self.s, graph.constants[self.node.inputs[1]]
        rows, columns = s.g.window.kernel
        taps = np.pad(weight[..., 0], ((0, 0), (0, s.groups * ROWS - rows), (0, 0)))
        taps = taps.reshape(s.g.c, s.groups, ROWS, columns)
        lanes = s.lanes(taps.transpose(1, 3, 2, 0))  # group, column, row, block, 4, 16
        return np.ascontiguousarray(lanes.transpose(3, 0, 1, 4, 5, 2)).reshape(-1)

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        return self._loops(graph, epilogue).code(epilogue)

    def _loops(self, graph: Lowered, epilogue: Epilogue) -> DepthwiseLoops:
        s, g, channels, micro = self.s, self.s.g, self.channels, self.micro
        epilogue.slower += channels.slower(self.node)
        epilogue.calls_only = not channels.stepped
        source = self.source(graph)
        out = image_of(graph.stored(self.node.output))
        rest = self._rest(out, epilogue) if channels.stepped else None
        by_blocks = s.by_blocks(epilogue.threads, stepped=channels.stepped)
        cycles = math.prod(g.window.kernel) * g.oh * g.ow * g.c / micro.machine.depthwise_macs
        flipped = g.data is not graph.bytes_are and not source.copy_bytes
        valid = g.c - LANES * (s.blocks - 1)
        whole = LANES if s.flat else valid
        last = g.ow * g.c - LANES * (s.width - 1) if s.flat else valid
        options = replace(channels.options, flat=s.flat, flipped=flipped)
        assert micro.depthwise
        microkernel = functools.partial(micro.depthwise, epilogue, s, options=options)
        narrow = micro.half and not s.flat and valid <= HALF
        signs = Signs.of(g.data, g.zero_point, graph.bytes_are, copied=source.copy_bytes > 0)
        return DepthwiseLoops(
            s,
            Images(g, source, out, signs),
            channels,
            arrays=channels.arrays(epilogue, lambda values: s.lanes(values).reshape(-1)),
            microkernel=microkernel(lanes=LANES) if s.blocks > 1 or not narrow else None,
            last_microkernel=microkernel(lanes=HALF if narrow else LANES),
            mask=f"0x{(1 << whole) - 1:x}ULL",
            last_mask=f"0x{(1 << last) - 1:x}ULL",
            rest=rest,
            by_blocks=by_blocks,
            pieces=pieces(cycles, s.blocks if by_blocks else g.oh, epilogue.threads),
            threads=epilogue.threads,
        )

    def _rest(self, out: Image, epilogue: Epilogue) -> Code:
        """What takes the results of a microkernel through the rest of the steps."""
        s, g, chain, vectors = self.s, self.s.g, self.channels.rest, self.micro.vectors
        acc_index = f"x * {g.c if s.flat else s.blocks * LANES} + c"
        sizes = (("n", g.n), ("y", g.oh), ("x", g.ow), ("c", g.c))
        axes = [Axis(name, (size,)) for name, size in sizes]
        out_index = f"n * {out.image} + {out.first} + y * {out.row} + x * {out.pixel} + c"
        lanes = (
            write_lanes(vectors, epilogue, chain, acc_index, out_index, axes) if vectors else None
        )
        return lanes or write_scalar(epilogue, chain, acc_index, out_index, axes, g.c)


KERNELS = tuple(
    Kernel(
        name=f"conv2d_depthwise_{micro.name}",
        op=Conv2d,
        isa=micro.name,
        prepare=functools.partial(Depthwise.of, micro=micro),
        kind=is_depthwise,
        split=True,
    )
    for micro in MICROKERNELS
    if micro.depthwise
)
