"""The sliding window that convolution and pooling share: kernel, strides, dilation, padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinyai.ir import Array, Op, Type
from tinyai.source import require
from tinyai.traits import ChannelMap

NHWC = "NHWC"
LAYOUTS = (NHWC, "NCHW")
Pair = tuple[int, int]


def axes(layout: str) -> tuple[int, int, int, int]:
    """Positions of N, H, W, C in ``layout`` (NHWC or NCHW); ``ValueError`` for another."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout}: NHWC or NCHW only")
    return layout.index("N"), layout.index("H"), layout.index("W"), layout.index("C")


def to_nhwc(data: Array, layout: str) -> Array:
    return data.transpose(axes(layout))


class ImageOp(Op):
    """An operator on images, four dimensions in the order ``layout``, that keeps their channels
    apart where it does not say otherwise."""

    layout: str

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op | None:
        layout = "".join(self.layout[dim] for dim in dims)
        return replace(self, layout=layout) if layout in LAYOUTS else None  # type: ignore[type-var]

    def channel_map(self, *inputs: Type) -> ChannelMap | None:
        of = inputs[0]
        return ChannelMap((np.arange(of.channels),)) if self.layout == NHWC else None


@dataclass(frozen=True)
class Window:
    """Height first: kernel, strides and dilation (h, w); padding (top, left, bottom, right).

    ``ceil_mode`` lets the last window of a pooling reach over the padded border. ``upsample``
    spreads the rows and columns of the data that far apart before anything else, with zeros
    between: the stride of a transposed convolution.
    """

    kernel: Pair
    strides: Pair = (1, 1)
    dilation: Pair = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    ceil_mode: bool = False
    upsample: Pair = (1, 1)

    def __str__(self) -> str:
        """``3x3 strides 2x2``: the kernel, and what is not the default."""
        parts = ["x".join(map(str, self.kernel))]
        for name in ("strides", "dilation", "upsample"):
            pair = getattr(self, name)
            parts += [f"{name} {pair[0]}x{pair[1]}"] if pair != (1, 1) else []
        parts += [f"padding {' '.join(map(str, self.padding))}"] if any(self.padding) else []
        parts += ["ceil_mode"] if self.ceil_mode else []
        return " ".join(parts)

    @classmethod
    def of(cls, attrs: Mapping[str, Any], kernel: Pair) -> Window:
        """The window of an operator's attributes strides, padding, dilation, ceil_mode."""

        def pair(value: Any) -> Pair:
            height, width = (int(v) for v in value)
            return height, width

        top, left, bottom, right = pads = [int(v) for v in attrs["padding"]]
        require(min(pads) >= 0, "padding", pads, ">= 0")
        return cls(
            kernel,
            pair(attrs["strides"]),
            pair(attrs["dilation"]),
            (top, left, bottom, right),
            bool(attrs.get("ceil_mode", False)),
        )

    @property
    def extent(self) -> Pair:
        """Height and width that a dilated kernel covers."""
        height, width = (d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        return height, width

    def spread(self, size: Pair) -> Pair:
        """Height and width of the data after ``upsample``."""
        height, width = ((n - 1) * u + 1 for n, u in zip(size, self.upsample, strict=True))
        return height, width

    def _padded(self, size: Pair) -> Pair:
        height, width = self.spread(size)
        top, left, bottom, right = self.padding
        return height + top + bottom, width + left + right

    def output(self, size: Pair) -> Pair:
        """Height and width of the result; ``Refusal`` where no window fits."""
        padded = self._padded(size)
        height, width = (
            (p - e + (s - 1 if self.ceil_mode else 0)) // s + 1
            for p, e, s in zip(padded, self.extent, self.strides, strict=True)
        )
        require(min(height, width) >= 1, "window", f"{self.kernel} in {padded}", "one that fits")
        return height, width

    def overhang(self, size: Pair) -> Pair:
        """Rows and columns that the last window reaches beyond the padding (``ceil_mode``)."""
        padded = self._padded(size)
        rows, columns = (
            max(0, (o - 1) * s + e - p)
            for o, s, e, p in zip(self.output(size), self.strides, self.extent, padded, strict=True)
        )
        return rows, columns

    def sees(self, size: Pair) -> bool:
        """Whether every place of a pooling's window has an element of the image in it."""
        for first, length, count, kernel, stride, dilation in zip(
            self.padding[:2],
            size,
            self.output(size),
            self.kernel,
            self.strides,
            self.dilation,
            strict=True,
        ):
            taps = np.arange(count)[:, None] * stride - first + np.arange(kernel) * dilation
            if not ((taps >= 0) & (taps < length)).any(axis=1).all():
                return False
        return True

    def pad(self, nhwc: Array, value: int) -> Array:
        """The data, spread, with its border, so that every window lies inside."""
        top, left, bottom, right = self.padding
        rows, columns = self.overhang((nhwc.shape[1], nhwc.shape[2]))
        if self.upsample != (1, 1):
            n, height, width, channels = nhwc.shape
            spread = np.zeros((n, *self.spread((height, width)), channels), nhwc.dtype)
            spread[:, :: self.upsample[0], :: self.upsample[1]] = nhwc
            nhwc = spread
        border = ((0, 0), (top, bottom + rows), (left, right + columns), (0, 0))
        return np.pad(nhwc, border, constant_values=value)

    def tap(self, padded: Array, row: int, column: int) -> Array:
        """What one element of the kernel sees, for every window: padded NHWC in, NHWC out."""
        y, x = row * self.dilation[0], column * self.dilation[1]
        height, width = (
            (p - e) // s + 1
            for p, e, s in zip(padded.shape[1:3], self.extent, self.strides, strict=True)
        )
        rows = slice(y, y + (height - 1) * self.strides[0] + 1, self.strides[0])
        columns = slice(x, x + (width - 1) * self.strides[1] + 1, self.strides[1])
        tapped: Array = padded[:, rows, columns, :]
        return tapped
