"""Windows over images, as ONNX describes them: which pads ``auto_pad``, ``ceil_mode`` and
``output_shape`` stand for. Formulas are those of ONNX's operator pages and of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Window:
    """``extent`` is what a window spans of each dimension; ``auto`` is SAME_UPPER, SAME_LOWER or
    VALID, "" for explicit pads."""

    extent: tuple[int, ...]
    strides: tuple[int, ...]
    given: tuple[int, ...]
    auto: str

    @staticmethod
    def of(site: Any, kernel: Sequence[int]) -> Window:
        count = len(kernel)
        dilations = site.attr("dilations") or [1] * count
        auto = site.attr("auto_pad", "NOTSET")
        return Window(
            tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)),
            tuple(site.attr("strides") or [1] * count),
            tuple(site.attr("pads") or [0] * (2 * count)),
            "" if auto == "NOTSET" else str(auto),
        )

    def pads(self, sizes: Sequence[int]) -> list[int]:
        """First those before each dimension, then those after."""
        if not self.auto:
            return list(self.given)
        if self.auto == "VALID":
            return [0] * (2 * len(sizes))
        wanted = [-(-size // stride) for size, stride in zip(sizes, self.strides, strict=True)]
        total = [
            max((count - 1) * stride + extent - size, 0)
            for size, stride, extent, count in zip(
                sizes, self.strides, self.extent, wanted, strict=True
            )
        ]
        return _divided(total, more_after=self.auto == "SAME_UPPER")

    def pads_of_ceil(self, sizes: Sequence[int], pads: Sequence[int]) -> list[int]:
        """Pads that make as many whole windows as ``ceil_mode`` does: one that would begin behind
        the data and the pads before it is none."""
        count = len(sizes)
        result = list(pads)
        for axis, size in enumerate(sizes):
            stride, extent = self.strides[axis], self.extent[axis]
            whole = size + pads[axis] + pads[axis + count]
            windows = -(-(whole - extent) // stride) + 1
            if (windows - 1) * stride >= size + pads[axis]:
                windows -= 1
            result[axis + count] += max((windows - 1) * stride + extent - whole, 0)
        return result

    def pads_of_transposed(
        self, sizes: Sequence[int], more: Sequence[int], wanted: Sequence[int] | None
    ) -> list[int]:
        """What a transposed convolution cuts off, so that its result has the wanted size; negative
        where that is more than its windows make. Without one ``auto_pad`` wants the size of the
        data times the strides, or what the windows make."""
        if self.auto == "VALID" and not wanted:
            return [0] * (2 * len(sizes))
        goals = wanted or [size * stride for size, stride in zip(sizes, self.strides, strict=True)]
        total = [
            (size - 1) * stride + extra + extent - goal
            for size, stride, extra, extent, goal in zip(
                sizes, self.strides, more, self.extent, goals[-len(sizes) :], strict=True
            )
        ]
        if not wanted:
            total = [max(pads, 0) for pads in total]
        return _divided(total, more_after=self.auto == "SAME_UPPER")


def _divided(total: Sequence[int], *, more_after: bool) -> list[int]:
    fewer = [pads // 2 for pads in total]
    rest = [pads - half for pads, half in zip(total, fewer, strict=True)]
    return fewer + rest if more_after else rest + fewer
