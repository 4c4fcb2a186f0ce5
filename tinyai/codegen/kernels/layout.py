"""Kernels of the operators that move values: every one is a list of strided copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tinyai.codegen.c import literal
from tinyai.codegen.ctree import Assign, Code, For, nest
from tinyai.codegen.index import Axis
from tinyai.codegen.kernels.image import border_of, takes_border
from tinyai.codegen.lowered import Kernel, Lowered, at_strides, written
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Node
from tinyai.ops import Concatenate, Pad, Reshape, Slice, Transpose


@dataclass(frozen=True)
class Copy:
    """``out[out_base + Σ i·out_step] = in<source>[in_base + Σ i·in_step]`` over ``counts``."""

    source: int
    counts: tuple[int, ...]
    in_base: int
    in_steps: tuple[int, ...]
    out_base: int
    out_steps: tuple[int, ...]

    def merged(self) -> Copy:
        """The same copy in the fewest loops: neighbours that are dense on both sides merge."""
        counts: list[int] = []
        ins: list[int] = []
        outs: list[int] = []
        for count, i, o in zip(self.counts, self.in_steps, self.out_steps, strict=True):
            if count == 1:
                continue
            if counts and ins[-1] == i * count and outs[-1] == o * count:
                counts[-1], ins[-1], outs[-1] = counts[-1] * count, i, o
            else:
                counts.append(count)
                ins.append(i)
                outs.append(o)
        return Copy(
            self.source, tuple(counts), self.in_base, tuple(ins), self.out_base, tuple(outs)
        )

    def without(self, *loops: int) -> Copy:
        """The loops around these."""
        rest = [n for n in range(len(self.counts)) if n not in loops]
        counts, ins, outs = (
            tuple(each[n] for n in rest) for each in (self.counts, self.in_steps, self.out_steps)
        )
        return replace(self, counts=counts, in_steps=ins, out_steps=outs)

    def address(self, base: int, steps: Sequence[int]) -> str:
        terms = [f"i{n}" if step == 1 else f"i{n} * {step}" for n, step in enumerate(steps)]
        terms += [str(base)] if base or not terms else []
        return " + ".join(terms)

    @property
    def axes(self) -> list[Axis]:
        return [Axis(f"i{n}", (count,)) for n, count in enumerate(self.counts)]

    @property
    def read(self) -> str:
        return self.address(self.in_base, self.in_steps)

    @property
    def write(self) -> str:
        return self.address(self.out_base, self.out_steps)


def _joining(graph: Lowered, node: Node) -> list[Copy]:
    out = graph.stored(node.output)
    subviews = graph.subviews(node)
    start = out.subview.offset if out.subview else 0
    copies = []
    for number in graph.copied(node):
        source = graph.stored(node.inputs[number])
        base = (subviews[number].offset - start) // out.type.dtype.bytes
        copies.append(Copy(number, source.type.shape, 0, source.strides, base, out.strides))
    return copies


def copies_of(graph: Lowered, node: Node) -> list[Copy]:
    """What a node copies, in elements."""
    inputs = graph.types(node.inputs)
    out, first = graph.stored(node.output).strides, graph.stored(node.output).first
    source = graph.stored(node.inputs[0]).strides
    match node.op:
        case Transpose(order):
            shape = graph.type(node.output).shape
            return [Copy(0, shape, 0, tuple(source[axis] for axis in order), first, out)]
        case Slice(begin, steps, shape):
            base = sum(b * s for b, s in zip(begin, source, strict=True))
            taken = tuple(step * s for step, s in zip(steps, source, strict=True))
            return [Copy(0, shape, base, taken, 0, out)]
        case Pad(widths):
            base = sum(before * s for (before, _), s in zip(widths, out, strict=True))
            return [Copy(0, inputs[0].shape, 0, source, base, out)]
        case Concatenate():
            return _joining(graph, node)
    assert isinstance(node.op, Reshape)
    return [Copy(0, (inputs[0].elements,), 0, (1,), 0, (1,))]


def _code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    out = graph.type(node.output)
    copies = [copy.merged() for copy in copies_of(graph, node)]
    unused = sorted(set(range(len(node.inputs))) - {copy.source for copy in copies})
    fill = None
    if isinstance(node.op, Pad):
        fill = For("i", 0, out.elements, Assign("out[i]", literal(node.op.value, out.dtype)))
    return [
        fill,
        [f"(void)in{number};" for number in unused],
        border_of(graph.stored(node.output), epilogue),
        [
            nest(copy.axes, Assign(f"out[{copy.write}]", f"in{copy.source}[{copy.read}]"))
            for copy in copies
        ],
    ]


def _takes(graph: Lowered, node: Node, name: str) -> bool:
    """Copies go from and to any strides, but for a reshape's; what is filled first is dense. A
    concatenation and a transposition write the border around their result."""
    if name == node.output and isinstance(node.op, Concatenate | Transpose):
        return isinstance(node.op, Concatenate) or takes_border(graph, name)
    filled = isinstance(node.op, Pad) and name == node.output
    return not filled and not isinstance(node.op, Reshape) and at_strides(graph, node, name)


KERNELS = tuple(
    Kernel(
        name=f"{op.name}_scalar",
        op=op,
        prepare=written(_code, _takes),
    )
    for op in (Transpose, Slice, Pad, Concatenate, Reshape)
)
