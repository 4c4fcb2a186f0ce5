"""Kernels of ``interpolate``, which mixes two rows into one and then its columns, and of
``float_interpolate``, whose sums of four keep their order. Where an instruction set has vectors,
their lanes are neighbours in a row, or channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from tinyai.codegen.c import C_TYPES, less, literal
from tinyai.codegen.ctree import Assign, Code, Declare, For, let, nest
from tinyai.codegen.index import Axis
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.vectors import Vectors
from tinyai.codegen.kernels.lanes import vector_row
from tinyai.codegen.kernels.work_stealing import own_scratch, share
from tinyai.codegen.lowered import (
    Kernel,
    Lowered,
    aligned,
    at_strides,
    result_at_strides,
    written,
)
from tinyai.codegen.placed import stored_index
from tinyai.codegen.steps import Epilogue
from tinyai.ir import DType, Node
from tinyai.ops import FloatInterpolate, Interpolate
from tinyai.ops.interpolate import Interpolation, Taps
from tinyai.ops.window import NHWC, axes

ROWS, COLUMNS = ("upper", "lower"), ("left", "right")
CORNERS = [(row, column) for row in ROWS for column in COLUMNS]
INT32, FLOAT32 = DType.INT32, DType.FLOAT32


@dataclass(frozen=True)
class InterpolationLoops:
    """Loops over the output: ``outer`` ones to that over rows, over columns, and ``inner`` ones.
    ``place`` is the input's element that they begin at, ``row`` the elements of one of its rows."""

    op: Interpolation
    outer: Sequence[Axis]
    columns: Axis
    inner: Sequence[Axis]
    place: str
    row: Axis
    steps: tuple[int, int]

    @classmethod
    def of(cls, graph: Lowered, node: Node) -> InterpolationLoops:
        op = node.op
        assert isinstance(op, Interpolation)
        names = {"N": "n", "H": "y", "W": "x", "C": "c"}
        sizes = zip(op.layout, graph.type(node.output).shape, strict=True)
        loops = [Axis(names[axis], (size,)) for axis, size in sizes]
        (_, _, at, _), stored = axes(op.layout), graph.stored(node.inputs[0])
        strides = dict(zip(op.layout, stored.strides, strict=True))
        place = " + ".join(f"{names[d]} * {strides[d]}" for d in op.layout[: at - 1])
        row = Axis("i", stored.type.shape[at:])
        steps = strides["H"], strides["W"]
        return cls(op, loops[:at], loops[at], loops[at + 1 :], place, row, steps)

    @property
    def axes(self) -> list[Axis]:
        return [*self.outer, self.columns, *self.inner]

    def nest(self, epilogue: Epilogue, sums: DType, before: Code, *body: Code) -> Code:
        """The loops around a body, with what is known of a row and a column; ``before`` is code for
        each row of the result. Threads share rows."""
        *images, rows = self.outer
        shared = epilogue.threads > 1
        column = _neighbours(epilogue, self.op.columns, "x", self.steps[1], COLUMNS, sums)
        return [
            share(rows.count) if shared else None,
            nest(
                images,
                For(
                    *(rows.var, *(("begin", "end") if shared else (0, rows.count))),
                    _neighbours(epilogue, self.op.rows, "y", self.steps[0], ROWS, sums),
                    before,
                    For("x", 0, self.columns.count, column, *body),
                ),
            ),
        ]


def _neighbours(
    epilogue: Epilogue, taps: Taps, var: str, step: int, names: tuple[str, str], sums: DType
) -> Code:
    """Where the neighbours of a row or column are, and what they weigh."""
    known: list[Code] = []
    for number, name in enumerate(names):
        at = epilogue.array(np.array([tap[number] for tap in taps], np.int32))
        weight = epilogue.array(np.array([tap[2 + number] for tap in taps], sums.numpy))
        known.append(let(name, f"{at}[{var}] * (ptrdiff_t){step}"))
        known.append(Declare(f"const {C_TYPES[sums]}", f"{name}_weight", f"{weight}[{var}]"))
    return known


