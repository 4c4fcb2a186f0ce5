"""``resize``: an image whose rows and columns are rows and columns of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.builders import Lowering, OperatorRow
from tinyai.ir import Array, DType, Example, Move, Type
from tinyai.ops.steps import Round
from tinyai.ops.window import LAYOUTS, ImageOp
from tinyai.source import Call, fixed_type, require, sources
from tinyai.traits import Dims


@dataclass(frozen=True)
class Resize(Move, ImageOp):
    """Row y of the result is row ``rows[y]`` of the input, column x its column ``columns[x]``.

    in: any type, four dimensions in the order of ``layout``; out: the same type.
    """

    name: ClassVar[str] = "resize"
    dims: ClassVar[Dims] = Dims.ALIGNED
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    layout: str = "NHWC"

    def sources(self) -> dict[int, tuple[int, ...]]:
        """The indices that are taken along each axis of the image."""
        return {self.layout.index("H"): self.rows, self.layout.index("W"): self.columns}

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        if self.layout not in LAYOUTS or len(x.shape) != 4:
            raise ValueError(f"resize of {x} in {self.layout}")
        shape = list(x.shape)
        for axis, indices in self.sources().items():
            if not indices or min(indices) < 0 or max(indices) >= x.shape[axis]:
                raise ValueError(f"indices {indices} along axis {axis} of {x}")
            shape[axis] = len(indices)
        return Type(tuple(shape), x.dtype)

    def reference(self, *inputs: Array) -> Array:
        result = inputs[0]
        for axis, indices in self.sources().items():
            result = result.take(indices, axis)
        return result

    def bound_dims(self) -> tuple[int, ...]:
        return tuple(range(len(self.layout)))

    @staticmethod
    def examples() -> Iterator[Example]:
        small = (Type((2, 3, 4, 5), DType.INT8),)
        yield Resize((0, 0, 1, 1, 2, 2), (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)), small
        yield Resize((0, 0, 0, 1, 1, 2), (0, 1, 1, 2, 2, 3, 3), "NHWC"), small
        yield Resize((0, 2), (3, 1, 1), "NCHW"), (Type((1, 2, 3, 4), DType.UINT8),)
        yield Resize((0, 2, 4), (0, 1, 2, 3), "NCHW"), (Type((2, 2, 5, 4), DType.INT64),)
        yield Resize((0,), (0, 0)), (Type((1, 1, 1, 1), DType.FLOAT32),)


# --- Nearest neighbours, as TVM's CPU finds them -------------------------------------------------

# Where a place lies in the input, from the place, the input's size and the result's: in float32.
Position = Callable[[Array, int, int], Array]


def _ratio(size: int, count: int) -> np.float32:
    return np.float32(size) / np.float32(count)


def _half_pixel(place: Array, size: int, count: int) -> Array:
    result: Array = (place + np.float32(0.5)) * _ratio(size, count) - np.float32(0.5)
    return result


POSITIONS: dict[str, Position] = {
    "half_pixel": _half_pixel,
    "asymmetric": lambda place, size, count: _ratio(size, count) * place,
    "align_corners": lambda place, size, count: _ratio(size - 1, count - 1) * place,
    "pytorch_half_pixel": lambda place, size, count: (
        _half_pixel(place, size, count) if count > 1 else np.zeros_like(place)
    ),
    "tf_half_pixel_for_nn": lambda place, size, count: (
        (place + np.float32(0.5)) * _ratio(size, count)
    ),
}
EPSILON = np.float32(1e-5)
NEAREST_MODES: dict[str, Callable[[Array], Array]] = {
    "round": lambda position: Round().reference(position, None),
    "round_prefer_floor": lambda position: np.ceil(position - np.float32(0.5)),
    "round_prefer_ceil": lambda position: np.floor(position + np.float32(0.5)),
    "floor": lambda position: np.floor(position + EPSILON),
    "ceil": lambda position: np.ceil(position - EPSILON),
}


def nearest(size: int, count: int, mode: str, nearest_mode: str) -> tuple[int, ...]:
    """Which of ``size`` rows each of ``count`` rows is. ``nearest_mode`` may be "": TVM's default.

    Where ``asymmetric`` makes whole copies of each row, TVM divides integers and rounds nothing.
    Where a position is half way between two rows, TVM's row may depend on the CPU, because LLVM
    fuses a product and a sum where the CPU can; this is the result without that. One row between
    aligned corners is none of TVM's, which divides by 0: the result is ().
    """
    if mode == "align_corners" and count == 1:
        return ()
    factor = count // size
    if mode == "asymmetric" and count == factor * size and factor * 1e-5 * (size + 1) <= 1:
        return tuple(place // factor for place in range(count))
    return _at_positions(size, count, mode, nearest_mode)


def _at_positions(size: int, count: int, mode: str, nearest_mode: str) -> tuple[int, ...]:
    nearest_mode = nearest_mode or ("round" if mode == "align_corners" else "floor")
    position = POSITIONS[mode](np.arange(count, dtype=np.float32), size, count)
    found = np.clip(NEAREST_MODES[nearest_mode](position), 0, size - 1)
    return tuple(int(index) for index in found)


# --- Lowering ------------------------------------------------------------------------------------


def lower_resize2d(call: Call, lowering: Lowering) -> str:
    """resize2d to the nearest neighbour."""
    mode = str(call.attrs["coordinates"])
    nearest_mode = str(call.attrs["nearest_mode"])
    require(mode in POSITIONS, "coordinates", mode, ", ".join(POSITIONS))
    require(
        nearest_mode in ("", *NEAREST_MODES), "nearest_mode", nearest_mode, ", ".join(NEAREST_MODES)
    )
    return _resize(call, lowering, mode, nearest_mode)


def lower_upsampling(call: Call, lowering: Lowering) -> str:
    """upsampling to the nearest neighbour."""
    return _resize(call, lowering, "align_corners" if call.attrs["align_corners"] else "asymmetric")


def _resize(call: Call, lowering: Lowering, mode: str, nearest_mode: str = "") -> str:
    method, layout = str(call.attrs["method"]), str(call.attrs["layout"])
    require(method == "nearest_neighbor", "method", method, "nearest_neighbor")
    require(layout in LAYOUTS, "layout", layout, ", ".join(LAYOUTS))
    data = lowering.type(call["data"])
    # TVM takes every value through float32, which rounds larger integers.
    require(data.dtype.bytes <= 2, f"dtype of {call.spelled}", data.dtype, "at most 16 bits")
    result = fixed_type(call.type, "result").shape
    rows, columns = (
        _indices(data.shape, result, layout.index(a), mode, nearest_mode) for a in "HW"
    )
    op = Resize(rows, columns, layout)
    return lowering.builder.add(op, [lowering.tensor(call["data"])], sources=sources(call))


def _indices(
    data: tuple[int, ...], result: tuple[int, ...], axis: int, mode: str, nearest_mode: str
) -> tuple[int, ...]:
    indices = nearest(data[axis], result[axis], mode, nearest_mode)
    require(bool(indices), "size", "one row or column between aligned corners", "two at least")
    meant = _at_positions(data[axis], result[axis], mode, nearest_mode)
    allowed = "floor: by whole factors TVM's CPU takes no other rows"
    require(indices == meant, "nearest_mode of whole factors", nearest_mode, allowed)
    return indices


OPERATORS = {
    "resize2d": OperatorRow(lower_resize2d, "data", "layout method coordinates nearest_mode"),
    "upsampling": OperatorRow(lower_upsampling, "data", "layout method align_corners"),
}
