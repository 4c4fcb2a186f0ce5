"""Kernels of operators that reduce dimensions: sum, softmax, normalize."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyai.codegen.c import C_TYPES, less, literal
from tinyai.codegen.ctree import Assign, Code, Comment, Declare, For, While, let, nest
from tinyai.codegen.helpers import INVERSE_ROOT, MATH, SOFTMAX
from tinyai.codegen.index import Axis
from tinyai.codegen.isa.vectors import Vectors, no_vector
from tinyai.codegen.kernels.work_stealing import own_scratch, share
from tinyai.codegen.lowered import Kernel, Lowered, Prepared, aligned, at_strides, written
from tinyai.codegen.steps import Epilogue
from tinyai.ir import DType, Node
from tinyai.ops import IntegerL2Norm, IntegerSoftmax, Normalize, Softmax, Sum, TableSoftmax
from tinyai.ops.softmax import AlongAxisOp


@dataclass(frozen=True)
class SumLoops:
    """Loops over the dimensions that are kept and those that are added up; ``places`` are those of
    the output; ``in_index`` is the number of the input's element."""

    kept: list[Axis]
    reduced: list[Axis]
    places: list[Axis]
    in_index: str

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


def _sum_code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    """The sum wraps."""
    loops = SumLoops.of(graph, node)
    dtype = node.op.infer(*graph.types(node.inputs)).dtype
    of = C_TYPES[dtype]
    return nest(
        loops.kept,
        Declare(f"u{of}", "total", 0),
        nest(
            loops.reduced,
            # By a name: gcc warns of a sign where the cast stands in the sum.
            Declare(f"const u{of}", "value", f"(u{of})in0[{loops.in_index}]"),
            Assign("total", "value", "+="),
        ),
        Declare(f"const {of}", "acc", f"({of})total"),
        epilogue.write("acc", dtype, loops.places),
    )


@dataclass(frozen=True)
class AlongAxis:
    """Three loops, before, along and after the axis of an operator that works on rows."""

    type: DType
    outer: Axis
    axis: Axis
    inner: Axis

    @classmethod
    def of(cls, graph: Lowered, node: Node) -> AlongAxis:
        assert isinstance(node.op, AlongAxisOp)
        (data,), axis = graph.types(node.inputs), node.op.axis
        outer, inner = Axis("o", data.shape[:axis]), Axis("n", data.shape[axis + 1 :])
        return cls(data.dtype, outer, Axis("i", (data.shape[axis],)), inner)

    def at(self, row: int | str = "") -> str:
        """An element of a row, of the one ``row`` where there are several."""
        return f"from{row}[i * {self.inner.count}]"

    def nest(self, epilogue: Epilogue, *body: Code) -> Code:
        """Code for each row along the axis, whose elements are those of ``from``. Threads share the
        longer loop."""
        row = f"in0 + o * {self.axis.count * self.inner.count} + n"
        shared = max(self.outer, self.inner, key=lambda axis: axis.count)
        cut = shared.var if epilogue.threads > 1 else None
        return [
            share(shared.count) if cut else None,
            nest(
                [self.outer, self.inner],
                Declare(f"const {C_TYPES[self.type]} *const", "from", row),
                *body,
                cut=cut,
            ),
        ]

    def highest(self, row: int | str = "") -> Code:
        """The largest element of a row, which a softmax takes off."""
        name, value = f"highest{row}", self.at(row)
        return [
            Declare("float" if self.type.is_float else "int32_t", name, f"from{row}[0]"),
            For("i", 1, self.axis.count, Assign(name, f"{value} > {name} ? {value} : {name}")),
        ]

    def each(self, *body: Code) -> Code:
        """Code for each element of a row."""
        return For("i", 0, self.axis.count, *body)

    def lacking(self, graph: Lowered, node: Node, v: Vectors) -> str | None:
        """What has no vector form of floats along the axis, and their steps."""
        if self.inner.sizes:
            return "rows of values that are apart"
        return v.lacks(graph, (self.outer, self.axis), DType.FLOAT32, node.epilogue)

    def in_lanes(self, epilogue: Epilogue, v: Vectors, acc: str) -> Code:
        """Takes floats, ``acc`` from the place ``i`` on, through the epilogue, many at a time."""
        last, to = self.axis, f"out + o * {self.axis.count} + i"
        steps = v.steps(epilogue, (self.outer, last), acc, DType.FLOAT32, to)
        return For("i", 0, last.count, v.mask(last, v.lanes), steps, step=v.lanes)

    def write(self, epilogue: Epilogue, dtype: DType) -> Code:
        """Takes ``acc`` through the epilogue."""
        axes = self.outer, self.axis, self.inner
        at = f"(o * {self.axis.count} + i) * {self.inner.count} + n"
        return epilogue.write("acc", dtype, axes, at)


