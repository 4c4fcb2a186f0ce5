"""``max_pool2d``, ``avg_pool2d`` and ``adaptive_pool2d`` (global pooling is its 1×1 case)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tinyai.builders import Lower, Lowering, OperatorRow
from tinyai.ir import NARROW, Array, DType, Example, Op, Type
from tinyai.ops.reduce import INTEGERS
from tinyai.ops.scales import dequantize_below
from tinyai.ops.window import NHWC, ImageOp, Pair, Window, axes, to_nhwc
from tinyai.source import Call, require, sources
from tinyai.traits import Range


def _result(data: Type, size: Pair, layout: str) -> Type:
    n, h, w, c = axes(layout)
    out = dict(zip((n, h, w, c), (data.shape[n], *size, data.shape[c]), strict=True))
    return Type(tuple(out[axis] for axis in range(4)), data.dtype)


def _from_nhwc(data: Array, layout: str) -> Array:
    return data if layout == NHWC else data.transpose(0, 3, 1, 2)


def truncated_quotient(total: Array, count: Array | int) -> Array:
    """``total / count`` cut towards zero, as C and LLVM divide. Exact below 2**53."""
    quotient: Array = np.trunc(total.astype(np.float64) / count).astype(np.int32)
    return quotient


def _averages(data: Range, most: int) -> Range | None:
    """The quotient of a sum of at most ``most`` elements lies between the least and the largest of
    them, unless the sum wraps."""
    size = max(np.abs(data.low).max(), np.abs(data.high).max())
    return data if size * most + most <= DType.INT32.range[1] else None


@dataclass(frozen=True)
class MaxPool2d(ImageOp):
    """Largest value of each window; the border counts as the smallest value of the type.

    in: 4-d integers in ``layout``; out: the same type.
    """

    name: ClassVar[str] = "max_pool2d"
    takes_epilogue: ClassVar[bool] = True
    keeps_scale: ClassVar[bool] = True
    window: Window
    layout: str = NHWC

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if not data.dtype.is_integer:
            raise ValueError(f"max_pool2d of {data.dtype}: integers only")
        _, h, w, _ = axes(self.layout)
        return _result(data, self.window.output((data.shape[h], data.shape[w])), self.layout)

    def reference(self, *inputs: Array) -> Array:
        lowest = int(np.iinfo(inputs[0].dtype).min)
        x = self.window.pad(to_nhwc(inputs[0], self.layout), lowest)
        rows, columns = self.window.kernel
        taps = [self.window.tap(x, row, column) for row in range(rows) for column in range(columns)]
        return _from_nhwc(np.maximum.reduce(taps), self.layout)

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range | None:
        if self.layout != NHWC:
            return None
        _, *size, _ = types[0].shape
        inside = self.window.sees((size[0], size[1]))
        return data[0] if inside else data[0].hull(types[0].dtype.range[0])

    def shifted(self, offset: int, data: Type) -> tuple[Op, int]:
        """So is the border, for a type whose smallest value is larger by as much."""
        return self, offset

    @staticmethod
    def examples() -> Iterator[Example]:
        for window, shape, layout, dtype in _window_examples((DType.INT8, DType.INT32)):
            yield MaxPool2d(window, layout), (Type(shape, dtype),)


@dataclass(frozen=True)
class AvgPool2d(ImageOp):
    """Sum of each window divided by its number of elements, cut towards zero, or rounded with
    halves away from zero where ``rounded``.

    ``count_include_pad`` counts the elements of the border too. ``zero_point`` is taken off every
    element of the image. in: int8, uint8 or int32; out: int32, both in ``layout``.
    """

    name: ClassVar[str] = "avg_pool2d"
    takes_epilogue: ClassVar[bool] = True
    takes_narrow: ClassVar[bool] = True
    window: Window
    layout: str = NHWC
    count_include_pad: bool = False
    rounded: bool = False
    zero_point: int = 0

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if data.dtype not in INTEGERS:
            raise ValueError(f"avg_pool2d of {data.dtype}: {', '.join(INTEGERS)} only")
        _, h, w, _ = axes(self.layout)
        data = Type(data.shape, DType.INT32)
        return _result(data, self.window.output((data.shape[h], data.shape[w])), self.layout)

    def _sum(self, padded: Array) -> Array:
        rows, columns = self.window.kernel
        with np.errstate(over="ignore"):
            taps = [self.window.tap(padded, r, c) for r in range(rows) for c in range(columns)]
            total: Array = np.add.reduce(taps, dtype=np.int32)
            return total

    def reference(self, *inputs: Array) -> Array:
        x = to_nhwc(inputs[0], self.layout).astype(np.int32) - np.int32(self.zero_point)
        count = _counts(self.window, x.shape, self.count_include_pad)
        total = self._sum(self.window.pad(x, 0))
        if self.rounded:
            total = total + np.where(total > 0, count // 2, -(count // 2))
        return _from_nhwc(truncated_quotient(total, count), self.layout)

    def shifted(self, offset: int, data: Type) -> tuple[Op, int]:
        return replace(self, zero_point=self.zero_point + offset), 0

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range | None:
        if self.layout != NHWC:
            return None
        _, *size, _ = types[0].shape
        values = data[0].plus(-self.zero_point)
        edge = self.count_include_pad or not self.window.sees((size[0], size[1]))
        return _averages(values.hull(0) if edge else values, math.prod(self.window.kernel))

    @staticmethod
    def examples() -> Iterator[Example]:
        for window, shape, layout, dtype in _window_examples((DType.INT32, DType.UINT8)):
            if window.dilation == (1, 1):
                for include in (False, True):
                    yield AvgPool2d(window, layout, include), (Type(shape, dtype),)
                yield AvgPool2d(window, layout, rounded=True), (Type(shape, DType.INT8),)
                of = Type(shape, DType.UINT8)
                yield AvgPool2d(window, layout, zero_point=131), (of,)


@dataclass(frozen=True)
class FloatAvgPool2d(ImageOp):
    """Average of the real values of each window, in float32 step by step: ``(x - zero_point) *
    scale`` is added up row by row, or where ``by_columns`` each column from top to bottom and then
    the columns; the sum is divided by the number of elements, those of the border among them where
    ``count_include_pad``.

    in: int8 or uint8; out: float32, both in ``layout``.
    """

    name: ClassVar[str] = "float_avg_pool2d"
    takes_epilogue: ClassVar[bool] = True
    window: Window
    layout: str = NHWC
    count_include_pad: bool = False
    by_columns: bool = False
    zero_point: int = 0
    scale: float = 1.0

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if data.dtype not in NARROW:
            raise ValueError(f"{self.name} of {data.dtype}: {', '.join(NARROW)} only")
        if self.window.dilation != (1, 1):
            raise ValueError(f"{self.name} of a dilated window")
        _, h, w, _ = axes(self.layout)
        data = Type(data.shape, DType.FLOAT32)
        return _result(data, self.window.output((data.shape[h], data.shape[w])), self.layout)

    def reference(self, *inputs: Array) -> Array:
        x = to_nhwc(inputs[0], self.layout).astype(np.int32) - np.int32(self.zero_point)
        padded = self.window.pad(x.astype(np.float32) * np.float32(self.scale), 0)
        rows, columns = self.window.kernel
        taps = [[self.window.tap(padded, r, c) for c in range(columns)] for r in range(rows)]
        if self.by_columns:
            taps = [[_running_sum(column)] for column in zip(*taps, strict=True)]
        total = _running_sum([tap for row in taps for tap in row])
        count = _counts(self.window, x.shape, self.count_include_pad)
        return _from_nhwc(total / count.astype(np.float32), self.layout)

    def shifted(self, offset: int, data: Type) -> tuple[Op, int]:
        return replace(self, zero_point=self.zero_point + offset), 0

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range | None:
        """The results of an image of the least values and of one of the largest: float32 sums and
        quotients are monotonic, wherever they round."""
        if self.layout != NHWC:
            return None
        low, high = (
            self.reference(np.broadcast_to(end, types[0].shape))
            for end in (data[0].low, data[0].high)
        )
        return Range(low.min(axis=(0, 1, 2)), high.max(axis=(0, 1, 2)))

    @staticmethod
    def examples() -> Iterator[Example]:
        for window, shape, layout, dtype in _window_examples((DType.INT8, DType.UINT8)):
            if window.dilation == (1, 1):
                for include, by_columns in ((False, False), (False, True), (True, True)):
                    op = FloatAvgPool2d(
                        window, layout, include, by_columns, 7, float(np.float32(0.1))
                    )
                    yield op, (Type(shape, dtype),)


def _running_sum(terms: Sequence[Array]) -> Array:
    """Floats added one by one, from the first on."""
    total: Array = np.zeros_like(terms[0])
    for term in terms:
        total = total + term
    return total


def _counts(window: Window, shape: tuple[int, ...], include: bool) -> Array:
    """How many elements the average of each window is of, 1 at least; ``shape`` is NHWC. The border
    counts where ``include``; what lies beyond it never does."""
    ones = np.ones(shape, np.int32)
    if include:
        top, left, bottom, right = window.padding
        ones = np.pad(ones, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=1)
        rows, columns = window.overhang((shape[1], shape[2]))
        ones = np.pad(ones, ((0, 0), (0, rows), (0, columns), (0, 0)))
    else:
        ones = window.pad(ones, 0)
    rows, columns = window.kernel
    taps = [window.tap(ones, row, column) for row in range(rows) for column in range(columns)]
    counts: Array = np.maximum(np.add.reduce(taps, dtype=np.int32), 1)
    return counts


@dataclass(frozen=True)
class AdaptivePool2d(ImageOp):
    """Pooling to a given size: window i of n covers [floor(i·size/n), ceil((i+1)·size/n)).

    ``kind`` is "avg" (int8, uint8 or int32 to int32, ``zero_point`` taken off every element, the
    quotient cut towards zero) or "max" (integers, to the same type). in, out: in ``layout``.
    """

    name: ClassVar[str] = "adaptive_pool2d"
    takes_epilogue: ClassVar[bool] = True
    takes_narrow: ClassVar[bool] = True
    kind: str
    output: Pair
    layout: str = NHWC
    zero_point: int = 0

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if not data.dtype.is_integer or (self.kind == "avg" and data.dtype not in INTEGERS):
            raise ValueError(f"adaptive {self.kind} pooling of {data.dtype}")
        if self.kind not in ("avg", "max"):
            raise ValueError(f"adaptive pooling of kind {self.kind}: avg or max only")
        if self.kind == "max" and self.zero_point:
            raise ValueError("adaptive max pooling takes no zero point off")
        dtype = data.dtype if self.kind == "max" else DType.INT32
        return _result(Type(data.shape, dtype), self.output, self.layout)

    def reference(self, *inputs: Array) -> Array:
        x = to_nhwc(inputs[0], self.layout)
        height, width = self.output
        dtype = x.dtype if self.kind == "max" else np.int32
        out = np.empty((x.shape[0], height, width, x.shape[3]), dtype)
        for row in range(height):
            for column in range(width):
                rows = slice(*adaptive_window(row, height, x.shape[1]))
                columns = slice(*adaptive_window(column, width, x.shape[2]))
                part = x[:, rows, columns]
                out[:, row, column] = self._reduce(part)
        return _from_nhwc(out, self.layout)

    def _reduce(self, part: Array) -> Array:
        if self.kind == "max":
            largest: Array = part.max(axis=(1, 2))
            return largest
        total = (part.astype(np.int64) - self.zero_point).sum(axis=(1, 2)).astype(np.int32)
        return truncated_quotient(total, part.shape[1] * part.shape[2])

    def shifted(self, offset: int, data: Type) -> tuple[Op, int]:
        """A largest value is larger too."""
        if self.kind == "max":
            return self, offset
        return replace(self, zero_point=self.zero_point + offset), 0

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range | None:
        if self.layout != NHWC:
            return None
        if self.kind == "max":
            return data[0]
        return _averages(data[0].plus(-self.zero_point), math.prod(types[0].shape[1:3]))

    @staticmethod
    def examples() -> Iterator[Example]:
        for layout in ("NHWC", "NCHW"):
            for output in ((1, 1), (3, 2), (7, 7)):
                for kind, dtype in (("avg", DType.INT32), ("avg", DType.INT8), ("max", DType.INT8)):
                    yield AdaptivePool2d(kind, output, layout), (Type((2, 7, 8, 5), dtype),)
                of = Type((2, 7, 8, 5), DType.UINT8)
                yield AdaptivePool2d("avg", output, layout, zero_point=125), (of,)


def adaptive_window(index: int, count: int, size: int) -> Pair:
    """First element and the one after the last of window ``index`` of ``count``."""
    return index * size // count, -(-(index + 1) * size // count)


def _window_examples(
    dtypes: tuple[DType, ...],
) -> Iterator[tuple[Window, tuple[int, ...], str, DType]]:
    windows = (
        Window((2, 2), (2, 2)),
        Window((3, 3), (2, 2), padding=(1, 1, 1, 1)),
        Window((3, 2), (1, 2), padding=(0, 1, 1, 0)),
        Window((3, 3), (2, 2), padding=(1, 0, 1, 0), ceil_mode=True),
        Window((2, 2), (1, 1), dilation=(2, 3)),
    )
    for window in windows:
        for layout in ("NHWC", "NCHW"):
            for dtype in dtypes:
                yield window, ((2, 6, 9, 5) if layout == NHWC else (2, 5, 6, 9)), layout, dtype


def _layout(call: Call) -> str:
    layout = call.attrs["layout"]
    require(layout in ("NHWC", "NCHW"), "layout", layout, "NHWC, NCHW")
    out_layout = call.attrs.get("out_layout") or layout
    require(out_layout == layout, "output layout", out_layout, layout)
    return str(layout)


def _add(call: Call, lowering: Lowering, op: Op) -> str:
    return lowering.builder.add(op, [lowering.tensor(call["data"])], sources=sources(call))


def _require_int32(call: Call, lowering: Lowering) -> None:
    dtype = lowering.type(call["data"]).dtype
    require(dtype is DType.INT32, "dtype of an average", dtype, "int32")


def _require_integer(call: Call, lowering: Lowering) -> None:
    dtype = lowering.type(call["data"]).dtype
    require(dtype.is_integer, "dtype of pooling", dtype, "an integer")


def _pooling_window(call: Call) -> Window:
    height, width = (int(v) for v in call.attrs["kernel"])
    return Window.of(call.attrs, (height, width))


def lower_max_pool2d(call: Call, lowering: Lowering) -> str:
    _require_integer(call, lowering)
    return _add(call, lowering, MaxPool2d(_pooling_window(call), _layout(call)))


def lower_avg_pool2d(call: Call, lowering: Lowering) -> str:
    if lowering.type(call["data"]).dtype.is_float:
        average = lowering.arithmetic.average_of_floats(call, lowering)
        if average is not None:
            return average
    _require_int32(call, lowering)
    window = _pooling_window(call)
    require(window.dilation == (1, 1), "dilation of an average", window.dilation, "(1, 1)")
    include = bool(call.attrs["count_include_pad"])
    rounded = lowering.arithmetic.rounds_averages
    return _add(call, lowering, AvgPool2d(window, _layout(call), include, rounded))


def add_average_of_floats(call: Call, lowering: Lowering, *, by_columns: bool) -> str:
    """The average pooling ``call`` of a dequantized tensor, whose floats are added up
    ``by_columns`` or row by row."""
    below, source = dequantize_below(call, lowering)
    window = _pooling_window(call)
    require(window.dilation == (1, 1), "dilation of an average", window.dilation, "(1, 1)")
    op = FloatAvgPool2d(
        window,
        _layout(call),
        bool(call.attrs["count_include_pad"]),
        by_columns,
        source.zero_point,
        float(source.scale),
    )
    names = (*sources(below), *sources(call))
    return lowering.builder.add(op, [lowering.tensor(below["data"])], sources=names)


def lower_adaptive_pool2d(kind: str, *, whole: bool) -> Lower:
    """adaptive_…_pool2d, and global_…_pool2d where ``whole``."""

    def lower(call: Call, lowering: Lowering) -> str:
        (_require_int32 if kind == "avg" else _require_integer)(call, lowering)
        layout = _layout(call)
        data = lowering.type(call["data"])
        _, h, w, _ = axes(layout)
        size = [] if whole else [int(v) for v in call.attrs["output_size"] or ()]
        if whole:
            output = (1, 1)
        elif not size:
            output = (data.shape[h], data.shape[w])
        else:
            output = (size[0], size[-1])
        return _add(call, lowering, AdaptivePool2d(kind, output, layout))

    return lower


POOLING = "kernel strides padding dilation ceil_mode layout out_layout"
OPERATORS = {
    "max_pool2d": OperatorRow(lower_max_pool2d, "data", POOLING),
    "avg_pool2d": OperatorRow(lower_avg_pool2d, "data", f"{POOLING} count_include_pad"),
    **{
        f"{what}_{kind}_pool2d": OperatorRow(
            lower_adaptive_pool2d(kind, whole=what == "global"),
            "data",
            "layout out_layout" + " output_size" * (what == "adaptive"),
        )
        for what in ("global", "adaptive")
        for kind in ("max", "avg")
    },
}
