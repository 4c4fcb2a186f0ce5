"""Kernels of conv2d and dense that keep a tile of accumulators in registers.

The input is read as rows of bytes, four at a time: of a window's row the bytes of all its columns
are neighbours in NHWC. Weights are packed into panels of up to four blocks of 16 channels: for
every four bytes of the window, 64 bytes of weights a block. A panel is one call of a *microkernel*,
which layers share; what differs between them is in its arguments.

Where a block has room for the channels of several outputs, that many neighbours are computed as one
output: their windows overlap, and the requantization of a block serves all of them.

Accumulators start from the bias less the part of the zero point. Where products are of unsigned
bytes, signed inputs are made unsigned on the way into a register (their sign bit is turned), which
adds 128 to the zero point; where they are of signed bytes, unsigned inputs become signed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tinyai.codegen.ctree import Code
from tinyai.codegen.float_add import FloatAdd
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import Microkernels, Options
from tinyai.codegen.isa.vectors import write_lanes
from tinyai.codegen.kernels.add import add_of
from tinyai.codegen.kernels.channels import Channels
from tinyai.codegen.kernels.image import (
    Image,
    Images,
    Signs,
    image_in,
    image_of,
    output_axes,
    takes_image,
)
from tinyai.codegen.kernels.tile_loops import Rest, TileLoops, WeightPanelCall, looped
from tinyai.codegen.kernels.tiling import FAR_BYTES, schedules, shares_panels
from tinyai.codegen.kernels.work_stealing import pieces
from tinyai.codegen.lowered import Kernel, Lowered, at_strides
from tinyai.codegen.quantized_add import QuantizedAdd
from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.shapes.schedule import Schedule, Tile
from tinyai.codegen.shapes.tiling import LANES, Tiling, cover
from tinyai.codegen.steps import Chain, Epilogue, write_scalar
from tinyai.ir import NARROW, Array, DType, Node
from tinyai.ops import Conv2d, Dense
from tinyai.ops.window import NHWC

# Weights that do not stay in a core's caches from call to call are fetched in time: while one panel
# is computed, the next one and, as far as there is time, so many bytes after it.
AHEAD = 512 * 1024
# The most bytes of weights of outputs that are computed as one.
TOGETHER_BYTES = 16 * 1024
# Schedules that are worth a try of each other way to share a layer or to see its outputs.
OTHERS = 4
# Every piece of a share reads the weights again: it is so many outputs at least.
PIECE, MACS_A_CYCLE = 48, 64


def tiling_of(graph: Lowered, node: Node) -> Tiling:
    """How the node is cut up, as its schedule says."""
    return _tiling(graph, node, graph.schedules[node.output])


def _tiling(graph: Lowered, node: Node, schedule: Schedule) -> Tiling:
    numbers = _together(graph, node)
    number = schedule.together if schedule.together in numbers else numbers[0]
    return Tiling(_geometry(graph, node, number), schedule)


def _geometry(graph: Lowered, node: Node, number: int) -> Geometry:
    """The numbers of the node, or of so many outputs as one."""
    g = Geometry.of(graph, node)
    return g if number == 1 else g.together(number)


def _together(graph: Lowered, node: Node) -> tuple[int, ...]:
    """How many neighbouring outputs can be computed as one, the most first."""
    g = Geometry.of(graph, node)
    few = isinstance(node.op, Conv2d) and g.groups == 1 and 2 * g.oc <= LANES
    side_by_side = image_of(graph.stored(node.output)).pixel == g.oc
    if not few or not side_by_side or g.window.dilation[1] > 1:
        return (1,)
    if Channels.of(graph, node, g).stepped:
        return (1,)
    numbers = (n for n in range(LANES // g.oc, 1, -1) if g.ow % n == 0)
    return *(n for n in numbers if g.together(n).k * LANES <= TOGETHER_BYTES), 1


def _channels(graph: Lowered, node: Node, *, rounds: bool = False) -> Channels:
    """Those of one output."""
    return Channels.of(graph, node, Geometry.of(graph, node), rounds=rounds)


def candidates(graph: Lowered, node: Node, threads: int) -> Iterator[Schedule]:
    """The schedules to choose from: the cheapest by the cost model, some that threads share in the
    other way, or with other numbers of outputs as one, and the rest of the model's."""
    waiting = _waiting(_channels(graph, node))
    most, *fewer = _together(graph, node)
    first, *rest = schedules(_geometry(graph, node, most), waiting=waiting, threads=threads)
    yield first
    tilings = (_tiling(graph, node, each) for each in (first, *rest))
    shared = (t for t in tilings if len(t.panels) * t.g.groups >= threads > 1)
    for t in itertools.islice(shared, OTHERS):
        yield replace(t.schedule, by_panels=not shares_panels(t, threads))
    for number in fewer:
        several = schedules(_geometry(graph, node, number), waiting=waiting, threads=threads)
        yield from (replace(each, together=number) for each in several[:OTHERS])
    yield from rest


