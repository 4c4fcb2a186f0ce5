"""Kernels that take a vector of neighbouring elements of the output at a time through the epilogue:
elementwise nodes, sums, pooling in NHWC."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tinyai.codegen.c import literal
from tinyai.codegen.ctree import Assign, Code, Declare, For, let, nest
from tinyai.codegen.index import Axis
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.isa.vectors import Vectors, no_vector
from tinyai.codegen.kernels import elementwise
from tinyai.codegen.kernels.image import border_of
from tinyai.codegen.kernels.pool2d import Pooling
from tinyai.codegen.kernels.reduce import PowersSoftmax, SumLoops, lacking_normalize, normalize_code
from tinyai.codegen.kernels.work_stealing import CACHE_LINE, axis_share, cut, share
from tinyai.codegen.lowered import (
    Kernel,
    Lowered,
    Prepared,
    Takes,
    any_kind,
    at_strides,
    densely,
    no_scratch,
    written,
)
from tinyai.codegen.placed import stored_index
from tinyai.codegen.steps import Epilogue
from tinyai.ir import NARROW, DType, Node, Op
from tinyai.ops import (
    AdaptivePool2d,
    AvgPool2d,
    Elementwise,
    FloatAvgPool2d,
    MaxPool2d,
    Normalize,
    Sum,
    TableSoftmax,
)
from tinyai.ops.window import NHWC


@dataclass(frozen=True)
class LaneLoops:
    """Loops over the output, lanes along the last, and the ``places`` of its dimensions; for each
    element ``inner`` loops add up the input's elements at ``in_index`` (no inner loop: the element
    itself)."""

    axes: Sequence[Axis]
    places: Sequence[Axis]
    inner: Sequence[Axis]
    in_index: str


def _elementwise(graph: Lowered, node: Node) -> LaneLoops:
    axes, at = elementwise.loops(graph, node)
    return LaneLoops(axes, axes, (), at)


def _sum(graph: Lowered, node: Node) -> LaneLoops:
    loops = SumLoops.of(graph, node)
    return LaneLoops(loops.kept, loops.places, loops.reduced, loops.in_index)


KINDS: dict[type[Op], Callable[[Lowered, Node], LaneLoops]] = {Elementwise: _elementwise, Sum: _sum}


def _lacking(graph: Lowered, node: Node, v: Vectors) -> str | None:
    """What has no vector form, of a sum or an elementwise node."""
    (source,) = graph.types(node.inputs)
    if isinstance(node.op, Sum) and len(source.shape) - 1 in node.op.axes:
        return "a sum over the last axis"
    if isinstance(node.op, Sum) and source.dtype is DType.INT64:
        return "a sum of int64"
    loops = KINDS[type(node.op)](graph, node)
    if not loops.axes:
        return "a scalar"
    if isinstance(node.op, Elementwise) and not elementwise.in_rows(loops.axes, source.shape):
        return "an input that is broadcast inside of the lanes"
    return v.lacks(graph, loops.places, node.op.infer(source).dtype, node.epilogue)


def _code(graph: Lowered, node: Node, epilogue: Epilogue, v: Vectors) -> Code:
    """Reads a vector of elements before it writes the same ones, so that the output may take the
    place of an operand of the same type."""
    (source,) = graph.types(node.inputs)
    loops = KINDS[type(node.op)](graph, node)
    out, last = graph.stored(node.output), loops.axes[-1]
    value = v.load(f"in0 + {loops.in_index}", source.dtype)
    start, to = node.op.infer(source).dtype, f"out + {stored_index(out, loops.places)}"
    steps = v.steps(epilogue, loops.places, "total" if loops.inner else value, start, to)
    total = [
        v.declare("total", v.zero(DType.INT32), DType.INT32),
        nest(loops.inner, Assign("total", v.apply("+", "total", value, DType.INT32))),
    ]
    shared = cut(loops.axes, epilogue.threads)
    ends = ("begin", "end") if shared == last.var else (0, last.count)
    body = v.mask(last, v.lanes), total if loops.inner else None, steps
    lanes = For(last.var, *ends, *body, step=v.lanes)
    return [
        border_of(out, epilogue),
        axis_share(loops.axes, shared),
        nest(loops.axes[:-1], lanes, cut=shared),
    ]


@dataclass(frozen=True)
class LanePooling:
    """Pooling in NHWC: lanes are channels, ``lanes`` at a time. Elements outside of the image are
    passed over."""

    vectors: Vectors
    pooling: Pooling
    threads: int
    in_index: str
    to: str
    lanes: int

    @classmethod
    def of(
        cls, graph: Lowered, node: Node, epilogue: Epilogue, v: Vectors, lanes: int
    ) -> LanePooling:
        p = Pooling.of(graph, node)
        to = f"out + {stored_index(graph.stored(node.output), p.loops)}"
        return cls(v, p, epilogue.threads, f"in0 + {p.in_index}", to, lanes)

    def code(self, *channels: Code, before: Code = None) -> Code:
        """Code for the lanes of each window, and in front of a window's loop over channels."""
        p, shared = self.pooling, None
        if self.threads > 1:
            shared = "y" if p.oh >= 4 * self.threads or p.c <= CACHE_LINE else "c"
        *outer, last = p.loops
        ends = ("begin", "end") if shared == "c" else (0, p.c)
        lanes = For("c", *ends, self.vectors.mask(last, self.lanes), *channels, step=self.lanes)
        return [
            None if shared is None else share(p.oh) if shared == "y" else share(p.c, CACHE_LINE),
            nest(outer, self._window, self._count, before, lanes, cut=shared),
        ]

    @property
    def _window(self) -> Code:
        """The ends of the window in the image."""
        p, window = self.pooling, self.pooling.window
        if window is None:
            return p.parts
        (rows, columns), (down, along) = window.kernel, window.strides
        return (
            let("y0", f"y * {down} - {window.padding[0]}"),
            let("x0", f"x * {along} - {window.padding[1]}"),
            let("top", "y0 > 0 ? y0 : 0"),
            let("left", "x0 > 0 ? x0 : 0"),
            let("bottom", f"y0 + {rows} < {p.h} ? y0 + {rows} : {p.h}"),
            let("right", f"x0 + {columns} < {p.w} ? x0 + {columns} : {p.w}"),
        )

    @property
    def _count(self) -> Code:
        """How many elements an average is of."""
        p, window = self.pooling, self.pooling.window
        if not p.average:
            return None
        rows, columns = "bottom > top ? bottom - top : 0", "right > left ? right - left : 0"
        if p.include_pad and window:
            height, width = p.h + window.padding[2], p.w + window.padding[3]
            most, widest = window.kernel
            rows = f"y0 + {most} < {height} ? {most} : {height} - y0"
            columns = f"x0 + {widest} < {width} ? {widest} : {width} - x0"
        count = "rows * columns > 0 ? (int32_t)(rows * columns) : 1"
        return let("rows", rows), let("columns", columns), Declare("const int32_t", "count", count)


