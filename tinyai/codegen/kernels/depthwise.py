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
from dataclasses import replace

import numpy as np

from tinyai.codegen.ctree import Code
from tinyai.codegen.index import Axis
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.isa.vectors import write_lanes
from tinyai.codegen.kernels.channels import Channels
from tinyai.codegen.kernels.depthwise_loops import DepthwiseLoops
from tinyai.codegen.kernels.image import Image, Images, Signs, image_in, image_of, takes_image
from tinyai.codegen.kernels.work_stealing import pieces
from tinyai.codegen.lowered import Kernel, Lowered, result_at_strides
from tinyai.codegen.shapes.channel_blocks import LANES, ROWS, ChannelBlocks
from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.steps import Epilogue, write_scalar
from tinyai.ir import NARROW, Array, DType, Node
from tinyai.ops import Conv2d
from tinyai.ops.window import NHWC

# Of few channels, or for the last ones: half a vector costs two thirds of the time.
HALF = 32
MACS_A_CYCLE = 12


def pack(graph: Lowered, node: Node, weight: Array) -> Array:
    """[channels, kernel…, 1] -> [block][group of rows][column][4][16 lanes][4 rows]."""
    s = ChannelBlocks(Geometry.of(graph, node))
    rows, columns = s.g.window.kernel
    taps = np.pad(weight[..., 0], ((0, 0), (0, s.groups * ROWS - rows), (0, 0)))
    taps = taps.reshape(s.g.c, s.groups, ROWS, columns)
    lanes = s.lanes(taps.transpose(1, 3, 2, 0))  # group, column, row, block, 4, 16
    return np.ascontiguousarray(lanes.transpose(3, 0, 1, 4, 5, 2)).reshape(-1)


def is_depthwise(graph: Lowered, node: Node) -> bool:
    """Whether each channel is a group."""
    g = Geometry.of(graph, node)
    return g.group_in == g.group_out == 1 < g.groups


def rejection(graph: Lowered, node: Node) -> str | None:
    g = Geometry.of(graph, node)
    if g.layout != NHWC:
        return f"layout {g.layout}"
    if g.data not in NARROW:
        return f"data of {g.data}"
    if not is_depthwise(graph, node):
        return "channels that are not each a group"
    if node.inputs[1] not in graph.constants or g.weight is not DType.INT8:
        return "weights that are no int8 constant"
    if g.window.upsample != (1, 1):
        return "spread data"
    return f"a window of {g.window.kernel}" if max(g.window.kernel) > 16 else None


def scratch(graph: Lowered, node: Node, threads: int, *, fewest: int = LANES) -> int:
    s = ChannelBlocks(Geometry.of(graph, node), fewest)
    channels = Channels.of(graph, node, s.g)
    source = image_in(graph, node, s.g, reaches_behind=s.reaches_behind)
    row = channels.rest.start.bytes * s.width * s.blocks * LANES
    return source.copy_bytes + (threads * row if channels.stepped else 0)


def _code(graph: Lowered, node: Node, epilogue: Epilogue, *, micro: Microkernels) -> Code:
    return _loops(graph, node, epilogue, micro).code(epilogue)


def _loops(graph: Lowered, node: Node, epilogue: Epilogue, micro: Microkernels) -> DepthwiseLoops:
    s = ChannelBlocks(Geometry.of(graph, node), micro.fewest)
    g = s.g
    channels = Channels.of(graph, node, g, rounds=micro.rounds)
    epilogue.slower += channels.slower(node)
    epilogue.calls_only = not channels.stepped
    source = image_in(graph, node, g, reaches_behind=s.reaches_behind)
    out = image_of(graph.stored(node.output))
    rest = _rest(s, out, epilogue, channels, micro) if channels.stepped else None
    by_blocks = s.by_blocks(epilogue.threads, stepped=channels.stepped)
    cycles = math.prod(g.window.kernel) * g.oh * g.ow * g.c / MACS_A_CYCLE
    data = graph.type(node.inputs[0]).dtype
    flipped = data is not graph.bytes_are and not source.copy_bytes
    valid = g.c - LANES * (s.blocks - 1)
    whole = LANES if s.flat else valid
    last = g.ow * g.c - LANES * (s.width - 1) if s.flat else valid
    options = replace(channels.options, flat=s.flat, flipped=flipped)
    microkernel = functools.partial(micro.depthwise, epilogue, s, options=options)
    narrow = micro.half and not s.flat and valid <= HALF
    return DepthwiseLoops(
        s,
        Images(
            g,
            source,
            out,
            Signs.of(data, g.zero_point, graph.bytes_are, copied=source.copy_bytes > 0),
        ),
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


def _rest(
    s: ChannelBlocks, out: Image, epilogue: Epilogue, channels: Channels, micro: Microkernels
) -> Code:
    """What takes the results of a microkernel through the rest of the steps."""
    g, chain = s.g, channels.rest
    acc_index = f"x * {g.c if s.flat else s.blocks * LANES} + c"
    sizes = (("n", g.n), ("y", g.oh), ("x", g.ow), ("c", g.c))
    axes = [Axis(name, (size,)) for name, size in sizes]
    out_index = f"n * {out.image} + {out.first} + y * {out.row} + x * {out.pixel} + c"
    lanes = (
        write_lanes(micro.vectors, epilogue, chain, acc_index, out_index, axes)
        if micro.vectors
        else None
    )
    return lanes or write_scalar(epilogue, chain, acc_index, out_index, axes, g.c)


def _takes(graph: Lowered, node: Node, name: str, *, fewest: int) -> bool:
    """Images with a border; results at strides where each output has lanes of its own."""
    if graph.stored(name).border:
        return takes_image(graph, node, name)
    flat = ChannelBlocks(Geometry.of(graph, node), fewest).flat
    return not flat and result_at_strides(graph, node, name)


KERNELS = tuple(
    Kernel(
        name=f"conv2d_depthwise_{micro.name}",
        op=Conv2d,
        isa=micro.name,
        rejection=rejection,
        kind=is_depthwise,
        code=functools.partial(_code, micro=micro),
        scratch=functools.partial(scratch, fewest=micro.fewest),
        takes=functools.partial(_takes, fewest=micro.fewest),
        split=True,
        pack={1: pack},
    )
    for micro in MICROKERNELS
)