# Rows whose powers are added up side by side, for each addition waits for the one before it.
SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class PowersSoftmax(Prepared):
    """Softmax in floats, whose powers wait in the working memory: a loop adds them up, from the
    first on as the reference does, and another one divides, many at a time. Where powers are from a
    table, and rows have nothing behind the axis, some rows are added up side by side. With
    ``vectors`` what is divided takes its steps in lanes."""

    rows: AlongAxis
    vectors: Vectors | None = None

    @classmethod
    def of(cls, graph: Lowered, node: Node, vectors: Vectors | None = None) -> PowersSoftmax | str:
        rows = AlongAxis.of(graph, node)
        reason = rows.lacking(graph, node, vectors) if vectors else None
        return no_vector(reason) if reason else cls(node, rows, vectors)

    def scratch(self, graph: Lowered) -> int:
        return graph.threads * self._bytes(graph.threads)

    def _bytes(self, threads: int) -> int:
        """Of the powers of a thread."""
        rows = SIDE_BY_SIDE if self._is_wide(threads) else 1
        return aligned(rows * self.rows.axis.count * DType.FLOAT32.bytes)

    def _is_wide(self, threads: int) -> bool:
        many = self.rows.inner.count == 1 and self.rows.outer.count >= SIDE_BY_SIDE * threads
        return many and isinstance(self.node.op, TableSoftmax)

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        own = own_scratch(self._bytes(epilogue.threads), epilogue)
        wide = self._is_wide(epilogue.threads)
        return [
            Declare("float *const", "powers", f"(float *)(void *){own}"),
            self._side_by_side(epilogue) if wide else self._one_by_one(epilogue),
        ]

    def _one_by_one(self, epilogue: Epilogue) -> Code:
        rows = self.rows
        return rows.nest(
            epilogue,
            rows.highest(),
            Declare("float", "total", "0.0f"),
            rows.each(
                Assign("powers[i]", self._power(epilogue)), Assign("total", "powers[i]", "+=")
            ),
            self._shares(epilogue, "powers"),
        )

    def _side_by_side(self, epilogue: Epilogue) -> Code:
        rows, each, shared = self.rows, range(SIDE_BY_SIDE), epilogue.threads > 1
        count = rows.axis.count
        begin, end = ("begin", "end") if shared else (0, rows.outer.count)
        of, sums = f"const {C_TYPES[rows.type]} *const", ", ".join(f"total{r}" for r in each)

        def row(number: int) -> str:
            return f"q + {number} < {end} ? q + {number} : {end} - 1"

        return [
            share(rows.outer.count, SIDE_BY_SIDE) if shared else None,
            For(
                *("q", begin, end),
                Comment("After the last row, the last one again, which is not written."),
                [
                    (Declare(of, f"from{r}", f"in0 + ({row(r)}) * {count}"), rows.highest(r))
                    for r in each
                ],
                [Declare("float", f"total{r}", "0.0f") for r in each],
                rows.each(
                    [Declare("const float", f"power{r}", self._power(epilogue, r)) for r in each],
                    [Assign(f"powers[i + {r * count}]", f"power{r}") for r in each],
                    [Assign(f"total{r}", f"power{r}", "+=") for r in each],
                ),
                Declare("const float", f"totals[{SIDE_BY_SIDE}]", f"{{ {sums} }}"),
                For(
                    # A row is written once: its result may take the place of an operand of a step.
                    *("r", 0, f"({end} - q < {SIDE_BY_SIDE} ? {end} - q : {SIDE_BY_SIDE})"),
                    let("o", "q + r"),
                    Declare("const float", "total", "totals[r]"),
                    nest([rows.inner], self._shares(epilogue, f"powers + r * {count}")),
                ),
                step=SIDE_BY_SIDE,
            ),
        ]

    def _power(self, epilogue: Epilogue, row: int | str = "") -> str:
        """Of an element of the row ``row`` of some."""
        op, value = self.node.op, self.rows.at(row)
        if isinstance(op, TableSoftmax):
            table = epilogue.array(np.array(op.powers, np.float32))
            # Of the width of pointers: else each index is widened.
            return f"{table}[(ptrdiff_t)255 - highest{row} + {value}]"
        epilogue.need(MATH)
        return f"TINYAI_EXPF({value} - highest{row})"

    @property
    def _has_inverses(self) -> bool:
        """Whether shares are right that are made of a sum's inverse: no power, quotient or inverse
        is near the ends of float32."""
        op = self.node.op
        if not isinstance(op, TableSoftmax):
            return False
        least, largest = min(filter(None, op.powers), default=0.0), max(op.powers)
        total = largest * self.rows.axis.count
        below = least * op.factor >= 2.0**-100 and least * op.factor / total >= 2.0**-125
        return below and total <= 2.0**125 and largest * op.factor < 2.0**127

    def _shares(self, epilogue: Epilogue, powers: str) -> Code:
        """Each power of a row, divided by their sum."""
        op, rows, v, of = self.node.op, self.rows, self.vectors, DType.FLOAT32
        factor = literal(np.float32(op.factor), of) if isinstance(op, TableSoftmax) else None
        if v:
            power = v.load(f"{powers} + i", of)
            power = v.apply("*", power, v.all_lanes(factor, of), of) if factor else power
            total = v.all_lanes("total", of)
            if not self._has_inverses:
                return rows.in_lanes(epilogue, v, v.apply("/", power, total, of))
            quotient = v.quotient(epilogue, power, total, v.all_lanes("inverse", of))
            return [
                Declare("const float", "inverse", "1.0f / total"),
                rows.in_lanes(epilogue, v, quotient),
            ]
        power = f"({powers})[i]" + (f" * {factor}" if factor else "")
        share_of = Declare("const float", "acc", f"{power} / total")
        return rows.each(share_of, rows.write(epilogue, of))