def schedule_rejection(graph: Lowered, node: Node, schedule: Schedule) -> str | None:
    """Why a schedule does not fit the node, or None."""
    numbers = _together(graph, node)
    if schedule.together not in (None, *numbers):
        return f"{schedule.together} outputs as one, not {' or '.join(map(str, numbers))}"
    t = _tiling(graph, node, schedule)
    panels = len(t.panels) * t.g.groups
    if schedule.by_panels and panels < graph.threads:
        return f"{panels} panels for {graph.threads} threads"
    return t.rejection()


def _waiting(channels: Channels) -> int:
    """Bytes of each result of a microkernel that waits for steps; 0 where none does."""
    return channels.rest.start.bytes if channels.stepped else 0


def pack(graph: Lowered, node: Node, weight: Array, *, words: int = 1) -> Array:
    """[out, kernel…, in] -> for each group and panel [k / 4, channels, 4]; zeros fill up. Of a row
    of the window so many ``words`` of four bytes are neighbours, and what is left at its end
    follows word by word."""
    t = tiling_of(graph, node)
    number = t.g.oc // weight.shape[0]
    if number > 1:  # the windows of outputs that are computed as one
        along = t.g.window.strides[1] // number
        ends = [(i * along, (number - 1 - i) * along) for i in range(number)]
        weight = np.concatenate([np.pad(weight, ((0, 0), (0, 0), each, (0, 0))) for each in ends])
    rows, columns = t.g.window.kernel[0], t.columns
    taps = weight.reshape(t.g.groups, t.g.group_out, rows * columns, -1)
    filled = (0, t.channels - t.g.group_out), (0, 0), (0, t.bytes - taps.shape[-1])
    taps = np.pad(taps, ((0, 0), *filled))
    parts = [
        _panel(taps[group, panel.channel : panel.channel + LANES * panel.blocks], 4 * words)
        for group in range(t.g.groups)
        for panel in t.panels
    ]
    return np.concatenate(parts)


