"""Resize and Upsample: sizes and, to the nearest neighbour, which rows and columns are taken.

Positions are ONNX Runtime's, in float32: they follow the scale that the file has, while TVM's
follow the ratio of the sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tinyai.frontends.onnx.site import NodeView
from tinyai.ir import Array
from tinyai.ops.interpolate import Tap, Taps
from tinyai.ops.resize import nearest


@dataclass(frozen=True)
class Plan:
    """``indices`` are of each axis, for the nearest neighbour; ``why`` the importer reads another
    resizing, "" if it does not."""

    mode: str
    input_sizes: tuple[int, ...]
    sizes: tuple[int, ...]
    scales: tuple[np.float32, ...]
    coordinates: str
    indices: tuple[tuple[int, ...], ...]
    why: str
    allowed: str

    @property
    def is_read_right(self) -> bool:
        return not self.why

    def taps(self, axis: int) -> Taps:
        """Of the linear mode: neighbours and weights in float32, as ONNX Runtime has them."""
        before, after = self.input_sizes[axis], self.sizes[axis]
        position = np.arange(after, dtype=np.float32)
        if self.scales[axis] != 1:
            position = POSITIONS[self.coordinates](position, self.scales[axis], before, after)
        taps: list[Tap] = []
        for place in np.clip(position, np.float32(0), np.float32(before - 1)):
            first, last = int(place), min(int(place) + 1, before - 1)
            upper, lower = (abs(place - np.float32(end)) for end in (last, first))
            taps.append((first, last, float(upper), float(lower)))
            if first == last:
                taps[-1] = first, last, 0.5, 0.5
        return tuple(taps)


def plan_of(site: NodeView) -> Plan:
    rank = site.rank()
    # The importer leaves batch and channels as they are, so these may be open.
    batch = [size or 1 for size in (site.facts.shape(site.operand(0)) or ())[:2]]
    inputs = batch + site.sizes(0, range(2, rank))
    scales, sizes = _scales(site, inputs)
    if sizes == tuple(inputs):  # whatever the scales are, ONNX Runtime copies the image
        scales = [np.float32(1)] * rank
    mode = str(site.attr("mode", "nearest"))
    old = site.facts.opset < 11
    coordinates = (
        "asymmetric" if old else str(site.attr("coordinate_transformation_mode", "half_pixel"))
    )
    rounding = "simple" if old else str(site.attr("nearest_mode", "round_prefer_floor"))
    if coordinates not in POSITIONS:
        known = ", ".join(POSITIONS)
        site.refuse(f"coordinate_transformation_mode {coordinates}", known, "another one")
    indices = tuple(
        _indices(*each, coordinates, rounding) for each in zip(inputs, sizes, scales, strict=True)
    )
    why, allowed = "", ""
    exact = [
        np.float32(size) == np.float32(scale * np.float32(before))
        for scale, before, size in zip(scales, inputs, sizes, strict=True)
    ]
    if rank not in (3, 4, 5) or sizes[:2] != tuple(inputs[:2]):
        why, allowed = f"from {inputs} to {list(sizes)}", "images of the same batch and channels"
    elif not all(exact):
        shown = [float(scale) for scale in scales]
        why, allowed = f"scales {shown} of {inputs}", "scales that give whole sizes"
    elif mode == "linear" and coordinates == "align_corners" and 1 in sizes[2:]:
        why, allowed = "one row or column between aligned corners", "two at least: TVM divides by 0"
    elif mode == "nearest":
        # TVM's names of ONNX's modes are the same; of the old opsets it knows floor alone.
        theirs = tuple(
            nearest(before, size, coordinates, "" if old else rounding)
            for before, size in zip(inputs[2:], sizes[2:], strict=True)
        )
        if theirs != indices[2:]:
            why, allowed = f"{coordinates} with {rounding}", "rows that TVM takes as well"
    return Plan(mode, tuple(inputs), sizes, tuple(scales), coordinates, indices, why, allowed)


def _scales(site: NodeView, inputs: list[int]) -> tuple[list[np.float32], tuple[int, ...]]:
    """Of every axis, the scale and the size of the result."""
    rank = len(inputs)
    axes = [int(a) % rank for a in site.attr("axes") or range(rank)]
    place = 1 if site.facts.opset < 11 else 2
    scales, sizes = [np.float32(1)] * rank, list(inputs)
    given = site.operand(place)
    if given and site.value(place, "scales").size:
        for axis, scale in zip(axes, site.value(place, "scales").reshape(-1), strict=True):
            scales[axis] = np.float32(scale)
            sizes[axis] = int(np.float32(inputs[axis]) * scales[axis])
    else:
        for axis, size in zip(axes, site.numbers(3, "sizes"), strict=True):
            sizes[axis], scales[axis] = size, np.float32(size) / np.float32(inputs[axis])
    return scales, tuple(sizes)


# Where a place of the result lies in the data: of places, scale, sizes before and after.
Position = Callable[[Array, np.float32, int, int], Array]
HALF = np.float32(0.5)


def _half_pixel(place: Array, scale: np.float32, before: int, after: int) -> Array:
    return np.asarray((place + HALF) / scale - HALF)


def _align_corners(place: Array, scale: np.float32, before: int, after: int) -> Array:
    if after == 1:
        return np.zeros_like(place)
    return np.asarray(place * np.float32(before - 1) / np.float32(after - 1))


POSITIONS: dict[str, Position] = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": lambda place, scale, before, after: (
        _half_pixel(place, scale, before, after) if after > 1 else np.zeros_like(place)
    ),
    "tf_half_pixel_for_nn": lambda place, scale, before, after: (place + HALF) / scale,
    "align_corners": _align_corners,
    "asymmetric": lambda place, scale, before, after: place / scale,
}
_ROUNDED: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda position: np.ceil(position - HALF),
    "round_prefer_ceil": lambda position: np.floor(position + HALF),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _indices(
    before: int, after: int, scale: np.float32, coordinates: str, rounding: str
) -> tuple[int, ...]:
    if before == after and scale == 1:
        return tuple(range(before))
    position = POSITIONS[coordinates](np.arange(after, dtype=np.float32), scale, before, after)
    if rounding == "simple":  # of opset 10
        rounding = "ceil" if scale < 1 else "floor"
    return tuple(int(i) for i in np.clip(_ROUNDED[rounding](position), 0, before - 1))