def _over_window(*body: Code) -> Code:
    return For("row", "top", "bottom", For("column", "left", "right", *body))


def _lacking_channels(p: Pooling) -> str | None:
    """Why the lanes of a pooling are no channels."""
    if p.layout != NHWC:
        return f"layout {p.layout}"
    return "a dilated window" if p.window and p.window.dilation != (1, 1) else None


def _lacking_pool(graph: Lowered, node: Node, v: Vectors) -> str | None:
    p = Pooling.of(graph, node)
    if p.data not in (DType.INT8, DType.UINT8, DType.INT16, DType.INT32):
        return f"pooling of {p.data}"
    return _lacking_channels(p) or v.lacks(graph, p.loops, p.total, node.epilogue)


def _lacking_max_pool(graph: Lowered, node: Node, v: Vectors) -> str | None:
    p = Pooling.of(graph, node)
    if p.data not in NARROW:
        return f"pooling of {p.data}"
    return "steps after the pooling" if node.epilogue else _lacking_channels(p)


def _pool_code(graph: Lowered, node: Node, epilogue: Epilogue, v: Vectors) -> Code:
    """The same for pooling."""
    (source,) = graph.types(node.inputs)
    lanes = LanePooling.of(graph, node, epilogue, v, v.lanes)
    p = lanes.pooling
    steps = v.steps(epilogue, p.loops, "total", p.total, lanes.to)
    start = literal(0 if p.average else source.dtype.range[0], DType.INT32)
    loaded = v.load(lanes.in_index, source.dtype)
    joined = v.apply("+" if p.average else "max", "total", loaded, DType.INT32)
    mean = None
    if p.average:
        mean = Assign("total", v.mean(epilogue, "total", "count", rounded=p.rounded))
    inside = "bottom > top && right > left ? (bottom - top) * (right - left) : 0"
    below = v.all_lanes(f"(int32_t)(inside * {-p.zero_point})", DType.INT32)
    first = "below" if p.zero_point else v.all_lanes(start, DType.INT32)
    return lanes.code(
        v.declare("total", first, DType.INT32),
        _over_window(Assign("total", joined)),
        mean,
        steps,
        before=(let("inside", inside), v.declare("below", below, DType.INT32, constant=True))
        if p.zero_point
        else None,
    )