def _panel(taps: Array, together: int) -> Array:
    """[channels, rows, bytes] -> [rows][bytes / together, channels, together], and words of what is
    left at the end of a row."""
    channels, rows, count = taps.shape
    whole = count - count % together
    parts: list[Array] = []
    for piece, size in ((taps[:, :, :whole], together), (taps[:, :, whole:], 4)):
        words = piece.reshape(channels, rows, piece.shape[2] // size, size).transpose(1, 2, 0, 3)
        parts.append(words.reshape(rows, -1))
    packed: Array = np.concatenate(parts, axis=1).reshape(-1)
    return packed


def _by_block(t: Tiling, values: Array) -> Array:
    """One number a channel -> the channels of every group filled up to whole blocks by zeros."""
    grouped = np.tile(values, t.g.oc // values.size).reshape(t.g.groups, t.g.group_out)
    return np.pad(grouped, ((0, 0), (0, t.channels - t.g.group_out))).reshape(-1)


def rejection(graph: Lowered, node: Node) -> str | None:
    g = Geometry.of(graph, node)
    if g.layout != NHWC:
        return f"layout {g.layout}"
    if g.data not in NARROW:
        return f"data of {g.data}"
    if node.inputs[1] not in graph.constants:
        return "weights that are not constant"
    if g.weight is not DType.INT8:
        return f"weights of {g.weight}"
    if g.groups > 1 and g.group_in < 4:
        return f"{g.group_in} input channels a group"
    return None


def scratch(graph: Lowered, node: Node, threads: int) -> int:
    t = tiling_of(graph, node)
    channels = _channels(graph, node)
    source = image_in(graph, node, t.g, reaches_behind=t.reaches_behind)
    areas = 1 if shares_panels(t, threads) else threads
    return source.copy_bytes + areas * t.waiting_bytes(_waiting(channels))


def _calls(
    t: Tiling, epilogue: Epilogue, micro: Microkernels, options: Options, *, ranges: bool
) -> tuple[WeightPanelCall, ...]:
    """For each panel the microkernels that cover a stripe of outputs, and where its weights begin.
    ``ranges`` says that stripes of any length come, because threads share the outputs."""
    calls = []
    stripe = t.schedule.stripe
    at = 0
    for number, panel in enumerate(t.panels):
        pixels = panel.outputs if micro.tall else 1
        # Where windows overlap, one microkernel serves every length: it goes row by row.
        lower = pixels > 1 and not t.overlap(Tile(pixels, LANES * panel.blocks))
        rest = t.outputs % stripe
        first, others = cover(stripe, pixels) if lower else (stripe, False)
        last_first, last_others = cover(rest, pixels) if lower and rest else (first, others)
        valid = t.g.group_out - panel.channel - LANES * (panel.blocks - 1)
        other = others or last_others or (ranges and lower)
        masked = replace(options, masked=options.masked and valid < LANES)
        microkernel = functools.partial(
            micro.tile, epilogue, t, blocks=panel.blocks, options=masked
        )
        size = t.k * LANES * panel.blocks
        calls.append(
            WeightPanelCall(
                number,
                microkernel=microkernel(pixels=pixels),
                other=microkernel(pixels=pixels - 1) if other else None,
                pixels=pixels,
                first=first,
                last_first=last_first,
                bytes=size,
                last_block=(1 << min(valid, LANES)) - 1,
                weights=at,
                channel=panel.channel,
            )
        )
        at += size
    return looped(calls)


def _options(graph: Lowered, micro: Microkernels, channels: Channels, *, flipped: bool) -> Options:
    """What the texts of the microkernels may depend on."""
    streamed = sum(value.nbytes for value in graph.constants.values()) > FAR_BYTES
    return replace(
        channels.options,
        flipped=flipped,
        # What waits for steps has room for whole blocks.
        masked=not channels.stepped,
        ahead=AHEAD if micro.fetches and streamed else 0,
    )


def _rest(
    graph: Lowered,
    node: Node,
    epilogue: Epilogue,
    t: Tiling,
    channels: Channels,
    micro: Microkernels,
) -> Rest:
    """What takes the results of a microkernel through the rest of the steps."""
    g, out, chain = t.g, image_of(graph.stored(node.output)), channels.rest
    acc_index, out_index = f"(q - first) * {t.channels}", _at_pixel(out, g)
    add = _add(graph, node, chain, micro) if g.groups == 1 else None
    if add and micro.sums:
        other = image_of(graph.stored(add.operand))
        dense = t.channels == g.oc == out.pixel
        count = f"count * {g.oc}" if dense else str(g.oc)
        operand = f"{epilogue.param(add.operand)} + {_at_pixel(other, g)}"
        call = micro.sums.call(
            epilogue, add, f"acc + {acc_index}", operand, f"out + {out_index}", count
        )
        if not dense:
            return Rest(call)
        return Rest(call, "all" if _in_line(out, g) and _in_line(other, g) else "row")
    channel = "c" if g.groups == 1 else f"(group * {g.group_out} + c)"
    axes = output_axes(g, node.op, "q", channel)
    acc_index, out_index = f"{acc_index} + c", f"{out_index} + {channel}"
    lanes: Code = None
    if g.groups == 1 and micro.vectors:
        lanes = write_lanes(micro.vectors, epilogue, chain, acc_index, out_index, axes)
    elif micro.vectors:
        epilogue.slower.append("steps one element at a time: groups of channels")
    return Rest(lanes or write_scalar(epilogue, chain, acc_index, out_index, axes, g.group_out))


def _in_line(of: Image, g: Geometry) -> bool:
    """Whether the rows of a result's images follow one another like its pixels."""
    return of.row == g.ow * of.pixel


def _at_pixel(of: Image, g: Geometry) -> str:
    """The element of output ``q`` of image ``n``."""
    rows = f"q / {g.ow} * {of.row} + q % {g.ow} * {of.pixel}"
    return f"n * {of.image} + {of.first} + " + (f"q * {of.pixel}" if _in_line(of, g) else rows)


def _add(
    graph: Lowered, node: Node, chain: Chain, micro: Microkernels
) -> QuantizedAdd | FloatAdd | None:
    """The sum with another tensor that a microkernel's results wait for, if they wait for one."""
    if micro.sums is None:
        return None
    add = add_of(graph, chain.steps, chain.start, micro.sums)
    if isinstance(add, str) or graph.type(add.operand).shape != graph.type(node.output).shape:
        return None
    return add


def _code(graph: Lowered, node: Node, epilogue: Epilogue, *, micro: Microkernels) -> Code:
    return _loops(graph, node, epilogue, micro).code(epilogue)


def _loops(graph: Lowered, node: Node, epilogue: Epilogue, micro: Microkernels) -> TileLoops:
    t = tiling_of(graph, node)
    g = t.g
    channels = _channels(graph, node, rounds=micro.rounds)
    epilogue.slower += channels.slower(node)
    epilogue.calls_only = not channels.stepped
    source = image_in(graph, node, g, reaches_behind=t.reaches_behind)
    out = image_of(graph.stored(node.output))
    data = graph.type(node.inputs[0]).dtype
    flipped = data is not graph.bytes_are and not source.copy_bytes
    options = _options(graph, micro, channels, flipped=flipped)
    by_panels = shares_panels(t, epilogue.threads)
    # What threads deal out among them: panels, of all groups and in each stripe where the results
    # do not wait for steps after them.
    panels, stripes = len(t.panels) * g.groups, -(-t.outputs // t.schedule.stripe)
    things = panels * stripes if by_panels else t.outputs // PIECE
    cycles = t.outputs * t.k * t.channels * g.groups / MACS_A_CYCLE
    rest = _rest(graph, node, epilogue, t, channels, micro) if channels.stepped else None
    # Where all pixels are as far apart as neighbours are, the image is one long row.
    in_line = g.window.strides[0] * source.row == g.ow * g.window.strides[1] * source.pixel
    written = replace(out, pixel=out.pixel * (g.oc // channels.start.size))
    out_line = channels.stepped or _in_line(written, g)
    ranges = epilogue.threads > 1 and not by_panels
    signs = Signs.of(data, g.zero_point, graph.bytes_are, copied=source.copy_bytes > 0)
    return TileLoops(
        t,
        Images(g, source, out, signs),
        channels,
        calls=_calls(t, epilogue, micro, options, ranges=ranges),
        width=t.outputs if in_line and out_line else g.ow,
        out_column=written.pixel,
        arrays=channels.arrays(epilogue, functools.partial(_by_block, t)),
        rest=rest,
        ahead=options.ahead,
        by_panels=by_panels,
        dealt=(len(t.panels), 1) if channels.stepped else (panels, stripes),
        pieces=pieces(cycles, things, epilogue.threads),
        threads=epilogue.threads,
    )


def _takes(graph: Lowered, node: Node, name: str) -> bool:
    """Images with a border; results at any strides; an input at strides where windows are single
    pixels of it, however far apart."""
    if graph.stored(name).border:
        return takes_image(graph, node, name)
    if name == node.output:
        return True
    if not at_strides(graph, node, name) or not isinstance(node.op, Conv2d):
        return False
    t = tiling_of(graph, node)
    source = image_in(graph, node, t.g, reaches_behind=t.reaches_behind)
    return t.g.window.kernel[1] == 1 and not source.copy_bytes


KERNELS = tuple(
    Kernel(
        name=f"{op.name}_tile_{micro.name}",
        op=op,
        isa=micro.name,
        rejection=rejection,
        code=functools.partial(_code, micro=micro),
        scratch=scratch,
        takes=_takes,
        split=True,
        pack={1: functools.partial(pack, words=micro.words)},
        candidates=candidates,
        schedule_rejection=schedule_rejection,
    )
    for micro in MICROKERNELS
    for op in (Conv2d, Dense)
)
