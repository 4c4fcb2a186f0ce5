"""The kernel of ``resize``: rows and columns are a quotient of the place, or read from an array."""

from __future__ import annotations

import math

import numpy as np

from tinyai.codegen.ctree import Assign, Code, nest
from tinyai.codegen.index import Axis
from tinyai.codegen.lowered import Kernel, Lowered, at_strides, written
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Node
from tinyai.ops import Resize


def _index(var: str, indices: tuple[int, ...], size: int, epilogue: Epilogue) -> str:
    """``indices[var]`` as C: var * times / parts where that gives all of them, else an array."""
    common = math.gcd(size, len(indices))
    times, parts = size // common, len(indices) // common
    if any(index != place * times // parts for place, index in enumerate(indices)):
        return f"{epilogue.array(np.array(indices, np.int32))}[{var}]"
    scaled = var if times == 1 else f"{var} * {times}"
    return scaled if parts == 1 else f"({scaled} / {parts})"


def _code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    op = node.op
    assert isinstance(op, Resize)
    shape = graph.type(node.inputs[0]).shape
    names = {"N": "n", "H": "y", "W": "x", "C": "c"}
    sizes = zip(op.layout, graph.type(node.output).shape, strict=True)
    loops = [Axis(names[axis], (size,)) for axis, size in sizes]
    places = [axis.var for axis in loops]
    for axis, indices in op.sources().items():
        places[axis] = _index(places[axis], indices, shape[axis], epilogue)
    read = _element(places, graph.stored(node.inputs[0]).strides)
    write = _element([axis.var for axis in loops], graph.stored(node.output).strides)
    return nest(loops, Assign(f"out[{write}]", f"in0[{read}]"))


def _element(places: list[str], steps: tuple[int, ...]) -> str:
    return " + ".join(
        place if step == 1 else f"{place} * {step}"
        for place, step in zip(places, steps, strict=True)
    )


KERNELS = (
    Kernel(
        name="resize_scalar",
        op=Resize,
        prepare=written(_code, at_strides),
    ),
)
