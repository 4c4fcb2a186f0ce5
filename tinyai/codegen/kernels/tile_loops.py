"""The loops of a tiled convolution or dense layer: stripes of outputs, groups, weight panels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tinyai.codegen.ctree import Assign, Block, CallStatement, Code, Declare, For, If, let
from tinyai.codegen.helpers import COVER, TILE_ARGS
from tinyai.codegen.kernels.channels import Channels
from tinyai.codegen.kernels.image import Images
from tinyai.codegen.kernels.work_stealing import owners, shared
from tinyai.codegen.shapes.tiling import Tiling
from tinyai.codegen.steps import Epilogue


@dataclass(frozen=True)
class WeightPanelCall:
    """The microkernels that cover a stripe of outputs, for a weight panel or for ``count``
    neighbouring ones. ``microkernel`` computes tiles of ``pixels`` outputs up to the ``first`` ones
    of a whole stripe, or ``last_first`` of the last one; ``other`` the rest. The panels' weights
    and channels are ``weights_step`` and ``channel_step`` apart."""

    number: int
    microkernel: str
    other: str | None
    pixels: int
    first: int
    last_first: int
    bytes: int
    last_block: int
    weights: int
    channel: int
    count: int = 1
    weights_step: int = 0
    channel_step: int = 0

    def at(self, first: int, step: int) -> str:
        """A number of the panel that the loop is at."""
        return f"{first} + panel * {step}" if self.count > 1 else str(first)


def looped(calls: Sequence[WeightPanelCall]) -> tuple[WeightPanelCall, ...]:
    """The calls with a loop for neighbouring panels that differ in their place only."""
    loops = []
    for _, (first, *others) in itertools.groupby(
        calls, lambda call: replace(call, number=0, weights=0, channel=0)
    ):
        if others:
            steps = others[0].weights - first.weights, others[0].channel - first.channel
            first = replace(
                first, count=1 + len(others), weights_step=steps[0], channel_step=steps[1]
            )
        loops.append(first)
    return tuple(loops)


@dataclass(frozen=True)
class Rest:
    """What takes the results of a microkernel for output ``q`` through the rest of the steps, and
    for how many outputs at once: for one, or for a ``count`` to the end of the row, or of all."""

    code: Code
    at_once: Literal["one", "row", "all"] = "one"


@dataclass(frozen=True)
class TileLoops:
    """A layer whose panels are calls of microkernels.

    - ``width``: outputs of a row, or of all where the image is one long row; ``out_column`` is from
      output to output.
    - ``arrays``: names of the numbers of the channels that there are.
    - ``rest``: the steps after the microkernels, which wait in the scratch memory; None where
      there are none.
    - ``ahead``: bytes of weights that are fetched in time; 0 where they are near.
    - ``by_panels``: threads share panels: ``dealt`` are so many, and how many pieces each has.
      Otherwise they share outputs. ``pieces`` are those of a thread's share.
    """

    t: Tiling
    images: Images
    channels: Channels
    calls: tuple[WeightPanelCall, ...]
    width: int
    out_column: int
    arrays: Mapping[str, str]
    rest: Rest | None
    ahead: int
    by_panels: bool
    dealt: tuple[int, int]
    pieces: int
    threads: int

    def code(self, epilogue: Epilogue) -> Code:
        epilogue.need(TILE_ARGS)
        return [
            Declare("tinyai_tile_args", "p"),
            [Assign(f"p.{name}", value) for name, value in self._layer().items()],
            self._where(),
            For("n", 0, self.t.g.n, self.images.opened(epilogue), self._image(epilogue)),
        ]

    @property
    def _by_outputs(self) -> bool:
        return self.threads > 1 and not self.by_panels

    @property
    def _stolen(self) -> bool:
        """Whether threads steal panels of each other."""
        return self.by_panels and self.pieces > 1

    def _layer(self) -> dict[str, str | int]:
        """What is the same for all panels."""
        g, source = self.t.g, self.images.source
        (down, along), dilation = g.window.strides, g.window.dilation
        return {
            "in_row": down * source.row,
            "in_column": along * source.pixel,
            "rows": g.window.kernel[0],
            "columns": self.t.columns,
            "bytes": self.t.bytes,
            "row_step": dilation[0] * source.row,
            "column_step": dilation[1] * g.c,
            "flip": self.images.signs.flip,
            **({"fetched": 0} if self.ahead else {}),
            "width": self.width,
            **self.channels.layer(self.arrays),
        }

    def _where(self) -> Code:
        """Where the results go: to the output, or to ``acc``, where they wait."""
        t, stored = self.t, self.channels.rest.start
        if self.rest is None:
            row, column = self.images.target.row, self.out_column
            where = Assign("p.out_row", row), Assign("p.out_column", column)
            return *where, Assign("p.out_skip", 0)
        share = t.schedule.stripe * t.channels if self._by_outputs else 0
        return (
            self.channels.waiting(self.images.source.copy_bytes, share),
            Assign("p.out_row", stored.bytes * t.g.ow * t.channels),
            Assign("p.out_column", stored.bytes * t.channels),
        )

    def _image(self, epilogue: Epilogue) -> Code:
        stripes = self._stripes(epilogue)
        if self._by_outputs:
            return shared(self.t.outputs, self.pieces, epilogue, stripes)
        return self._dealt(epilogue, stripes) if self._stolen and self.rest is None else stripes

    def _dealt(self, epilogue: Epilogue, code: Code) -> Code:
        """Code for the panels that the thread claims, one after the other."""
        mine = Declare("int", "mine", "tinyai_claim(thread, owner)")
        return owners(*self.dealt, epilogue, Declare("int", "item", 0), mine, code)

    def _stripes(self, epilogue: Epilogue) -> Code:
        outputs, stripe = self.t.outputs, self.t.schedule.stripe
        groups = For("group", 0, self.t.g.groups, self._group(epilogue))
        if self._by_outputs and outputs > stripe * self.pieces:
            return [
                let("stripes", f"(end - begin + {stripe - 1}) / {stripe}"),
                For(
                    *("stripe", 0, "stripes"),
                    let("first", "begin + (end - begin) * stripe / stripes"),
                    let("last", "begin + (end - begin) * (stripe + 1) / stripes"),
                    groups,
                ),
            ]
        if self._by_outputs:
            return Block(let("first", "begin"), let("last", "end"), groups)
        last = f"first + {stripe}"
        if outputs % stripe:
            last = f"{last} < {outputs} ? {last} : {outputs}"
        return For("first", 0, outputs, let("last", last), groups, step=stripe)

    def _group(self, epilogue: Epilogue) -> Code:
        panels: Code = [
            Assign("p.in", f"image + group * {self.t.g.group_in}"),
            [self._panels(call, epilogue) for call in self.calls],
        ]
        if self.rest is None:
            return panels
        if self._stolen:
            panels = self._dealt(epilogue, panels)
        if not self.by_panels:
            return [panels, self._rest(self.rest, "first", "last")]
        again = self.t.g.n > 1 or self.t.g.groups > 1 or self.t.schedule.stripe < self.t.outputs
        of = "first + (last - first)"
        return [
            panels,
            CallStatement("tinyai_barrier", "thread"),
            let("behind", f"{of} * (thread->task + 1) / thread->tasks"),
            self._rest(self.rest, f"{of} * thread->task / thread->tasks", "behind"),
            CallStatement("tinyai_barrier", "thread") if again else None,
        ]

    def _rest(self, rest: Rest, begin: str, end: str) -> Code:
        if rest.at_once == "one":
            return For("q", begin, end, rest.code)
        ow = self.t.g.ow
        row = Assign("count", f"count < {ow} - q % {ow} ? count : {ow} - q % {ow}")
        return Block(
            Assign("count", f"{end} - q"),
            row if rest.at_once == "row" else None,
            rest.code,
            head=f"for (ptrdiff_t q = {begin}, count; q < {end}; q += count)",
        )

    def _panels(self, call: WeightPanelCall, epilogue: Epilogue) -> Code:
        code = self._panel(call, epilogue)
        if self.by_panels:
            number = f"{call.number} + panel" if call.count > 1 else str(call.number)
            if self.t.g.groups > 1 and self.rest is None:
                number = f"group * {len(self.t.panels)} + {number}"
            whose = "owner && item++ == mine" if self._stolen else "thread->task"
            following = Assign("mine", "tinyai_claim(thread, owner)") if self._stolen else None
            code = If(f"({number}) % thread->tasks == {whose}", code, following)
        return For("panel", 0, call.count, code) if call.count > 1 else code

    def _panel(self, call: WeightPanelCall, epilogue: Epilogue) -> Code:
        t, target = self.t, self.images.target
        weights = call.at(call.weights, call.weights_step)
        channel = call.at(call.channel, call.channel_step)
        of = f"group * {t.channels} + {channel}"
        group_bytes = t.block_bytes * (t.channels // t.machine.lanes)
        ahead = f"{call.bytes}{' * thread->tasks' if self.by_panels else ''}"
        out = f"(char *)out + n * {target.image} + {target.first} + group * {t.g.group_out}"
        waiting = f"first * {self.channels.rest.start.bytes * t.channels}"
        return [
            Assign("p.weights", f"in1 + group * {group_bytes} + {weights}"),
            Assign("p.ahead", ahead) if self.ahead else None,
            self.channels.numbers(self.arrays, of),
            Assign("p.out", f"(char *)(acc + {channel})" if self.rest else f"{out} + {channel}"),
            Assign("p.out_skip", waiting) if self.rest else None,
            Assign("p.last_block", call.last_block),
            Assign("p.first", "first"),
            self._tiles(call, epilogue),
        ]

    def _tiles(self, call: WeightPanelCall, epilogue: Epilogue) -> Code:
        """The outputs of a stripe: by one microkernel, or the last ones by another."""
        last = Assign("p.last", "last")
        if call.other is None:
            return last, CallStatement(call.microkernel, "&p")
        stripe = self.t.schedule.stripe
        end = f"first + {call.first}"
        if self._by_outputs:
            end = f"first + {epilogue.need(COVER)}(last - first, {call.pixels})"
        elif self.t.outputs % stripe:
            end = f"last - first == {stripe} ? {end} : first + {call.last_first}"
        return (
            Assign("p.last", end),
            CallStatement(call.microkernel, "&p"),
            Assign("p.first", "p.last"),
            last,
            CallStatement(call.other, "&p"),
        )