def _log_softmax_code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    rows = AlongAxis.of(graph, node)
    above = f"{rows.at()} - highest"
    epilogue.need(MATH)
    return rows.nest(
        epilogue,
        rows.highest(),
        Declare("float", "total", "0.0f"),
        rows.each(Assign("total", f"TINYAI_EXPF({above})", "+=")),
        Declare("const float", "log_total", "TINYAI_LOGF(total)"),
        rows.each(
            Declare("const float", "acc", f"{above} - log_total"),
            rows.write(epilogue, DType.FLOAT32),
        ),
    )


def _softmax(graph: Lowered, node: Node) -> Prepared | str:
    assert isinstance(node.op, Softmax)
    logarithm = written(_log_softmax_code)
    return logarithm(graph, node) if node.op.log else PowersSoftmax.of(graph, node)


def _integer_softmax_code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    op = node.op
    assert isinstance(op, IntegerSoftmax)
    rows = AlongAxis.of(graph, node)
    epilogue.need(SOFTMAX)
    power = f"{epilogue.array(np.array(op.powers, np.int32))}[255 + {rows.at()} - highest]"
    one = "((int64_t)1 << 31)"
    share = "tinyai_shift_rounded(tinyai_high_product(inverse, power), 35 - zeros) - 128"
    return rows.nest(
        epilogue,
        rows.highest(),
        Comment("The sum of the powers, in Q12.19, as a fraction of the next power of two."),
        Declare("int64_t", "total", 0),
        rows.each(Assign("total", f"tinyai_shift_rounded({power}, 12)", "+=")),
        Declare("int", "zeros", 0),
        While(f"(total << zeros) < {one}", "++zeros;"),
        Declare("const int64_t", "inverse", f"tinyai_reciprocal((total << zeros) - {one})"),
        rows.each(
            Declare("const int64_t", "power", power),
            Declare("const int64_t", "share", share),
            Declare("const int8_t", "acc", "(int8_t)(share > 127 ? 127 : share)"),
            rows.write(epilogue, DType.INT8),
        ),
    )


