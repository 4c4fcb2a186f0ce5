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
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tinyai.codegen.ctree import Code
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import AnyAdd, ConvOptions, Microkernels, Sums
from tinyai.codegen.isa.vectors import write_lanes
from tinyai.codegen.kernels.add import add_of
from tinyai.codegen.kernels.channels import Channels, no_bytes
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
from tinyai.codegen.kernels.tiling import schedules, shares_panels
from tinyai.codegen.kernels.work_stealing import pieces
from tinyai.codegen.lowered import Kernel, Lowered, Prepared, any_kind, at_strides
from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.shapes.machine import Machine
from tinyai.codegen.shapes.schedule import Schedule, Tile
from tinyai.codegen.shapes.tiling import Tiling, cover
from tinyai.codegen.steps import Epilogue, write_scalar
from tinyai.ir import Array, DType, Node
from tinyai.ops import Conv2d, Dense

# The most bytes of weights of outputs that are computed as one.
TOGETHER_BYTES = 16 * 1024
# Schedules that are worth a try of each other way to share a layer or to see its outputs.
OTHERS = 4
# Every piece of a share reads the weights again: it is so many outputs at least.
PIECE = 48


def _panel(taps: Array, machine: Machine) -> Array:
    """[channels, rows, bytes] -> [rows][steps, blocks, words of a step, lanes, bytes of a word]:
    the weights of a product after the other, and words of four bytes of what is left at the end of
    a row."""
    channels, rows, count = taps.shape
    word = 4 * machine.words
    step = max(machine.depth, word)
    whole = count - count % step
    parts: list[Array] = []
    for piece, size, bytes in ((taps[:, :, :whole], step, word), (taps[:, :, whole:], 4, 4)):
        steps = piece.shape[2] // size
        blocks = channels // machine.lanes, machine.lanes
        words = piece.reshape(*blocks, rows, steps, size // bytes, bytes)
        parts.append(words.transpose(2, 3, 0, 4, 1, 5).reshape(rows, -1))
    packed: Array = np.concatenate(parts, axis=1).reshape(-1)
    return packed


def _by_block(t: Tiling, values: Array) -> Array:
    """One number a channel -> the channels of every group filled up to whole blocks by zeros."""
    grouped = np.tile(values, t.g.oc // values.size).reshape(t.g.groups, t.g.group_out)
    return np.pad(grouped, ((0, 0), (0, t.channels - t.g.group_out))).reshape(-1)


def _calls(
    t: Tiling, epilogue: Epilogue, micro: Microkernels, options: ConvOptions, *, ranges: bool
) -> tuple[WeightPanelCall, ...]:
    """For each panel the microkernels that cover a stripe of outputs, and where its weights begin.
    ``ranges`` says that stripes of any length come, because threads share the outputs."""
    calls = []
    stripe, lanes = t.schedule.stripe, t.machine.lanes
    at = 0
    for number, panel in enumerate(t.panels):
        pixels = panel.outputs if micro.tall else 1
        # Where windows overlap, one microkernel serves every length: it goes row by row.
        lower = pixels > 1 and not t.overlap(Tile(pixels, lanes * panel.blocks))
        rest = t.outputs % stripe
        first, others = cover(stripe, pixels) if lower else (stripe, False)
        last_first, last_others = cover(rest, pixels) if lower and rest else (first, others)
        valid = t.g.group_out - panel.channel - lanes * (panel.blocks - 1)
        other = others or last_others or (ranges and lower)
        masked = replace(options, masked=options.masked and valid < lanes)
        microkernel = functools.partial(
            micro.tile, epilogue, t, blocks=panel.blocks, options=masked
        )
        size = t.block_bytes * panel.blocks
        calls.append(
            WeightPanelCall(
                number,
                microkernel=microkernel(pixels=pixels),
                other=microkernel(pixels=pixels - 1) if other else None,
                pixels=pixels,
                first=first,
                last_first=last_first,
                bytes=size,
                last_block=(1 << min(valid, lanes)) - 1,
                weights=at,
                channel=panel.channel,
            )
        )
        at += size
    return looped(calls)


def _in_line(of: Image, g: Geometry) -> bool:
    """Whether the rows of a result's images follow one another like its pixels."""
    return of.row == g.ow * of.pixel


def _at_pixel(of: Image, g: Geometry) -> str:
    """The element of output ``q`` of image ``n``."""
    rows = f"q / {g.ow} * {of.row} + q % {g.ow} * {of.pixel}"
    return f"n * {of.image} + {of.first} + " + (f"q * {of.pixel}" if _in_line(of, g) else rows)


@dataclass(frozen=True)
class Tiled(Prepared):
    """A convolution or dense layer in tiles, by the microkernels of ``micro``; ``g`` and
    ``channels`` are those of each output alone."""

    micro: Microkernels
    g: Geometry
    channels: Channels
    scheduled: ClassVar[bool] = True

    @classmethod
    def of(cls, graph: Lowered, node: Node, micro: Microkernels) -> Tiled | str:
        g = Geometry.of(graph, node)
        if rejection := no_bytes(g):
            return rejection
        if node.inputs[1] not in graph.constants:
            return "weights that are not constant"
        if g.weight is not DType.INT8:
            return f"weights of {g.weight}"
        if g.groups > 1 and g.group_in < 4:
            return f"{g.group_in} input channels a group"
        if g.oh * g.ow < micro.outputs:
            return f"{g.oh * g.ow} outputs"
        return cls(node, micro, g, Channels.of(graph, node, g, rounds=micro.rounds))

    @property
    def machine(self) -> Machine:
        return self.micro.machine

    # --- How the layer is cut up ------------------------------------------------------------------

    @functools.cached_property
    def numbers(self) -> tuple[int, ...]:
        """How many neighbouring outputs can be computed as one, the most first."""
        g, lanes = self.g, self.machine.lanes
        few = isinstance(self.node.op, Conv2d) and g.groups == 1 and 2 * g.oc <= lanes
        if not few or g.window.dilation[1] > 1 or self.channels.stepped:
            return (1,)
        numbers = (n for n in range(lanes // g.oc, 1, -1) if g.ow % n == 0)
        return *(n for n in numbers if g.together(n).k * lanes <= TOGETHER_BYTES), 1

    def _together(self, graph: Lowered) -> tuple[int, ...]:
        """The same for the result as it is stored: neighbours side by side."""
        side_by_side = image_of(graph.stored(self.node.output)).pixel == self.g.oc
        return self.numbers if side_by_side else (1,)

    def tiling(self, graph: Lowered) -> Tiling:
        """How the node is cut up, as its schedule says."""
        assert self.schedule is not None, self.node.output
        return self.cut(self.schedule, self._together(graph))

    def cut(self, schedule: Schedule, numbers: tuple[int, ...]) -> Tiling:
        number = schedule.together if schedule.together in numbers else numbers[0]
        return Tiling(self.g.together(number), schedule, self.machine)

    @property
    def _waiting(self) -> int:
        """Bytes of each result of a microkernel that waits for steps; 0 where none does."""
        return self.channels.rest.start.bytes if self.channels.stepped else 0

    def candidates(self, graph: Lowered) -> Iterator[Schedule]:
        """The cheapest by the cost model, some that threads share in the other way, or with other
        numbers of outputs as one, and the rest of the model's; of those with equal code the first.
        """
        numbers, seen = self._together(graph), set()
        for schedule in self._candidates(graph):
            code = schedule
            if self.micro.in_tiles(self.cut(schedule, numbers)):
                panels = tuple(replace(tile, outputs=1) for tile in schedule.panels)
                code = replace(schedule, panels=panels, unrolled=False)
            if code not in seen:
                seen.add(code)
                yield schedule

    def _candidates(self, graph: Lowered) -> Iterator[Schedule]:
        threads, numbers = graph.threads, self._together(graph)
        by_cost = functools.partial(
            schedules, machine=self.machine, waiting=self._waiting, threads=threads
        )
        most, *fewer = numbers
        first, *rest = by_cost(self.g.together(most))
        yield first
        tilings = (self.cut(each, numbers) for each in (first, *rest))
        shared = (t for t in tilings if len(t.panels) * t.g.groups >= threads > 1)
        for t in itertools.islice(shared, OTHERS):
            yield replace(t.schedule, by_panels=not shares_panels(t, threads))
        for number in fewer:
            several = by_cost(self.g.together(number))[:OTHERS]
            yield from (replace(each, together=number) for each in several)
        yield from rest

    def schedule_rejection(self, graph: Lowered, schedule: Schedule) -> str | None:
        numbers = self._together(graph)
        if schedule.together not in (None, *numbers):
            return f"{schedule.together} outputs as one, not {' or '.join(map(str, numbers))}"
        t = self.cut(schedule, numbers)
        panels = len(t.panels) * t.g.groups
        if schedule.by_panels and panels < graph.threads:
            return f"{panels} panels for {graph.threads} threads"
        return t.rejection()

    # --- Where its tensors are --------------------------------------------------------------------

    def _source(self, graph: Lowered, t: Tiling) -> Image:
        return image_in(graph, self.node, t.g, reaches_behind=t.reaches_behind)

    def scratch(self, graph: Lowered) -> int:
        t = self.tiling(graph)
        areas = 1 if shares_panels(t, graph.threads) else graph.threads
        return self._source(graph, t).copy_bytes + areas * t.waiting_bytes(self._waiting)

    def takes(self, graph: Lowered, name: str) -> bool:
        """Images with a border; results at any strides; an input at strides where windows are
        single pixels of it, however far apart."""
        if graph.stored(name).border:
            return takes_image(graph, self.node, name)
        if name == self.node.output:
            return True
        if not at_strides(graph, self.node, name) or not isinstance(self.node.op, Conv2d):
            return False
        t = self.tiling(graph)
        return t.g.window.kernel[1] == 1 and not self._source(graph, t).copy_bytes

    def weights(self, graph: Lowered) -> Array:
        """[out, kernel…, in] -> the panels of each group; zeros fill up."""
        t = self.tiling(graph)
        taps, lanes = self.taps(graph, t), t.machine.lanes
        parts = [
            _panel(taps[group, panel.channel : panel.channel + lanes * panel.blocks], t.machine)
            for group in range(t.g.groups)
            for panel in t.panels
        ]
        return np.concatenate(parts)

    def taps(self, graph: Lowered, t: Tiling) -> Array:
        """[groups, channels, rows of the window, bytes] of whole blocks; zeros fill up."""
        weight = graph.constants[self.node.inputs[1]]
        number = t.g.oc // weight.shape[0]
        if number > 1:  # the windows of outputs that are computed as one
            along = t.g.window.strides[1] // number
            ends = [(i * along, (number - 1 - i) * along) for i in range(number)]
            copies = (np.pad(weight, ((0, 0), (0, 0), each, (0, 0))) for each in ends)
            weight = np.concatenate(list(copies))
        rows, columns = t.g.window.kernel[0], t.columns
        taps = weight.reshape(t.g.groups, t.g.group_out, rows * columns, -1)
        filled = (0, -t.g.group_out % t.machine.lanes), (0, 0), (0, t.bytes - taps.shape[-1])
        return np.pad(taps, ((0, 0), *filled))

    # --- Its code ---------------------------------------------------------------------------------

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        return self._loops(graph, epilogue).code(epilogue)

    def _loops(self, graph: Lowered, epilogue: Epilogue) -> TileLoops:
        t, channels = self.tiling(graph), self.channels
        g = t.g
        epilogue.slower += channels.slower(self.node)
        epilogue.calls_only = not channels.stepped
        source, out = self._source(graph, t), image_of(graph.stored(self.node.output))
        flipped = g.data is not graph.bytes_are and not source.copy_bytes
        options = self._options(graph, flipped=flipped)
        by_panels = shares_panels(t, epilogue.threads)
        # What threads deal out among them: panels, of all groups and in each stripe where the
        # results do not wait for steps after them.
        panels, stripes = len(t.panels) * g.groups, -(-t.outputs // t.schedule.stripe)
        things = panels * stripes if by_panels else t.outputs // PIECE
        cycles = t.outputs * t.k * t.channels * g.groups / t.machine.macs
        rest = self._rest(graph, epilogue, t) if channels.stepped else None
        # Where all pixels are as far apart as neighbours are, the image is one long row.
        in_line = g.window.strides[0] * source.row == g.ow * g.window.strides[1] * source.pixel
        written = replace(out, pixel=out.pixel * (g.oc // self.g.oc))
        out_line = channels.stepped or _in_line(written, g)
        ranges = epilogue.threads > 1 and not by_panels
        signs = Signs.of(g.data, g.zero_point, graph.bytes_are, copied=source.copy_bytes > 0)
        return TileLoops(
            t,
            Images(g, source, out, signs),
            channels,
            calls=_calls(t, epilogue, self.micro, options, ranges=ranges),
            width=t.outputs if in_line and out_line else g.ow,
            out_column=written.pixel,
            arrays=channels.arrays(
                epilogue,
                functools.partial(_by_block, t),
                signed=flipped and self.micro.in_tiles(t),
            ),
            rest=rest,
            ahead=options.ahead,
            by_panels=by_panels,
            dealt=(len(t.panels), 1) if channels.stepped else (panels, stripes),
            pieces=pieces(cycles, things, epilogue.threads),
            threads=epilogue.threads,
        )

    def _options(self, graph: Lowered, *, flipped: bool) -> ConvOptions:
        """What the texts of the microkernels may depend on."""
        machine = self.machine
        # Weights that do not stay in a core's caches from call to call.
        streamed = sum(value.nbytes for value in graph.constants.values()) > machine.far_bytes
        return replace(
            self.channels.options,
            flipped=flipped,
            # What waits for steps has room for whole blocks.
            masked=not self.channels.stepped,
            ahead=machine.ahead if self.micro.fetches and streamed else 0,
        )

    def _rest(self, graph: Lowered, epilogue: Epilogue, t: Tiling) -> Rest:
        """What takes the results of a microkernel through the rest of the steps."""
        g, chain, out = t.g, self.channels.rest, image_of(graph.stored(self.node.output))
        vectors, sums = self.micro.steps.vectors, self.micro.steps.sums
        acc_index, out_index = f"(q - first) * {t.channels}", _at_pixel(out, g)
        add = self._add(graph, sums) if sums and g.groups == 1 else None
        if add and sums:
            other = image_of(graph.stored(add.operand))
            dense = t.channels == g.oc == out.pixel
            count = f"count * {g.oc}" if dense else str(g.oc)
            operand = f"{epilogue.param(add.operand)} + {_at_pixel(other, g)}"
            call = sums.call(
                epilogue, add, f"acc + {acc_index}", operand, f"out + {out_index}", count
            )
            if not dense:
                return Rest(call)
            return Rest(call, "all" if _in_line(out, g) and _in_line(other, g) else "row")
        channel = "c" if g.groups == 1 else f"(group * {g.group_out} + c)"
        axes = output_axes(g, self.node.op, "q", channel)
        acc_index, out_index = f"{acc_index} + c", f"{out_index} + {channel}"
        lanes: Code = None
        if g.groups == 1 and vectors:
            lanes = write_lanes(vectors, epilogue, chain, acc_index, out_index, axes)
        elif vectors:
            epilogue.slower.append("steps one element at a time: groups of channels")
        return Rest(lanes or write_scalar(epilogue, chain, acc_index, out_index, axes, g.group_out))

    def _add(self, graph: Lowered, sums: Sums) -> AnyAdd | None:
        """The sum with another tensor that a microkernel's results wait for, if they wait for
        one."""
        chain = self.channels.rest
        add = add_of(graph, chain.steps, chain.start, sums)
        if isinstance(add, str):
            return None
        whole = graph.type(add.operand).shape == graph.type(self.node.output).shape
        return add if whole else None


KERNELS = tuple(
    Kernel(
        name=f"{op.name}_tile_{micro.name}",
        op=op,
        isa=micro.name,
        prepare=functools.partial(Tiled.of, micro=micro),
        # Of another set's tiles, its own row says why there are none.
        kind=(lambda graph, node: False) if micro.base else any_kind,
        split=True,
    )
    for micro in MICROKERNELS
    for op in (Conv2d, Dense)
)
