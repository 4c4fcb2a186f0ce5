"""Kernels of the operators that move values: every one is a list of strided copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyai.codegen.c import literal
from tinyai.codegen.index import strides
from tinyai.codegen.kernels.table import Kernel, Values
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Graph, Node
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

    def address(self, base: int, steps: Sequence[int]) -> str:
        terms = [f"i{n}" if step == 1 else f"i{n} * {step}" for n, step in enumerate(steps)]
        terms += [str(base)] if base or not terms else []
        return " + ".join(terms)

    @property
    def read(self) -> str:
        return self.address(self.in_base, self.in_steps)

    @property
    def write(self) -> str:
        return self.address(self.out_base, self.out_steps)


def _copies(graph: Graph, node: Node) -> list[Copy]:
    inputs = graph.types(node.inputs)
    out = strides(graph.type(node.output).shape)
    source = strides(inputs[0].shape)
    match node.op:
        case Transpose(order):
            shape = graph.type(node.output).shape
            return [Copy(0, shape, 0, tuple(source[axis] for axis in order), 0, tuple(out))]
        case Slice(begin, steps, shape):
            base = sum(b * s for b, s in zip(begin, source, strict=True))
            taken = tuple(step * s for step, s in zip(steps, source, strict=True))
            return [Copy(0, shape, base, taken, 0, tuple(out))]
        case Pad(widths):
            base = sum(before * s for (before, _), s in zip(widths, out, strict=True))
            return [Copy(0, inputs[0].shape, 0, tuple(source), base, tuple(out))]
        case Concatenate(axis):
            copies, at = [], 0
            for number, part in enumerate(inputs):
                steps = tuple(strides(part.shape))
                copies.append(Copy(number, part.shape, 0, steps, at * out[axis], tuple(out)))
                at += part.shape[axis]
            return copies
    assert isinstance(node.op, Reshape)
    return [Copy(0, (inputs[0].elements,), 0, (1,), 0, (1,))]


def _values(graph: Graph, node: Node, epilogue: Epilogue) -> Values:
    out = graph.type(node.output)
    fill = literal(node.op.value, out.dtype) if isinstance(node.op, Pad) else None
    copies = [copy.merged() for copy in _copies(graph, node)]
    return {"copies": copies, "fill": fill, "elements": out.elements}


KERNELS = tuple(
    Kernel(name=f"{op.name}_scalar", op=op, template="copy_scalar.c.j2", values=_values)
    for op in (Transpose, Slice, Pad, Concatenate, Reshape)
)