def _float_pool_code(graph: Lowered, node: Node, epilogue: Epilogue, v: Vectors) -> Code:
    """Averages of real values, which are added up in the order that the operator says."""
    op = node.op
    assert isinstance(op, FloatAvgPool2d)
    (source,) = graph.types(node.inputs)
    lanes = LanePooling.of(graph, node, epilogue, v, v.lanes)
    steps = v.steps(epilogue, lanes.pooling.loops, "average", DType.FLOAT32, lanes.to)
    loaded = v.load(lanes.in_index, source.dtype)
    zero_point = v.all_lanes(op.zero_point, DType.INT32)
    value = v.apply("-", loaded, zero_point, DType.INT32)
    scale = v.all_lanes(literal(op.scale, DType.FLOAT32), DType.FLOAT32)
    real = v.apply("*", v.real("value"), scale, DType.FLOAT32)
    total = "part" if op.by_columns else "total"
    each = (
        v.declare("value", value, DType.INT32, constant=True),
        Assign(total, v.apply("+", total, real, DType.FLOAT32)),
    )
    loops = _over_window(*each)
    if op.by_columns:
        loops = For(
            *("column", "left", "right"),
            v.declare("part", v.zero(DType.FLOAT32), DType.FLOAT32),
            For("row", "top", "bottom", *each),
            Assign("total", v.apply("+", "total", "part", DType.FLOAT32)),
        )
    count = v.all_lanes("(float)count", DType.FLOAT32)
    average = v.apply("/", "total", count, DType.FLOAT32)
    return lanes.code(
        v.declare("total", v.zero(DType.FLOAT32), DType.FLOAT32),
        loops,
        v.declare("average", average, DType.FLOAT32, constant=True),
        steps,
    )


def _max_pool_code(graph: Lowered, node: Node, epilogue: Epilogue, v: Vectors) -> Code:
    """The largest of bytes, a vector of them at a time."""
    (source,) = graph.types(node.inputs)
    lanes = LanePooling.of(graph, node, epilogue, v, v.bytes)
    joined = v.apply("max", "total", v.load_bytes(lanes.in_index), source.dtype)
    return lanes.code(
        v.declare("total", v.all_lanes(source.dtype.range[0], source.dtype), source.dtype),
        _over_window(Assign("total", joined)),
        v.store_bytes(lanes.to, "total"),
    )


def vector_row(
    micro: Microkernels,
    op: type[Op],
    code: Callable[[Lowered, Node, Epilogue, Vectors], Code],
    lacking: Callable[[Lowered, Node, Vectors], str | None],
    *,
    takes: Takes = at_strides,
    what: str = "lanes",
    scratch: Callable[[Lowered, Node], int] = no_scratch,
    kind: Callable[[Lowered, Node], bool] = any_kind,
) -> Kernel:
    assert micro.vectors is not None
    vectors = micro.vectors
    prepared = written(
        lambda graph, node, epilogue: code(graph, node, epilogue, vectors), takes, scratch
    )

    def prepare(graph: Lowered, node: Node) -> Prepared | str:
        reason = lacking(graph, node, vectors)
        return no_vector(reason) if reason else prepared(graph, node)

    name = f"{op.name}_{what}_{micro.name}"
    return Kernel(name, op, prepare, isa=micro.name, kind=kind, split=True)


def _rows(micro: Microkernels) -> tuple[Kernel, ...]:
    """The rows of an instruction set."""
    return (
        vector_row(micro, Elementwise, _code, _lacking, takes=elementwise.takes),
        vector_row(micro, Sum, _code, _lacking),
        vector_row(
            micro,
            MaxPool2d,
            _max_pool_code,
            _lacking_max_pool,
            what="bytes",
            kind=lambda graph, node: graph.type(node.inputs[0]).dtype in NARROW,
        ),
        *(
            vector_row(micro, op, _pool_code, _lacking_pool)
            for op in (MaxPool2d, AvgPool2d, AdaptivePool2d)
        ),
        vector_row(micro, FloatAvgPool2d, _float_pool_code, _lacking_pool),
        vector_row(micro, Normalize, normalize_code, lacking_normalize, takes=densely),
        Kernel(
            name=f"table_softmax_lanes_{micro.name}",
            op=TableSoftmax,
            isa=micro.name,
            prepare=functools.partial(PowersSoftmax.of, vectors=micro.vectors),
            split=True,
        ),
    )


KERNELS = tuple(row for micro in MICROKERNELS if micro.vectors for row in _rows(micro))
