"""The depthwise microkernel for AVX-512: the outputs of a line of a row in straight code."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import DEPTHWISE_ARGS
from tinyai.codegen.isa.microkernels import ConvOptions, name_of
from tinyai.codegen.isa.x86_64.avx512vnni.simd import SIMD, scale
from tinyai.codegen.shapes.channel_blocks import WORD, ChannelBlocks
from tinyai.codegen.steps import Epilogue
from tinyai.ops.window import Window

BYTES = 64  # of a vector
# Outputs of a row in one straight line of code, at most.
LONGEST = 8


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


@dataclass(frozen=True, kw_only=True)
class DepthwiseText(ConvOptions):
    """Microkernels have straight ``lines`` for some outputs and the stretches that these see. Where
    pixels are left out, the words that are ``taken`` of two vectors are a column."""

    lines: tuple[tuple[int, tuple[Stretch, ...]], ...]
    lanes: int
    window: Window
    groups: int
    taken: tuple[int, ...]


def depthwise(epilogue: Epilogue, s: ChannelBlocks, *, lanes: int, options: ConvOptions) -> str:
    """Name of the microkernel."""
    line, rest = _lines(s)
    name = name_of(
        "depthwise",
        *s.said(),
        f"{line}_{rest}",
        f"c{s.g.c}" if s.flat and not s.skipped else "",
        f"{lanes}" if lanes < BYTES else "",
        *options.chosen,
        "avx512vnni",
    )
    needs = [DEPTHWISE_ARGS, SIMD]
    if not options.raw:
        words = "_8" if lanes < BYTES else ""
        twice, floats = options.twice, options.floats
        needs.append(scale(twice=twice, floats=floats, words=words))
    text = DepthwiseText(
        **vars(options),
        lines=tuple((n, tuple(_stretches(s, n))) for n in (line, rest) if n),
        lanes=lanes,
        window=s.window,
        groups=s.groups,
        taken=_words_taken(s) if s.skipped else (),
    )
    template = "depthwise_avx512vnni.c.j2"
    parameters = "const tinyai_depthwise_args *const p"
    return epilogue.need(
        Definition(name, template, tuple(needs), arguments=text, parameters=parameters)
    )


def _words_taken(s: ChannelBlocks) -> tuple[int, ...]:
    """The words of 4 channels, of two vectors, whose pixels neighbouring outputs see."""
    of_pixel = s.g.c // WORD
    return tuple(
        word // of_pixel * s.window.strides[1] * of_pixel + word % of_pixel
        for word in range(BYTES // WORD)
    )


def _lines(s: ChannelBlocks) -> tuple[int, int]:
    """Outputs of a line of code, and those that the last line of a row has (0: as many)."""
    if s.width <= LONGEST:
        return s.width, 0

    def cost(length: int) -> tuple[int, int, int]:
        """Columns in all; of equals those without a rest, which is code of its own."""
        rest = s.width % length
        columns = s.width // length * len(_columns(s, length))
        return columns + (len(_columns(s, rest)) if rest else 0), rest, -length

    best = min(range(4, LONGEST + 1), key=cost)
    return best, s.width % best


def _columns(s: ChannelBlocks, outputs: int) -> list[Column]:
    """The columns that so many outputs see, from left to right."""
    kernel, stride, dilation = (
        pair[1] for pair in (s.g.window.kernel, s.g.window.strides, s.g.window.dilation)
    )
    if s.flat:  # distances in bytes; else in pixels
        stride, dilation = BYTES * stride, dilation * s.g.c
    seen: dict[int, list[tuple[int, int]]] = {}
    for o in range(outputs):
        for kx in range(kernel):
            seen.setdefault(o * stride + kx * dilation, []).append((o, kx))
    unit = "" if s.flat else " * p->channels"
    return [Column(f"{at}{unit}", tuple(seen[at])) for at in sorted(seen)]


def _stretches(s: ChannelBlocks, outputs: int) -> list[Stretch]:
    """The columns of so many outputs. Where neighbours meet the same weights (stride 1) they come
    in twos; outputs are requantized in twos, which share the channels' numbers."""
    columns = _columns(s, outputs)
    width = 2 if s.g.window.strides[1] == 1 else 1
    stretches = [_stretch(s, columns[at : at + width]) for at in range(0, len(columns), width)]
    waiting: tuple[int, ...] = ()
    for number, stretch in enumerate(stretches):
        waiting += stretch.done
        ready = len(waiting) > 1 or number == len(stretches) - 1
        stretches[number] = replace(stretch, done=waiting if ready else ())
        waiting = () if ready else waiting
    return stretches


def _stretch(s: ChannelBlocks, columns: list[Column]) -> Stretch:
    uses: dict[int, list[tuple[int, int]]] = {}
    for number, column in enumerate(columns):
        for output, kx in column.seen:
            uses.setdefault(kx, []).append((output, number))
    last = s.g.window.kernel[1] - 1
    return Stretch(
        tuple(columns),
        tuple(output for output, _ in uses.get(0, ())),
        tuple((kx, tuple(uses[kx])) for kx in sorted(uses)),
        tuple(output for output, _ in uses.get(last, ())),
    )
