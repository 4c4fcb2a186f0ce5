"""Images of another size whose pixels are weighted sums of four pixels: ``interpolate`` in integers
as TFLite has it, ``float_interpolate`` in float32 as ONNX Runtime has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tinyai.builders import Lowering, OperatorRow
from tinyai.ir import NARROW, Array, DType, Example, Op, Type
from tinyai.ops.scales import dequantize_below
from tinyai.ops.window import LAYOUTS, NHWC, ImageOp, axes, to_nhwc
from tinyai.source import Call, require, sources
from tinyai.traits import Range

# A row or column of the result: those of the input before and after its place, and their weights.
Tap = tuple[int, int, float, float]
Taps = tuple[Tap, ...]
LARGEST_PLACES = 22  # of the weights of a sum that fits an int32


@dataclass(frozen=True)
class Interpolation(ImageOp):
    """What both have in common: the result has a row for each of ``rows`` and a column for each of
    ``columns``; a pixel's weight is the product of its row's and its column's."""

    takes_epilogue: ClassVar[bool] = True
    rows: Taps
    columns: Taps
    layout: str = NHWC
    zero_point: int = 0

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if data.dtype not in NARROW:
            raise ValueError(f"{self.name} of {data.dtype}: {', '.join(NARROW)} only")
        shape, (_, *sides, _) = list(data.shape), axes(self.layout)
        for axis, taps in zip(sides, (self.rows, self.columns), strict=True):
            places = [place for tap in taps for place in tap[:2]]
            if not places or min(places) < 0 or max(places) >= data.shape[axis]:
                raise ValueError(f"{self.name}: places {places[:9]} along axis {axis} of {data}")
            if any(weight < 0 for tap in taps for weight in tap[2:]):
                raise ValueError(f"{self.name}: a negative weight along axis {axis}")
            shape[axis] = len(taps)
        return Type(tuple(shape), self._result(data.dtype))

    def _result(self, data: DType) -> DType:
        return data

    def _sums(self, values: Array) -> Array:
        """From left to right, the upper row first; ``values`` are of the type of the sums."""
        nhwc, parts = to_nhwc(values, self.layout), []
        for row in (0, 1):
            for column in (0, 1):
                taken = nhwc.take([int(tap[row]) for tap in self.rows], 1)
                taken = taken.take([int(tap[column]) for tap in self.columns], 2)
                down = np.array([tap[2 + row] for tap in self.rows], values.dtype)
                along = np.array([tap[2 + column] for tap in self.columns], values.dtype)
                parts.append(taken * (down[:, None] * along)[:, :, None])
        total: Array = parts[0] + parts[1] + parts[2] + parts[3]
        return total if self.layout == NHWC else total.transpose(0, 3, 1, 2)


@dataclass(frozen=True)
class Interpolate(Interpolation):
    """The weights are integers, which add up to a power of two each way; the sum over their
    product, 2**``places``, is rounded with halves away from ``zero_point``.

    in: int8 or uint8, four dimensions in the order of ``layout``; out: the same type.
    """

    name: ClassVar[str] = "interpolate"

    @property
    def places(self) -> int:
        return sum(int(sum(taps[0][2:])).bit_length() - 1 for taps in (self.rows, self.columns))

    def infer(self, *inputs: Type) -> Type:
        result = super().infer(*inputs)
        for taps in (self.rows, self.columns):
            wholes = {tap[2] + tap[3] for tap in taps}
            whole = all(weight == int(weight) for tap in taps for weight in tap[2:])
            power = len(wholes) == 1 and int(min(wholes)).bit_count() == 1
            if not (whole and power and 1 <= self.places <= LARGEST_PLACES):
                raise ValueError(f"{self.name}: weights that add up to {sorted(wholes)}")
        return result

    def reference(self, *inputs: Array) -> Array:
        total = self._sums(inputs[0].astype(np.int32) - np.int32(self.zero_point))
        half = 1 << (self.places - 1)
        rounded = (total + half - (total < 0)) >> self.places
        return np.asarray((rounded + self.zero_point).astype(inputs[0].dtype))

    def shifted(self, offset: int, data: Type) -> tuple[Op, int]:
        return replace(self, zero_point=self.zero_point + offset), offset

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range | None:
        return data[0] if self.layout == NHWC else None

    @staticmethod
    def examples() -> Iterator[Example]:
        rows, columns = _thirds(4, 3), _thirds(3, 4)
        yield Interpolate(rows, columns), (Type((2, 3, 3, 5), DType.INT8),)
        yield Interpolate(rows, columns, "NCHW"), (Type((2, 3, 3, 4), DType.INT8),)
        yield Interpolate(columns, rows), (Type((1, 3, 4, 40), DType.UINT8),)
        yield Interpolate(columns, rows, NHWC, 128), (Type((1, 3, 4, 17), DType.UINT8),)
        yield Interpolate(((0, 0, 1, 0),) * 2, ((1, 0, 2, 0),)), (Type((1, 1, 2, 1), DType.INT8),)


