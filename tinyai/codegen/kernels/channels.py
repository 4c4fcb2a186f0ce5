"""Numbers of a convolution's output channels, as SIMD kernels want them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tinyai.codegen.c import C_TYPES
from tinyai.codegen.ctree import Assign, Code, Declare
from tinyai.codegen.isa.microkernels import ConvOptions
from tinyai.codegen.kernels.image import turned
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.requantization import Requantization, Rounded, requantization_of
from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.steps import Epilogue, StepChain
from tinyai.ir import NARROW, Array, DType, Node
from tinyai.ops.steps import Cast
from tinyai.ops.window import NHWC

STARTS = ("start", "start_signed")
# Of a requantization, one a channel.
NUMBERS = ("left", "multiplier", "offset", "right")


def no_bytes(g: Geometry) -> str | None:
    """Why an input is not pixels of bytes, which SIMD kernels read; None where it is."""
    if g.layout != NHWC:
        return f"layout {g.layout}"
    return None if g.data in NARROW else f"data of {g.data}"


@dataclass(frozen=True, eq=False)
class Channels:
    """What accumulators start from, also where the signs of an input are not turned; their
    requantization or why there is none (the sums are *raw* then), and the steps that are left to do
    after it, one by one."""

    start: Array
    start_signed: Array
    form: Requantization | Rounded | str
    rest: StepChain

    @classmethod
    def of(cls, graph: Lowered, node: Node, g: Geometry, *, rounds: bool = False) -> Channels:
        """Accumulators start from the bias less the part of the zero point; an input that is made
        unsigned or signed on its way has another one. ``rounds``: for instructions that round."""
        weight = graph.constants[node.inputs[1]]
        data = graph.type(node.inputs[0]).dtype
        rows = weight.reshape(weight.shape[0], -1).astype(np.int64)
        farthest = max(abs(bound - g.zero_point) for bound in data.range)
        reach = np.abs(rows).sum(axis=1) * farthest
        axis = len(graph.type(node.output).shape) - 1
        form: Requantization | Rounded | str
        form, rest = _longest(graph, node, g.oc, axis, reach)
        if rounds and not isinstance(form, str):
            form = form.rounded or form
        bias = 0 if isinstance(form, str) else form.bias
        zero_points = turned(g.zero_point, data, graph.bytes_are), g.zero_point
        start, signed = ((bias - each * rows.sum(axis=1)).astype(np.int32) for each in zero_points)
        return cls(start, signed, form, rest)

    @property
    def raw(self) -> bool:
        return isinstance(self.form, str)

    @property
    def stepped(self) -> bool:
        """Whether steps follow the microkernel, whose results wait for them in scratch memory."""
        return self.raw or bool(self.rest.steps)

    def slower(self, node: Node) -> list[str]:
        """Why the sums are not requantized in registers, where they end in 8 bits."""
        ends = any(isinstance(step, Cast) and step.to in NARROW for step in node.epilogue)
        return [f"requantized from memory: {self.form}"] if self.raw and ends else []

    @property
    def options(self) -> ConvOptions:
        """What a microkernel's text depends on."""
        form = self.form
        if isinstance(form, str):
            return ConvOptions(raw=True)
        bounded = (form.low, form.high) != form.dtype.range
        unsigned = form.dtype is DType.UINT8
        if isinstance(form, Rounded):
            return ConvOptions(
                rounded=True,
                nearest=form.nearest,
                away=form.away,
                least=form.zero_point == form.dtype.range[0],
                bounded=bounded,
                unsigned=unsigned,
            )
        return ConvOptions(
            shifted="left" in form.numbers,
            twice=form.twice,
            floats=form.floats,
            bounded=bounded,
            unsigned=unsigned,
        )

    def layer(self, arrays: Mapping[str, str]) -> dict[str, str | int]:
        """What microkernels ask for that is the same for all channels; ``arrays`` are the names of
        the numbers that there are."""
        low, high = (0, 0) if isinstance(self.form, str) else (self.form.low, self.form.high)
        shared = {"offset": arrays["offset"]} if isinstance(self.form, Rounded) else {}
        none = {name: "NULL" for name in NUMBERS if name not in arrays}
        return {"low": low, "high": high, **none, **shared}

    def numbers(self, arrays: Mapping[str, str], at: str) -> Code:
        """The numbers of the channels from a place of their arrays on."""
        own = () if isinstance(self.form, str) else self.form.numbers
        starts = (name for name in STARTS if name in arrays)
        names = (*starts, *(name for name in NUMBERS if name in own))
        return [Assign(f"p.{name}", f"{arrays[name]} + {at}") for name in names]

    def waiting(self, offset: int, share: int) -> Declare:
        """``acc``, where results wait for steps: ``offset`` bytes into the scratch memory, and so
        many elements for each thread, if they have shares."""
        c_type = C_TYPES[self.rest.start]
        acc = f"({c_type} *)(void *)((char *)scratch + {offset})"
        own = f" + thread->task * (ptrdiff_t){share}" if share else ""
        return Declare(f"{c_type} *const", "acc", acc + own)

    def arrays(
        self, epilogue: Epilogue, order: Callable[[Array], Array], *, signed: bool = False
    ) -> dict[str, str]:
        """Names of the pointer parameters of the numbers that there are, each put in ``order``.
        ``signed``: microkernels may read signed bytes as they are."""
        names = {"start": epilogue.array(order(self.start))}
        if signed:
            names["start_signed"] = epilogue.array(order(self.start_signed))
        for name in () if isinstance(self.form, str) else self.form.numbers:
            names[name] = epilogue.array(order(getattr(self.form, name)))
        if isinstance(self.form, Rounded):  # one zero point for all channels
            names["offset"] = epilogue.array(np.array([self.form.zero_point], np.int32))
        return names


def _longest(
    graph: Lowered, node: Node, channels: int, axis: int, reach: Array
) -> tuple[Requantization | str, StepChain]:
    """The requantization that an epilogue is or begins with, and the steps after it."""
    whole = node.epilogue
    casts = (i for i, step in enumerate(whole, 1) if isinstance(step, Cast) and step.to in NARROW)
    for end in (len(whole), next(casts, len(whole))):
        form = requantization_of(graph, node, whole[:end], channels, axis, reach)
        if not isinstance(form, str):
            return form, StepChain(form.dtype, whole[end:])
    return form, StepChain(DType.INT32, whole)