def _mixed(v: Vectors, values: Sequence[str], weights: Sequence[str], sums: DType) -> str:
    """A vector's weighted sum."""
    pairs = zip(values, weights, strict=True)
    parts = [v.apply("*", value, v.all_lanes(by, sums), sums) for value, by in pairs]
    return reduce(lambda a, b: v.apply("+", a, b, sums), parts)


# --- In integers ---------------------------------------------------------------------------------


def _row_bytes(graph: Lowered, node: Node) -> int:
    return aligned(InterpolationLoops.of(graph, node).row.count * INT32.bytes)


def _scratch(graph: Lowered, node: Node) -> int:
    return _row_bytes(graph, node) * graph.threads


def _row_of(graph: Lowered, node: Node, epilogue: Epilogue) -> Declare:
    """The mixed row of a thread."""
    scratch = own_scratch(_row_bytes(graph, node), epilogue)
    return Declare("int32_t *const", "row", f"(int32_t *)(void *){scratch}")


def _code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    op, loops = node.op, InterpolationLoops.of(graph, node)
    assert isinstance(op, Interpolate)
    acc = graph.type(node.inputs[0]).dtype
    rows, columns = (
        " + ".join(f"{value} * {name}_weight" for name, value in values)
        for values in (
            [(name, f"in0[{loops.place} + {name} + i]") for name in ROWS],
            [(name, f"row[{name}{' + c' * bool(loops.inner)}]") for name in COLUMNS],
        )
    )
    total = f"{columns}{less(op.zero_point << op.places)}"
    half = 1 << (op.places - 1)
    mean = f"((total + {half} + (total >> 31)) >> {op.places}){less(-op.zero_point)}"
    return [
        _row_of(graph, node, epilogue),
        loops.nest(
            epilogue,
            INT32,
            For("i", 0, loops.row.count, Assign("row[i]", rows)),
            nest(
                loops.inner,
                Declare("const int32_t", "total", total),
                Declare(f"const {C_TYPES[acc]}", "acc", f"({C_TYPES[acc]}){mean}"),
                epilogue.write("acc", acc, loops.axes),
            ),
        ),
    ]


def _vector_code(graph: Lowered, node: Node, epilogue: Epilogue, v: Vectors) -> Code:
    op, loops = node.op, InterpolationLoops.of(graph, node)
    assert isinstance(op, Interpolate)
    channels, acc = loops.inner[0], graph.type(node.inputs[0]).dtype
    weights = [[f"{name}_weight" for name in names] for names in (ROWS, COLUMNS)]
    rows = [v.load(f"in0 + {loops.place} + {name} + i", acc) for name in ROWS]
    columns = [v.load(f"row + {name} + c", INT32) for name in COLUMNS]
    mixed = _mixed(v, rows, weights[0], INT32)
    total = _mixed(v, columns, weights[1], INT32)
    numbers = op.zero_point << op.places, 1 << (op.places - 1), 31, op.places, op.zero_point
    zeros, half, sign, places, zero = (v.all_lanes(number, INT32) for number in numbers)
    more = v.apply("+", "total", half, INT32)
    down = v.apply("+", more, v.apply(">>", "total", sign, INT32), INT32)
    mean = v.apply(">>", down, places, INT32)
    if op.zero_point:
        total, mean = v.apply("-", total, zeros, INT32), v.apply("+", mean, zero, INT32)
    to = f"out + {stored_index(graph.stored(node.output), loops.axes)}"
    row = v.steps(epilogue, [loops.row], mixed, INT32, "row + i", ())
    return [
        _row_of(graph, node, epilogue),
        loops.nest(
            epilogue,
            INT32,
            For("i", 0, loops.row.count, v.mask(loops.row, v.lanes), row, step=v.lanes),
            For(
                *("c", 0, channels.count),
                v.mask(channels, v.lanes),
                v.declare("total", total, INT32, constant=True),
                v.declare("mean", mean, INT32, constant=True),
                v.steps(epilogue, loops.axes, "mean", acc, to),
                step=v.lanes,
            ),
        ),
    ]


