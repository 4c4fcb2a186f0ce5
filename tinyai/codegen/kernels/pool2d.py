"""Kernels of max, average, adaptive and global pooling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tinyai.codegen.c import C_TYPES, less, literal
from tinyai.codegen.ctree import Assign, Code, Declare, For, If, let, nest
from tinyai.codegen.index import Axis
from tinyai.codegen.lowered import Kernel, Lowered, at_strides, written
from tinyai.codegen.placed import stored_index
from tinyai.codegen.steps import Epilogue
from tinyai.ir import DType, Node
from tinyai.ops import AdaptivePool2d, AvgPool2d, FloatAvgPool2d, MaxPool2d
from tinyai.ops.window import Window, axes

Pool = MaxPool2d | AvgPool2d | FloatAvgPool2d | AdaptivePool2d


@dataclass(frozen=True)
class Pooling:
    """A pooling as plain numbers. ``window`` is None where windows cut the image into equal parts;
    ``in_index`` is the number of the element at ``row`` and ``column`` of channel ``c``."""

    n: int
    h: int
    w: int
    c: int
    oh: int
    ow: int
    layout: str
    data: DType
    total: DType
    window: Window | None
    average: bool
    include_pad: bool
    rounded: bool
    zero_point: int
    in_index: str

    @classmethod
    def of(cls, graph: Lowered, node: Node) -> Pooling:
        op = node.op
        assert isinstance(op, Pool)
        (data,) = graph.types(node.inputs)
        n, h, w, c = (data.shape[axis] for axis in axes(op.layout))
        oh, ow = (graph.type(node.output).shape[axis] for axis in axes(op.layout)[1:3])
        source = graph.stored(node.inputs[0])
        names = {"N": "n", "H": "row", "W": "column", "C": "c"}
        sizes = zip(op.layout, data.shape, strict=True)
        places = [Axis(names[axis], (size,)) for axis, size in sizes]
        average = isinstance(op, AvgPool2d | FloatAvgPool2d)
        average |= isinstance(op, AdaptivePool2d) and op.kind == "avg"
        return cls(
            *(n, h, w, c, oh, ow, op.layout, data.dtype, op.infer(data).dtype),
            window=None if isinstance(op, AdaptivePool2d) else op.window,
            average=average,
            include_pad=isinstance(op, AvgPool2d | FloatAvgPool2d) and op.count_include_pad,
            rounded=isinstance(op, AvgPool2d) and op.rounded,
            zero_point=0 if isinstance(op, MaxPool2d) else op.zero_point,
            in_index=stored_index(source, places),
        )

    @property
    def loops(self) -> list[Axis]:
        """Over the output, in the order of its dimensions."""
        of = {"N": ("n", self.n), "H": ("y", self.oh), "W": ("x", self.ow), "C": ("c", self.c)}
        return [Axis(of[axis][0], (of[axis][1],)) for axis in self.layout]

    @property
    def parts(self) -> Code:
        """The ends of a window that is one of equal parts of the image."""
        h, w, oh, ow = self.h, self.w, self.oh, self.ow
        return (
            let("top", f"y * {h} / {oh}"),
            let("left", f"x * {w} / {ow}"),
            let("bottom", f"((y + 1) * {h} + {oh - 1}) / {oh}"),
            let("right", f"((x + 1) * {w} + {ow - 1}) / {ow}"),
        )

    def inside(self, window: Window) -> Code:
        """Passes over what is outside of the image, having counted what of it is padding."""
        bottom, right = self.h + window.padding[2], self.w + window.padding[3]
        padded = Assign("count", f"row < {bottom} && column < {right}", "+=")
        outside = f"row < 0 || row >= {self.h} || column < 0 || column >= {self.w}"
        return [padded if self.include_pad else None, If(outside, "continue;")]


def _code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    """Elements outside of the image are passed over: a maximum starts from the lowest value, a sum
    from zero. Sums wrap."""
    p = Pooling.of(graph, node)
    total = C_TYPES[p.total]
    start = literal(0 if p.average else p.data.range[0], p.data)
    corner: Code = p.parts
    if p.window is not None:
        (down, along), (top, left, _, _) = p.window.strides, p.window.padding
        corner = let("top", f"y * {down} - {top}"), let("left", f"x * {along} - {left}")
    return nest(
        p.loops,
        corner,
        Declare(total, "best", start),
        Declare("int32_t", "count", 0) if p.average else None,
        _over_window(
            p, Declare(f"const {C_TYPES[p.data]}", "value", f"in0[{p.in_index}]"), _join(p)
        ),
        _result(p, total),
        epilogue.write("acc", p.total, p.loops),
    )


def _over_window(p: Pooling, *body: Code) -> Code:
    """Code for each element of the image in the window."""
    if p.window is None:
        return For("row", "top", "bottom", For("column", "left", "right", *body))
    (rows, columns), (down, along) = p.window.kernel, p.window.dilation
    column = let("column", f"left + kx * {along}")
    return For(
        *("ky", 0, rows),
        let("row", f"top + ky * {down}"),
        For("kx", 0, columns, column, p.inside(p.window), *body),
    )


def _join(p: Pooling) -> Code:
    if not p.average:
        return Assign("best", "value > best ? value : best")
    # Sums are taken unsigned.
    zero_point = f" - {p.zero_point}u" if p.zero_point else ""
    more = f"(int32_t)((uint32_t)best + (uint32_t)value{zero_point})"
    return [Assign("best", more), None if p.include_pad else Assign("count", 1, "+=")]


def _result(p: Pooling, total: str) -> Code:
    count = "(count > 0 ? count : 1)"
    if p.rounded:
        return [
            Declare("const int32_t", "half", "best > 0 ? count / 2 : -(count / 2)"),
            Declare(
                "const int32_t", "acc", f"(int32_t)((uint32_t)best + (uint32_t)half) / {count}"
            ),
        ]
    if p.average:
        return Declare("const int32_t", "acc", f"best / {count}")
    return Declare(f"const {total}", "acc", "best")


def _float_code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    """Elements outside of the image are passed over: they add 0."""
    op = node.op
    assert isinstance(op, FloatAvgPool2d)
    p, window = Pooling.of(graph, node), op.window
    (rows, columns), (down, along) = window.kernel, window.strides
    row = let("row", f"y * {down} - {window.padding[0]} + ky")
    column = let("column", f"x * {along} - {window.padding[1]} + kx")
    real = f"(float)((int32_t)in0[{p.in_index}]{less(op.zero_point)})"
    scale = literal(op.scale, DType.FLOAT32)
    each = [
        p.inside(window),
        Assign("part" if op.by_columns else "total", f"{real} * {scale}", "+="),
        None if op.count_include_pad else Assign("count", 1, "+="),
    ]
    if op.by_columns:
        inner: Code = For("ky", 0, rows, row, each)
        part = Declare("float", "part", "0.0f")
        loops = For("kx", 0, columns, column, part, inner, Assign("total", "part", "+="))
    else:
        loops = For("ky", 0, rows, row, For("kx", 0, columns, column, each))
    return nest(
        p.loops,
        Declare("float", "total", "0.0f"),
        Declare("int32_t", "count", 0),
        loops,
        Declare("const float", "acc", "total / (float)(count > 0 ? count : 1)"),
        epilogue.write("acc", p.total, p.loops),
    )


_WRITERS: dict[type[Pool], Callable[[Lowered, Node, Epilogue], Code]] = {
    MaxPool2d: _code,
    AvgPool2d: _code,
    FloatAvgPool2d: _float_code,
    AdaptivePool2d: _code,
}
KERNELS = tuple(
    Kernel(name=f"{op.name}_scalar", op=op, prepare=written(code, at_strides))
    for op, code in _WRITERS.items()
)