def _integer_l2_norm_code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    op = node.op
    assert isinstance(op, IntegerL2Norm)
    rows = AlongAxis.of(graph, node)
    epilogue.need(INVERSE_ROOT)
    value = Declare("const int32_t", "value", f"(int32_t){rows.at()}{less(op.zero_point)}")
    product = "tinyai_high_product((int64_t)value * (1 << left), root)"
    return rows.nest(
        epilogue,
        Declare("int32_t", "squares", 0),
        rows.each(value, Assign("squares", "value * value", "+=")),
        Declare("int", "places", 0),
        Declare("const int64_t", "root", "tinyai_inverse_root(squares, &places)"),
        Comment("The result has seven binary digits."),
        Declare("const int", "left", "places < 7 ? 7 - places : 0"),
        Declare("const int", "right", "places > 7 ? places - 7 : 0"),
        rows.each(
            value,
            Declare("const int64_t", "share", f"tinyai_shift_rounded({product}, right)"),
            Declare("const int64_t", "low", "share < -128 ? -128 : share"),
            Declare("const int8_t", "acc", "(int8_t)(low > 127 ? 127 : low)"),
            rows.write(epilogue, DType.INT8),
        ),
    )


def normalize_code(
    graph: Lowered, node: Node, epilogue: Epilogue, vectors: Vectors | None = None
) -> Code:
    """Sums of a row, and what its values are in floats: one after the other, or many at a time."""
    op = node.op
    assert isinstance(op, Normalize)
    rows = AlongAxis.of(graph, node)
    epilogue.need(MATH)
    centered = op.zero_point is None
    count, value = rows.axis.count, f"(int32_t){rows.at()}{less(op.zero_point or 0)}"
    # So many squares of 8 bits fit 32 bits.
    square = "int32_t" if rows.type is not DType.INT16 and count <= 2**15 else "int64_t"
    spread = f"(int64_t){count} * squares{' - (int64_t)total * total' if centered else ''}"
    deviation = f"{count} * {value} - total" if centered else f"{count} * ({value})"
    one_by_one = rows.each(
        Declare("const float", "acc", f"(float)({deviation}) * inverse"),
        rows.write(epilogue, DType.FLOAT32),
    )
    return rows.nest(
        epilogue,
        Declare("int32_t", "total", 0) if centered else None,
        Declare(square, "squares", 0),
        rows.each(
            Declare("const int32_t", "value", value),
            Assign("total", "value", "+=") if centered else None,
            Assign("squares", f"({square})value * value", "+="),
        ),
        Declare("const double", "spread", f"(double)({spread}) + {op.added(count)!r}"),
        Declare("const float", "inverse", "(float)(1.0 / TINYAI_SQRT(spread))"),
        _normalized(rows, op, epilogue, vectors) if vectors else one_by_one,
    )


def lacking_normalize(graph: Lowered, node: Node, v: Vectors) -> str | None:
    """What has no vector form, of a norm."""
    return AlongAxis.of(graph, node).lacking(graph, node, v)


def _normalized(rows: AlongAxis, op: Normalize, epilogue: Epilogue, v: Vectors) -> Code:
    """Each value times their number, less the total, and times the inverse, in lanes."""
    value = v.load("from + i", rows.type)
    if op.zero_point:
        value = v.apply("-", value, v.all_lanes(op.zero_point, DType.INT32), DType.INT32)
    value = v.apply("*", v.all_lanes(rows.axis.count, DType.INT32), value, DType.INT32)
    if op.zero_point is None:
        value = v.apply("-", value, v.all_lanes("total", DType.INT32), DType.INT32)
    inverse = v.all_lanes("inverse", DType.FLOAT32)
    return rows.in_lanes(epilogue, v, v.apply("*", v.real(value), inverse, DType.FLOAT32))


KERNELS = (
    Kernel(name="sum_scalar", op=Sum, prepare=written(_sum_code, at_strides)),
    Kernel(name="softmax_scalar", op=Softmax, prepare=_softmax, split=True),
    Kernel(
        name="integer_softmax_scalar",
        op=IntegerSoftmax,
        prepare=written(_integer_softmax_code),
        split=True,
    ),
    Kernel(
        name="integer_l2_norm_scalar",
        op=IntegerL2Norm,
        prepare=written(_integer_l2_norm_code),
        split=True,
    ),
    Kernel(name="table_softmax_scalar", op=TableSoftmax, prepare=PowersSoftmax.of, split=True),
    Kernel(name="normalize_scalar", op=Normalize, prepare=written(normalize_code), split=True),
)
