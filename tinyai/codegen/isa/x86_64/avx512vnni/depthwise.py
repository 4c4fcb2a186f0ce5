"""The depthwise microkernel for AVX-512: the outputs of a line of a row in straight code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import DEPTHWISE_ARGS
from tinyai.codegen.isa.microkernels import Options, name_of
from tinyai.codegen.isa.x86_64.avx512vnni.simd import SIMD, scale
from tinyai.codegen.steps import Epilogue
from tinyai.ops.window import Window

if TYPE_CHECKING:
    from tinyai.codegen.kernels.depthwise import ChannelBlocks, Stretch


BYTES = 64  # of a vector


@dataclass(frozen=True, kw_only=True)
class DepthwiseText(Options):
    """Microkernels have straight ``lines`` for some outputs and the stretches that these see."""

    lines: tuple[tuple[int, tuple[Stretch, ...]], ...]
    lanes: int
    window: Window
    groups: int


def depthwise(epilogue: Epilogue, s: ChannelBlocks, *, lanes: int, options: Options) -> str:
    """Name of the microkernel."""
    line, rest = s.lines()
    name = name_of(
        "depthwise",
        *s.said(),
        f"{line}_{rest}",
        f"c{s.g.c}" if s.flat else "",
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
        lines=tuple((n, tuple(s.stretches(n))) for n in (line, rest) if n),
        lanes=lanes,
        window=s.window,
        groups=s.groups,
    )
    template = "depthwise_avx512vnni.c.j2"
    return epilogue.need(Definition(name, template, tuple(needs), arguments=text))