def _lacking(graph: Lowered, node: Node, v: Vectors) -> str | None:
    """Why the lanes of either operator are no channels, or what of its steps has no form."""
    loops, (data,) = InterpolationLoops.of(graph, node), graph.types(node.inputs)
    if loops.op.layout != NHWC:
        return f"layout {loops.op.layout}"
    return v.lacks(graph, loops.axes, loops.op.infer(data).dtype, node.epilogue)


# --- In floats -----------------------------------------------------------------------------------

_WEIGHTS = [f"({row}_weight * {column}_weight)" for row, column in CORNERS]


def _corners(graph: Lowered, node: Node, loops: InterpolationLoops) -> list[str]:
    """Numbers of the four elements around a place."""
    step = graph.stored(node.inputs[0]).strides[axes(loops.op.layout)[3]]
    channel = f" + c * {step}" if loops.inner else ""
    return [f"{loops.place} + {row} + {column}{channel}" for row, column in CORNERS]


def _float_code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    op, loops = node.op, InterpolationLoops.of(graph, node)
    assert isinstance(op, FloatInterpolate)
    scale = literal(op.scale, FLOAT32)
    parts = [
        f"(float)((int32_t)in0[{at}]{less(op.zero_point)}) * {scale} * {weight}"
        for at, weight in zip(_corners(graph, node, loops), _WEIGHTS, strict=True)
    ]
    value = Declare("const float", "acc", " + ".join(parts))
    steps = epilogue.write("acc", FLOAT32, loops.axes)
    return loops.nest(epilogue, FLOAT32, None, nest(loops.inner, value, steps))


def _float_vector_code(graph: Lowered, node: Node, epilogue: Epilogue, v: Vectors) -> Code:
    op, loops = node.op, InterpolationLoops.of(graph, node)
    assert isinstance(op, FloatInterpolate)
    channels, data = loops.inner[0], graph.type(node.inputs[0]).dtype
    zero, scale = (
        v.all_lanes(op.zero_point, INT32),
        v.all_lanes(literal(op.scale, FLOAT32), FLOAT32),
    )
    loaded = (v.load(f"in0 + {at}", data) for at in _corners(graph, node, loops))
    steps = (v.apply("-", value, zero, INT32) for value in loaded)
    reals = [v.apply("*", v.real(value), scale, FLOAT32) for value in steps]
    total = _mixed(v, reals, _WEIGHTS, FLOAT32)
    to = f"out + {stored_index(graph.stored(node.output), loops.axes)}"
    return loops.nest(
        epilogue,
        FLOAT32,
        None,
        For(
            *("c", 0, channels.count),
            v.mask(channels, v.lanes),
            v.declare("total", total, FLOAT32, constant=True),
            v.steps(epilogue, loops.axes, "total", FLOAT32, to),
            step=v.lanes,
        ),
    )


KERNELS = (
    *(
        row
        for micro in MICROKERNELS
        if micro.vectors
        for row in (
            vector_row(
                micro,
                Interpolate,
                _vector_code,
                _lacking,
                takes=result_at_strides,
                scratch=_scratch,
            ),
            vector_row(micro, FloatInterpolate, _float_vector_code, _lacking),
        )
    ),
    Kernel(
        name="interpolate_scalar",
        op=Interpolate,
        prepare=written(_code, result_at_strides, _scratch),
        split=True,
    ),
    Kernel(
        name="float_interpolate_scalar",
        op=FloatInterpolate,
        prepare=written(_float_code, at_strides),
        split=True,
    ),
)
