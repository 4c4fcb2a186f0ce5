"""Kernels of operators that reduce dimensions: sum, softmax."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyai.codegen.c import C_TYPES, literal
from tinyai.codegen.helpers import MATH, SOFTMAX
from tinyai.codegen.index import Axis, place
from tinyai.codegen.kernels.table import Kernel, Values, at_strides
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.steps import Epilogue
from tinyai.ir import DType, Node
from tinyai.ops import IntegerSoftmax, Softmax, Sum, TableSoftmax


@dataclass(frozen=True)
class SumLoops:
    """Loops over the dimensions that are kept and those that are added up; ``places`` are those of
    the output; ``taken`` is the number of the input's element."""

    kept: list[Axis]
    reduced: list[Axis]
    places: list[Axis]
    taken: str

    @classmethod
    def of(cls, graph: Lowered, node: Node) -> SumLoops:
        op = node.op
        assert isinstance(op, Sum)
        (data,) = graph.types(node.inputs)
        loops = [Axis(f"i{dim}", (size,)) for dim, size in enumerate(data.shape)]
        terms = zip(loops, graph.stored(node.inputs[0]).strides, strict=True)
        # Kept dimensions of length 1 have no loop: their position is 0.
        places = [
            Axis("0", (1,)) if dim in op.axes else axis
            for dim, axis in enumerate(loops)
            if op.keepdims or dim not in op.axes
        ]
        return cls(
            [axis for dim, axis in enumerate(loops) if dim not in op.axes],
            [loops[dim] for dim in op.axes],
            places,
            " + ".join(f"{axis.var} * {step}" for axis, step in terms) or "0",
        )


def _sum_values(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    loops = SumLoops.of(graph, node)
    out = graph.stored(node.output)
    steps = epilogue.write("acc", DType.INT32, loops.places)
    return {
        "kept": loops.kept,
        "reduced": loops.reduced,
        "taken": loops.taken,
        "store": place(out, loops.places),
        "steps": steps,
        "result": epilogue.result,
    }


def _three_loops(shape: tuple[int, ...], axis: int) -> list[Axis]:
    """Before, along and behind an axis."""
    return [Axis("o", shape[:axis]), Axis("i", (shape[axis],)), Axis("n", shape[axis + 1 :])]


def _softmax_values(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    op = node.op
    assert isinstance(op, Softmax)
    (data,) = graph.types(node.inputs)
    axes = _three_loops(data.shape, op.axis)
    epilogue.need(MATH)
    steps = epilogue.write("acc", DType.FLOAT32, axes)
    return {
        "log": op.log,
        "outer": axes[0].count,
        "count": axes[1].count,
        "inner": axes[2].count,
        "steps": steps,
        "result": epilogue.result,
    }


def _softmax_scratch(graph: Lowered, node: Node, threads: int) -> int:
    op = node.op
    assert isinstance(op, Softmax)
    return 0 if op.log else graph.type(node.inputs[0]).shape[op.axis] * DType.FLOAT32.bytes


def _integer_softmax_values(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    op = node.op
    assert isinstance(op, IntegerSoftmax)
    (data,) = graph.types(node.inputs)
    axes = _three_loops(data.shape, op.axis)
    epilogue.need(SOFTMAX)
    powers = epilogue.array(np.array(op.powers, np.int32))
    steps = epilogue.write("acc", DType.INT8, axes)
    return {
        "outer": axes[0].count,
        "count": axes[1].count,
        "inner": axes[2].count,
        "powers": powers,
        "steps": steps,
        "result": epilogue.result,
    }


def _table_softmax_values(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    op = node.op
    assert isinstance(op, TableSoftmax)
    (data,) = graph.types(node.inputs)
    axes = _three_loops(data.shape, op.axis)
    powers = epilogue.array(np.array(op.powers, np.float32))
    steps = epilogue.write("acc", DType.FLOAT32, axes)
    return {
        "type": C_TYPES[data.dtype],
        "outer": axes[0].count,
        "count": axes[1].count,
        "inner": axes[2].count,
        "powers": powers,
        "factor": literal(np.float32(op.factor), DType.FLOAT32),
        "steps": steps,
        "result": epilogue.result,
    }


KERNELS = (
    Kernel(
        name="sum_scalar",
        op=Sum,
        template="sum_scalar.c.j2",
        values=_sum_values,
        takes=at_strides,
    ),
    Kernel(
        name="softmax_scalar",
        op=Softmax,
        template="softmax_scalar.c.j2",
        values=_softmax_values,
        scratch=_softmax_scratch,
    ),
    Kernel(
        name="integer_softmax_scalar",
        op=IntegerSoftmax,
        template="integer_softmax_scalar.c.j2",
        values=_integer_softmax_values,
    ),
    Kernel(
        name="table_softmax_scalar",
        op=TableSoftmax,
        template="table_softmax_scalar.c.j2",
        values=_table_softmax_values,
    ),
)
