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
from tinyai.codegen.kernels.channels import Channels
from tinyai.codegen.kernels.depthwise_loops import LANES, DepthwiseLoops
from tinyai.codegen.kernels.geometry import Geometry
from tinyai.codegen.kernels.image import Image, Images, Signs, image_in, image_of, takes_image
from tinyai.codegen.kernels.table import Kernel, result_at_strides
from tinyai.codegen.kernels.work_stealing import pieces
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.steps import Epilogue, write_scalar
from tinyai.ir import NARROW, Array, DType, Node
from tinyai.ops import Conv2d
from tinyai.ops.window import NHWC, Window

# Of few channels, or for the last ones: half a vector costs two thirds of the time.
HALF = 32
MACS_A_CYCLE = 12
ROWS = 4
# Outputs of a row in one straight line of code, at most.
LONGEST = 8
# Lane l of register j holds channel ORDER[j, l] of its 64.
ORDER = np.array([[16 * (lane // 4) + 4 * j + lane % 4 for lane in range(16)] for j in range(4)])


@dataclass(frozen=True)
class Column:
    """One column of the input that a line of outputs sees: its distance in bytes as C, and the
    outputs that see it with the column of the window in which they do."""

    distance: str
    seen: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Stretch:
    """One or two neighbouring columns of a line of code. They are in registers together, so that
    each weight is loaded once: ``uses`` are, for a column of the window, the outputs and which of
    the columns they see there. Some outputs ``begin`` here, and some are ``done`` after it."""

    columns: tuple[Column, ...]
    begin: tuple[int, ...]
    uses: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    done: tuple[int, ...]


@dataclass(frozen=True)
class ChannelBlocks:
    """How a depthwise convolution is cut up."""

    g: Geometry
    fewest: int = LANES

    @property
    def repeats(self) -> bool:
        """Whether the numbers of the channels are stored as often as they fill the lanes."""
        return self.g.window.strides[1] == 1 and self.g.c < LANES and LANES % self.g.c == 0

    @property
    def flat(self) -> bool:
        """Whether neighbouring pixels fill the lanes: where the channels are fewer than
        ``fewest``."""
        return self.repeats and self.g.c < self.fewest

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

    def lines(self) -> tuple[int, int]:
        """Outputs of a line of code, and those that the last line of a row has (0: as many)."""
        if self.width <= LONGEST:
            return self.width, 0

        def cost(length: int) -> tuple[int, int, int]:
            """Columns in all; of equals those without a rest, which is code of its own."""
            rest = self.width % length
            columns = self.width // length * len(self.columns(length))
            return columns + (len(self.columns(rest)) if rest else 0), rest, -length

        best = min(range(4, LONGEST + 1), key=cost)
        return best, self.width % best

    def columns(self, outputs: int) -> list[Column]:
        """The columns that so many outputs see, from left to right."""
        kernel, stride, dilation = (
            pair[1]
            for pair in (self.g.window.kernel, self.g.window.strides, self.g.window.dilation)
        )
        if self.flat:  # distances in bytes; else in pixels
            stride, dilation = LANES, dilation * self.g.c
        seen: dict[int, list[tuple[int, int]]] = {}
        for o in range(outputs):
            for kx in range(kernel):
                seen.setdefault(o * stride + kx * dilation, []).append((o, kx))
        unit = "" if self.flat else " * p->channels"
        return [Column(f"{at}{unit}", tuple(seen[at])) for at in sorted(seen)]

    def stretches(self, outputs: int) -> list[Stretch]:
        """The columns of so many outputs. Where neighbours meet the same weights (stride 1) they
        come in twos; outputs are requantized in twos, which share the channels' numbers."""
        columns = self.columns(outputs)
        width = 2 if self.g.window.strides[1] == 1 else 1
        stretches = [
            self._stretch(columns[at : at + width]) for at in range(0, len(columns), width)
        ]
        waiting: tuple[int, ...] = ()
        for number, stretch in enumerate(stretches):
            waiting += stretch.done
            ready = len(waiting) > 1 or number == len(stretches) - 1
            stretches[number] = replace(stretch, done=waiting if ready else ())
            waiting = () if ready else waiting
        return stretches

    def _stretch(self, columns: list[Column]) -> Stretch:
        uses: dict[int, list[tuple[int, int]]] = {}
        for number, column in enumerate(columns):
            for output, kx in column.seen:
                uses.setdefault(kx, []).append((output, number))
        last = self.g.window.kernel[1] - 1
        return Stretch(
            tuple(columns),
            tuple(output for output, _ in uses.get(0, ())),
            tuple((kx, tuple(uses[kx])) for kx in sorted(uses)),
            tuple(output for output, _ in uses.get(last, ())),
        )

    @property
    def window(self) -> Window:
        """The window along a row: how far rows are apart, microkernels are told."""
        of = self.g.window
        return Window(of.kernel, (1, of.strides[1]), (1, of.dilation[1]))

    def said(self) -> list[str]:
        """The window, as parts of a microkernel's name."""
        window = self.g.window
        dilation = [f"d{window.dilation[1]}"] if window.dilation[1] > 1 else []
        return ["x".join(map(str, window.kernel)), f"s{window.strides[1]}", *dilation]

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
    lanes = micro.lanes(epilogue, chain, acc_index, out_index, axes) if micro.lanes else None
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
