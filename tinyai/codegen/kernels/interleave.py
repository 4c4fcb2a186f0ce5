"""Kernels of planes that become channels: each plane has its steps on the way to a buffer of some
pixels, which is interleaved at once."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from tinyai.codegen.c import C_TYPES
from tinyai.codegen.ctree import Assign, Code, Declare, For, let, nest
from tinyai.codegen.index import Axis
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.vectors import Vectors, no_vector
from tinyai.codegen.kernels.image import border_of, takes_border
from tinyai.codegen.kernels.layout import Copy
from tinyai.codegen.kernels.work_stealing import axis_share, cut
from tinyai.codegen.lowered import Kernel, Lowered, Prepared
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Node
from tinyai.ops import Interleave
from tinyai.passes.make_tables import depends_on_value_alone

# Pixels of a buffer: a row of most networks' images.
PIXELS = 256
_IN_BUFFER = f"c * {PIXELS} + (p - x)"


@dataclass(frozen=True)
class Planes(Prepared):
    """Planes, in ``vectors`` of pixels where there are such. Threads share rows, or the buffers of
    a single one. Pixels of a row are counted by ``p``, buffers of it by ``x``, planes by ``c``."""

    vectors: Vectors | None

    def takes(self, graph: Lowered, name: str) -> bool:
        return name == self.node.output and takes_border(graph, name)

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        copy, out = _copy(graph, self.node), graph.stored(self.node.output)
        *rows, pixels, planes = _axes(copy)
        shared = cut([*rows, pixels], epilogue.threads)
        begin, end = ("begin", "end") if shared == pixels.var else (0, pixels.count)
        row = For(
            *("x", begin, end),
            Declare(C_TYPES[out.type.dtype], f"planes[{planes.count * PIXELS}]"),
            let("stop", f"x + {PIXELS} < {end} ? x + {PIXELS} : {end}"),
            For("c", 0, planes.count, self._plane(graph, epilogue, copy)),
            For("p", "x", "stop", For("c", 0, planes.count, _interleaved(copy))),
            step=PIXELS,
        )
        return [
            border_of(out, epilogue),
            axis_share([*rows, pixels], shared),
            nest(rows, row, cut=shared),
        ]

    def _plane(self, graph: Lowered, epilogue: Epilogue, copy: Copy) -> Code:
        """Pixels of plane ``c``, after the steps, in the buffer."""
        *rows, pixel, planes = axes = _axes(copy)
        at = _address(copy.in_base, axes, copy.in_steps)
        dtype, v = graph.type(self.node.inputs[0]).dtype, self.vectors
        if v is None:
            place, chain = f"planes[{_IN_BUFFER}]", self.node.epilogue
            one = epilogue.write_to(place, f"in0[{at}]", dtype, axes, chain)
            return For("p", "x", "stop", one)
        value = v.load(f"in0 + {at}", dtype)
        steps = v.steps(epilogue, [*rows, planes, pixel], value, dtype, f"planes + {_IN_BUFFER}")
        return For("p", "x", "stop", v.mask(pixel, v.lanes), steps, step=v.lanes)


def _interleaved(copy: Copy) -> Code:
    to = _address(copy.out_base, _axes(copy), copy.out_steps)
    return Assign(f"out[{to}]", f"planes[{_IN_BUFFER}]")


def _axes(copy: Copy) -> list[Axis]:
    *rows, pixel, planes = copy.axes
    return [*rows, Axis("p", pixel.sizes), Axis("c", planes.sizes)]


def _address(base: int, axes: Sequence[Axis], steps: Sequence[int]) -> str:
    terms = [f"{axis.var} * {step}" for axis, step in zip(axes, steps, strict=True)]
    return " + ".join([*terms, str(base)] if base else terms)


def _copy(graph: Lowered, node: Node) -> Copy:
    """The planes in the fewest loops; where operands want them, in all dimensions."""
    assert isinstance(node.op, Interleave)
    source, out = graph.stored(node.inputs[0]), graph.stored(node.output)
    steps = list(source.strides)
    steps.append(steps.pop(node.op.axis))
    copy = Copy(0, out.type.shape, 0, tuple(steps), out.first, out.strides)
    merged = copy.merged()
    return merged if len(merged.counts) > 1 and _places_are_alike(graph, node) else copy


def _places_are_alike(graph: Lowered, node: Node) -> bool:
    return all(depends_on_value_alone(graph, step) for step in node.epilogue)


def _prepared(graph: Lowered, node: Node, *, vectors: Vectors | None) -> Prepared | str:
    if vectors is None:
        return Planes(node, None)
    if not _places_are_alike(graph, node):
        return "steps that depend on an element's place"
    *_, pixel, _ = _axes(_copy(graph, node))
    dtype = graph.type(node.inputs[0]).dtype
    lacking = vectors.lacks(graph, [pixel], dtype, node.epilogue)
    return no_vector(lacking) if lacking else Planes(node, vectors)


KERNELS = tuple(
    Kernel(
        name=f"interleave_planes_{isa}",
        op=Interleave,
        isa=isa,
        prepare=functools.partial(_prepared, vectors=vectors),
        split=True,
    )
    for isa, vectors in (*((each.name, each.vectors) for each in MICROKERNELS), ("scalar", None))
    if vectors or isa == "scalar"
)
