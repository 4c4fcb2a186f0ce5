"""Windows over images, as ONNX describes them: which pads ``auto_pad``, ``ceil_mode`` and
``output_shape`` stand for. Formulas are those of ONNX's operator pages and of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyai.frontends.onnx.site import NodeView


@dataclass(frozen=True)
class WindowAttributes:
    """``extent`` is what a window spans of each dimension; ``auto`` is SAME_UPPER, SAME_LOWER or
    VALID, "" for explicit pads."""

    extent: tuple[int, ...]
    dilations: tuple[int, ...]
    strides: tuple[int, ...]
    given: tuple[int, ...]
    auto: str

    @staticmethod
    def of(site: NodeView, kernel: Sequence[int]) -> WindowAttributes:
        count = len(kernel)
        dilations = site.attr("dilations") or [1] * count
        strides = site.attr("strides") or [1] * count
        pads = site.attr("pads") or [0] * (2 * count)
        lengths = len(dilations), len(strides), len(pads)
        if (
            lengths != (count, count, 2 * count)
            or min((*dilations, *strides, *kernel), default=1) < 1
        ):
            found = f"kernel {list(kernel)}, strides {strides}, dilations {dilations}, pads {pads}"
            site.refuse(found, f"1 and more, of {count} dimensions", "export it again")
        auto = site.attr("auto_pad", "NOTSET")
        return WindowAttributes(
            tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)),
            tuple(dilations),
            tuple(strides),
            tuple(pads),
            "" if auto == "NOTSET" else str(auto),
        )

    def counts(self, sizes: Sequence[int], pads: Sequence[int]) -> tuple[int, ...]:
        """How many windows there are in each dimension, with these pads."""
        half = len(sizes)
        return tuple(
            (size + pads[axis] + pads[axis + half] - self.extent[axis]) // self.strides[axis] + 1
            for axis, size in enumerate(sizes)
        )

    def pads(self, sizes: Sequence[int]) -> list[int]:
        """First those before each dimension, then those after."""
        if not self.auto:
            return list(self.given)
        if self.auto == "VALID":
            return [0] * (2 * len(sizes))
        total = [max(lacking, 0) for lacking in self.lacking(sizes)]
        return _divided(total, more_after=self.auto == "SAME_UPPER")

    def lacking(self, sizes: Sequence[int]) -> list[int]:
        """By how much each dimension is too short for a window at every stride that begins in it;
        negative where it is longer."""
        return [
            (-(-size // stride) - 1) * stride + extent - size
            for size, stride, extent in zip(sizes, self.strides, self.extent, strict=True)
        ]

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


# --- Of a node -----------------------------------------------------------------------------------


def kernel_of(site: NodeView, weight: int) -> list[int]:
    """The kernel of a convolution whose weights are this operand; [] where nothing tells it."""
    shape = site.facts.shape(site.operand(weight))
    given = site.attr("kernel_shape")
    if shape is None or None in shape[2:]:
        return [int(k) for k in given] if given else []
    kernel = [int(size or 0) for size in shape[2:]]
    if given and list(given) != kernel:
        site.refuse(f"kernel_shape {list(given)}", f"{kernel}, as its weights", "export it again")
    return kernel


def _spatial(site: NodeView, kernel: Sequence[int]) -> list[int]:
    if not kernel:
        site.refuse("auto_pad with weights of unknown size", "a known size")
    return site.sizes(0, range(2, 2 + len(kernel)))


def pads_of_layer(site: NodeView, window: WindowAttributes, kernel: Sequence[int]) -> list[int]:
    return window.pads(_spatial(site, kernel)) if window.auto else list(window.given)


def pads_of_transposed(
    site: NodeView, window: WindowAttributes, kernel: Sequence[int]
) -> list[int]:
    wanted = site.attr("output_shape")
    if not (window.auto or wanted):
        return list(window.given)
    more = list(site.attr("output_padding") or [0] * len(kernel))
    pads = window.pads_of_transposed(_spatial(site, kernel), more, wanted)
    if min(pads) < 0:
        site.refuse(f"a result of {list(wanted)}", "at most what its windows make", "more pads")
    return pads


def pads_of_pool(
    site: NodeView, window: WindowAttributes, sizes: Sequence[int], *, averages: bool
) -> list[int]:
    """Explicit pads of a pooling of images of these sizes, with those that ``ceil_mode`` adds."""
    if window.auto.startswith("SAME") and max(window.dilations, default=1) > 1:
        # ONNX's rule counts the dilation, ONNX Runtime 1.31 does not.
        site.refuse(f"auto_pad {window.auto} and dilations", "one of them", "explicit pads")
    late = -2 if window.auto == "SAME_UPPER" else -3
    if window.auto.startswith("SAME") and min(window.lacking(sizes), default=0) <= late:
        # ONNX Runtime 1.31 begins later then than its convolutions do, and than ONNX's rule says.
        found = f"auto_pad {window.auto}, strides {list(window.strides)} far beyond the windows"
        site.refuse(found, "windows that lie closer", "explicit pads")
    pads = window.pads(sizes)
    counted = averages and bool(site.attr("count_include_pad", 0))
    if not site.attr("ceil_mode", 0):
        return pads
    wide = window.pads_of_ceil(sizes, pads)
    if wide != pads and counted:
        site.refuse(
            "ceil_mode and count_include_pad, a window past the pads",
            "one of them",
            "explicit pads",
        )
    return wide
