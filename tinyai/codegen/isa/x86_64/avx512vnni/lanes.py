"""Kernels that take 16 neighbouring elements of the output at a time through the epilogue:
elementwise nodes, sums, pooling in NHWC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tinyai.codegen.c import literal
from tinyai.codegen.index import Axis, place
from tinyai.codegen.isa.x86_64.avx512vnni.simd import MEAN
from tinyai.codegen.isa.x86_64.avx512vnni.vector_steps import NoVector, VectorSteps, load
from tinyai.codegen.kernels import elementwise
from tinyai.codegen.kernels.image import written_border
from tinyai.codegen.kernels.pool2d import taken
from tinyai.codegen.kernels.reduce import SumLoops
from tinyai.codegen.kernels.sharing import CACHE_LINE, cut
from tinyai.codegen.kernels.table import Kernel, Values, any_kind, at_strides
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.steps import Epilogue
from tinyai.ir import NARROW, DType, Node, Op
from tinyai.ops import AdaptivePool2d, AvgPool2d, Elementwise, FloatAvgPool2d, MaxPool2d, Sum
from tinyai.ops.window import NHWC


@dataclass(frozen=True)
class Loops:
    """Loops over the output, lanes along the last, and the ``places`` of its dimensions; for each
    element ``inner`` loops add up the input's elements at ``taken`` (no inner loop: the element
    itself)."""

    axes: Sequence[Axis]
    places: Sequence[Axis]
    inner: Sequence[Axis]
    taken: str


def _elementwise(graph: Lowered, node: Node) -> Loops:
    (source,) = graph.types(node.inputs)
    axes, at = elementwise.loops(graph, node)
    if not axes:
        raise NoVector("a scalar")
    if not elementwise.in_rows(axes, source.shape):
        raise NoVector("an input that is broadcast inside of the lanes")
    return Loops(axes, axes, (), at)


def _sum(graph: Lowered, node: Node) -> Loops:
    assert isinstance(node.op, Sum)
    (source,) = graph.types(node.inputs)
    if len(source.shape) - 1 in node.op.axes:
        raise NoVector("a sum over the last axis")
    loops = SumLoops.of(graph, node)
    return Loops(loops.kept, loops.places, loops.reduced, loops.taken)


KINDS: dict[type[Op], Callable[[Lowered, Node], Loops]] = {Elementwise: _elementwise, Sum: _sum}


def _write(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    """Raises ``NoVector`` with the reason where the node is none for these kernels."""
    (source,) = graph.types(node.inputs)
    loops = KINDS[type(node.op)](graph, node)
    out = graph.stored(node.output)
    writer = VectorSteps(epilogue, loops.places)
    if loops.inner and source.dtype.is_float:
        raise NoVector("a sum of floats")
    value = load(f"in0 + {loops.taken}", source.dtype)
    start = node.op.infer(source).dtype
    taken = "total" if loops.inner else value
    stored = writer.write(taken, start, f"out + {place(out, loops.places)}")
    return {
        **written_border(out, epilogue),
        "loops": loops,
        "value": value,
        "lines": writer.lines,
        "store": stored,
        "last": loops.axes[-1],
        "cut": cut(loops.axes, epilogue.threads),
    }


def _write_pool(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    """The same for pooling: lanes are channels."""
    op = node.op
    assert isinstance(op, MaxPool2d | AvgPool2d | AdaptivePool2d)
    (source,) = graph.types(node.inputs)
    if source.dtype not in (DType.INT8, DType.UINT8, DType.INT16, DType.INT32):
        raise NoVector(f"pooling of {source.dtype}")
    pool = _pool(graph, node, epilogue)
    writer = VectorSteps(epilogue, pool["axes"])
    stored = writer.write("total", op.infer(source).dtype, pool["place"])
    if pool["average"]:
        epilogue.need(MEAN)
    start = literal(0 if pool["average"] else source.dtype.range[0], DType.INT32)
    return {
        **pool,
        "lanes": 16,
        "start": "below" if pool["zero_point"] else f"_mm512_set1_epi32({start})",
        "join": "_mm512_add_epi32" if pool["average"] else "_mm512_max_epi32",
        "value": load(pool["taken"], source.dtype),
        "lines": writer.lines,
        "store": stored,
    }


def _write_float_pool(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    """Averages of real values, which are added up in the order that the operator says."""
    op = node.op
    assert isinstance(op, FloatAvgPool2d)
    (source,) = graph.types(node.inputs)
    pool = _pool(graph, node, epilogue)
    writer = VectorSteps(epilogue, pool["axes"])
    stored = writer.write("average", DType.FLOAT32, pool["place"])
    return {
        **pool,
        "lanes": 16,
        "by_columns": op.by_columns,
        "scale": literal(op.scale, DType.FLOAT32),
        "value": load(pool["taken"], source.dtype),
        "lines": writer.lines,
        "store": stored,
    }


def _write_max_pool(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    """The largest of bytes, 64 at a time."""
    (source,) = graph.types(node.inputs)
    if source.dtype not in NARROW:
        raise NoVector(f"pooling of {source.dtype}")
    if node.epilogue:
        raise NoVector("steps behind the pooling")
    pool = _pool(graph, node, epilogue)
    return {
        **pool,
        "lanes": 64,
        "start": f"_mm512_set1_epi8({source.dtype.range[0]})",
        "join": "_mm512_max_epi8" if source.dtype is DType.INT8 else "_mm512_max_epu8",
        "value": f"_mm512_maskz_loadu_epi8(lanes, {pool['taken']})",
        "lines": [],
        "store": f"_mm512_mask_storeu_epi8({pool['place']}, lanes, total);",
    }


def _pool(graph: Lowered, node: Node, epilogue: Epilogue) -> dict[str, Any]:
    """What every kernel of pooling asks for. Raises ``NoVector`` with the reason where lanes are no
    channels, or a window is dilated."""
    op = node.op
    assert isinstance(op, MaxPool2d | AvgPool2d | FloatAvgPool2d | AdaptivePool2d)
    window = None if isinstance(op, AdaptivePool2d) else op.window
    if op.layout != NHWC:
        raise NoVector(f"layout {op.layout}")
    if window and window.dilation != (1, 1):
        raise NoVector("a dilated window")
    out = graph.stored(node.output)
    n, h, w, c = graph.type(node.inputs[0]).shape
    _, oh, ow, _ = out.type.shape
    axes = [Axis(*each) for each in (("n", (n,)), ("y", (oh,)), ("x", (ow,)), ("c", (c,)))]
    return {
        "axes": axes,
        "n": n,
        "h": h,
        "w": w,
        "c": c,
        "oh": oh,
        "ow": ow,
        "window": window,
        "average": isinstance(op, AvgPool2d | FloatAvgPool2d)
        or (isinstance(op, AdaptivePool2d) and op.kind == "avg"),
        "by_rows": oh >= 4 * epilogue.threads or c <= CACHE_LINE,
        "include": isinstance(op, AvgPool2d | FloatAvgPool2d) and op.count_include_pad,
        "rounded": isinstance(op, AvgPool2d) and op.rounded,
        "zero_point": 0 if isinstance(op, MaxPool2d) else op.zero_point,
        "taken": f"in0 + {taken(graph, node, op.layout)}",
        "place": f"out + {place(out, axes)}",
    }


def _row(
    op: type[Op],
    template: str,
    write: Callable[[Lowered, Node, Epilogue], Values],
    *,
    takes: Callable[[Lowered, Node, str], bool] = at_strides,
    what: str = "lanes",
    kind: Callable[[Lowered, Node], bool] = any_kind,
) -> Kernel:
    def demands(graph: Lowered, node: Node) -> str | None:
        try:
            write(graph, node, Epilogue(graph, node))
        except NoVector as reason:
            return str(reason)
        return None

    return Kernel(
        name=f"{op.name}_{what}_avx512vnni",
        op=op,
        isa="avx512vnni",
        template=template,
        demands=demands,
        kind=kind,
        values=write,
        takes=takes,
        split=True,
    )


KERNELS = (
    _row(Elementwise, "lanes_avx512vnni.c.j2", _write, takes=elementwise.takes),
    _row(Sum, "lanes_avx512vnni.c.j2", _write),
    _row(
        MaxPool2d,
        "pool2d_lanes_avx512vnni.c.j2",
        _write_max_pool,
        what="bytes",
        kind=lambda graph, node: graph.type(node.inputs[0]).dtype in NARROW,
    ),
    *(
        _row(op, "pool2d_lanes_avx512vnni.c.j2", _write_pool)
        for op in (MaxPool2d, AvgPool2d, AdaptivePool2d)
    ),
    _row(FloatAvgPool2d, "pool2d_lanes_avx512vnni.c.j2", _write_float_pool),
)