def _thirds(count: int, size: int, whole: int = 1024) -> Taps:
    """Taps at every kind of place, for examples."""
    return tuple(
        (n * (size - 1) // count, min(n, size - 1), whole - 341 * n % whole, 341 * n % whole)
        for n in range(count)
    )


@dataclass(frozen=True)
class FloatInterpolate(Interpolation):
    """Of the real values ``(x - zero_point) * scale``, with weights of float32 and products that
    are added up in order.

    in: int8 or uint8, four dimensions in the order of ``layout``; out: float32.
    """

    name: ClassVar[str] = "float_interpolate"
    scale: float = 1.0

    def _result(self, data: DType) -> DType:
        return DType.FLOAT32

    def reference(self, *inputs: Array) -> Array:
        steps = inputs[0].astype(np.int32) - np.int32(self.zero_point)
        return self._sums(steps.astype(np.float32) * np.float32(self.scale))

    def shifted(self, offset: int, data: Type) -> tuple[Op, int]:
        return replace(self, zero_point=self.zero_point + offset), 0

    @staticmethod
    def examples() -> Iterator[Example]:
        rows, columns = _thirds(4, 3), _thirds(3, 4)
        scale = float(np.float32(0.1))
        yield FloatInterpolate(rows, columns, NHWC, 7, scale), (Type((2, 3, 3, 5), DType.INT8),)
        yield FloatInterpolate(columns, rows, NHWC, 0, 0.5), (Type((1, 3, 4, 40), DType.UINT8),)
        yield FloatInterpolate(rows, columns, "NCHW"), (Type((1, 2, 3, 4), DType.UINT8),)


def lower_interpolate2d(call: Call, lowering: Lowering) -> str:
    """interpolate2d of integers, or of a dequantized tensor where the framework computes floats."""
    attrs = call.attrs["rows"], call.attrs["columns"], str(call.attrs["layout"])
    require(attrs[2] in LAYOUTS, "layout", attrs[2], ", ".join(LAYOUTS))
    data = lowering.type(call["data"])
    if data.dtype.is_float:
        how = lowering.arithmetic
        found = "an interpolation of floats"
        require(how.interpolates_floats, f"{how.whose} arithmetic of", found, "one of integers")
        below, source = dequantize_below(call, lowering)
        op: Op = FloatInterpolate(*attrs, source.zero_point, float(source.scale))
        names = (*sources(below), *sources(call))
        return lowering.builder.add(op, [lowering.tensor(below["data"])], sources=names)
    require(data.dtype in NARROW, "dtype of an interpolation", data.dtype, ", ".join(NARROW))
    tensor = lowering.tensor(call["data"])
    return lowering.builder.add(Interpolate(*attrs), [tensor], sources=sources(call))


OPERATORS = {"interpolate2d": OperatorRow(lower_interpolate2d, "data", "rows columns layout")}
