"""Kernels of conv2d and dense."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tinyai.codegen.c import C_TYPES, less
from tinyai.codegen.ctree import Assign, CallStatement, Code, Comment, Declare, For, If, let, nest
from tinyai.codegen.helpers import PATCHES, dot_patches
from tinyai.codegen.index import Axis
from tinyai.codegen.kernels.image import image_axes, output_axes
from tinyai.codegen.lowered import Kernel, Lowered, Prepared, result_at_strides
from tinyai.codegen.shapes.geometry import VECTOR, Geometry
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Array, DType, Node
from tinyai.ops import Conv2d, Dense
from tinyai.ops.window import NHWC, Window


@dataclass(frozen=True)
class Portable(Prepared):
    """A convolution or dense layer in portable C."""

    g: Geometry

    def takes(self, graph: Lowered, name: str) -> bool:
        """Results whose pixels are all as far apart as neighbours are."""
        if not result_at_strides(graph, self.node, name):
            return False
        if isinstance(self.node.op, Dense):
            return True
        places = dict(zip(self.g.layout, graph.stored(self.node.output).strides, strict=True))
        return self.g.oh == 1 or places["H"] == self.g.ow * places["W"]


@dataclass(frozen=True)
class Patches(Portable):
    """A convolution that gathers what a few output pixels see: their *patches*, widened to int16,
    less the zero point, zero outside of the image. Each row of weights then meets all of them."""

    @classmethod
    def of(cls, graph: Lowered, node: Node) -> Patches:
        return cls(node, Geometry.of(graph, node))

    @property
    def count(self) -> int:
        """Patches of a pass. A layer of fewer pixels, as a dense one of one row, has no more."""
        return min(PATCHES, self.g.oh * self.g.ow)

    def scratch(self, graph: Lowered) -> int:
        g = self.g
        return self.count * (g.k * DType.INT16.bytes + g.group_out * g.sums.bytes)

    def weights(self, graph: Lowered) -> Array:
        """[out, kernel…, in] -> [out, k], rows padded with zeros to ``VECTOR``."""
        weight = graph.constants[self.node.inputs[1]]
        rows = weight.reshape(weight.shape[0], -1)
        return np.pad(rows, ((0, 0), (0, -rows.shape[1] % VECTOR)))

    def dot(self, epilogue: Epilogue) -> str:
        """Name of what takes the patches to sums."""
        g = self.g
        return epilogue.need(dot_patches(C_TYPES[g.weight], C_TYPES[g.sums], self.count))

    @property
    def direct(self) -> bool:
        """Whether patches are the pixels of the input, one after the other. Where a window makes
        one column of several, the geometry has no stride either."""
        g = self.g
        return g.window == Window((1, 1)) and g.groups == 1 and (g.oh, g.ow) == (g.h, g.w)

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        g = self.g
        groups = For("g", 0, g.groups, self._pixels(epilogue)) if g.groups > 1 else None
        offset = self.count * g.k * DType.INT16.bytes
        acc = f"({C_TYPES[g.sums]} *)(void *)((char *)scratch + {offset})"
        return [
            Declare("int16_t *const", "patch", "(int16_t *)scratch"),
            Declare(f"{C_TYPES[g.sums]} *const", "acc", acc),
            For("n", 0, g.n, groups or self._pixels(epilogue)),
        ]

    def _pixels(self, epilogue: Epilogue) -> Code:
        g, pixels, patches = self.g, self.g.oh * self.g.ow, self.count
        group = f" + g * {g.group_out * g.k}" if g.groups > 1 else ""
        return For(
            *("q", 0, pixels),
            let("count", f"{pixels} - q < {patches} ? {pixels} - q : {patches}"),
            Comment("Gather: after the last pixel, the last one again."),
            For(
                *("p", 0, patches),
                let("pixel", "q + (p < count ? p : count - 1)"),
                Declare("int16_t *", "to", f"patch + p * {g.k}"),
                self._pixel() if self.direct else self._window(),
                self._zeros(tail)
                if (tail := g.k - g.group_in * math.prod(g.window.kernel))
                else None,
            ),
            CallStatement(self.dot(epilogue), "patch", f"in1{group}", g.k, g.group_out, "acc"),
            Comment("Epilogue and store."),
            self.results(epilogue),
            step=patches,
        )

    def _pixel(self) -> Code:
        image, _, pixel, _ = self.g.data_strides
        return self._widened(f"in0 + n * {image} + pixel * {pixel}"), self._further

    def _window(self) -> Code:
        g, window = self.g, self.g.window
        (rows, columns), (down, along) = window.kernel, window.strides
        image, row, pixel, channel = g.data_strides
        group = f" + g * {g.group_in * channel}" if g.groups > 1 else ""
        data = f"in0 + n * {image} + y * {row} + x * {pixel}{group}"
        inside = f"y >= 0 && y < {g.h} && x >= 0 && x < {g.w}"
        return [
            let("top", f"pixel / {g.ow} * {down} - {window.padding[0]}"),
            let("left", f"pixel % {g.ow} * {along} - {window.padding[1]}"),
            For(
                *("ky", 0, rows),
                self._place("y", f"top + ky * {window.dilation[0]}", window.upsample[0]),
                For(
                    *("kx", 0, columns),
                    self._place("x", f"left + kx * {window.dilation[1]}", window.upsample[1]),
                    If(inside, self._widened(data), otherwise=[self._zeros(g.group_in)]),
                    self._further,
                ),
            ),
        ]

    def _place(self, name: str, at: str, upsample: int) -> Code:
        """A row or column of the input; none (-1) between those of data that is spread."""
        if self.g.window.upsample == (1, 1):
            return let(name, at)
        far = f"far_{name}"
        return let(far, at), let(name, f"{far} % {upsample} == 0 ? {far} / {upsample} : -1")

    def _widened(self, data: str) -> Code:
        g, channel = self.g, self.g.data_strides[3]
        value = f"(int16_t)(from[i * {channel}]{less(g.zero_point)})"
        return (
            Declare(f"const {C_TYPES[g.data]} *const", "from", data),
            For("i", 0, g.group_in, Assign("to[i]", value)),
        )

    def _zeros(self, count: int) -> Code:
        return For("i", 0, count, Assign("to[i]", 0))

    @property
    def _further(self) -> Code:
        return Assign("to", self.g.group_in, "+=")

    def results(self, epilogue: Epilogue) -> Code:
        """What takes the sums of ``count`` patches through the steps."""
        g = self.g
        channel = "c" if g.groups == 1 else f"(g * {g.group_out} + c)"
        axes = output_axes(g, self.node.op, "(q + p)", channel)
        steps = epilogue.write(f"acc[p * {g.group_out} + c]", g.sums, axes)
        if g.layout == NHWC:
            return For("p", 0, "count", For("c", 0, g.group_out, steps))
        return For("c", 0, g.group_out, For("p", 0, "count", steps))


def is_depthwise(graph: Lowered, node: Node) -> bool:
    g = Geometry.of(graph, node)
    return g.group_in == 1 < g.groups


@dataclass(frozen=True)
class DepthwiseRow(Portable):
    """A depthwise convolution with one row of accumulators: the channels of a pixel (NHWC), or the
    pixels of a row (NCHW), so that neighbours in memory are neighbours in the loop."""

    @classmethod
    def of(cls, graph: Lowered, node: Node) -> DepthwiseRow | str:
        g = Geometry.of(graph, node)
        if not is_depthwise(graph, node):
            return "more than one input channel a group"
        return "spread data" if g.window.upsample != (1, 1) else cls(node, g)

    def scratch(self, graph: Lowered) -> int:
        g = self.g
        return (g.oc if g.layout == NHWC else g.ow) * g.sums.bytes

    def weights(self, graph: Lowered) -> Array:
        """[out, kernel…, 1] -> [kernel…, out]: channels are neighbours, as in NHWC."""
        weight = graph.constants[self.node.inputs[1]]
        return np.ascontiguousarray(weight[..., 0].transpose(1, 2, 0))

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        g = self.g
        acc = Declare(f"{C_TYPES[g.sums]} *const", "acc", f"({C_TYPES[g.sums]} *)scratch")
        return [acc, self._pixels(epilogue) if g.layout == NHWC else self._planes(epilogue)]

    @property
    def _channel(self) -> str:
        """Of the input."""
        return "c" if self.g.group_out == 1 else f"c / {self.g.group_out}"

    @property
    def _row(self) -> Code:
        """A row of the input that the window sees; those outside of the image are passed over."""
        window = self.g.window
        at = f"y * {window.strides[0]} - {window.padding[0]} + ky * {window.dilation[0]}"
        return let("row", at), If(f"row < 0 || row >= {self.g.h}", "continue;")

    def _pixels(self, epilogue: Epilogue) -> Code:
        g, window = self.g, self.g.window
        image, row, pixel, _ = g.data_strides
        at = f"x * {window.strides[1]} - {window.padding[1]} + kx * {window.dilation[1]}"
        data = f"in0 + n * {image} + row * {row} + column * {pixel}"
        weight = f"in1 + (ky * {window.kernel[1]} + kx) * {g.oc}"
        product = f"(from[{self._channel}]{less(g.zero_point)}) * weight[c]"
        columns = For(
            *("kx", 0, window.kernel[1]),
            let("column", at),
            If(f"column < 0 || column >= {g.w}", "continue;"),
            Declare(f"const {C_TYPES[g.data]} *const", "from", data),
            Declare(f"const {C_TYPES[g.weight]} *const", "weight", weight),
            For("c", 0, g.oc, Assign("acc[c]", product, "+=")),
        )
        axes = image_axes(g, f"(y * {g.ow} + x)", "c")
        return nest(
            [Axis("n", (g.n,)), Axis("y", (g.oh,)), Axis("x", (g.ow,))],
            For("c", 0, g.oc, Assign("acc[c]", 0)),
            For("ky", 0, window.kernel[0], self._row, columns),
            For("c", 0, g.oc, epilogue.write("acc[c]", g.sums, axes)),
        )

    def _planes(self, epilogue: Epilogue) -> Code:
        g, window = self.g, self.g.window
        image, row, _, channel = g.data_strides
        along = window.strides[1]
        first = f"shift < 0 ? (-shift + {along - 1}) / {along} : 0"
        weight = f"in1[(ky * {window.kernel[1]} + kx) * {g.oc} + c]"
        product = f"(from[x * {along} + shift]{less(g.zero_point)}) * weight"
        columns = For(
            *("kx", 0, window.kernel[1]),
            Comment("The pixels whose tap lies inside of the row."),
            let("shift", f"kx * {window.dilation[1]} - {window.padding[1]}"),
            let("room", f"{g.w - 1} - shift"),
            let("first", first),
            let("most", f"room < 0 ? 0 : room / {along} + 1"),
            let("last", f"most < {g.ow} ? most : {g.ow}"),
            Declare(f"const {C_TYPES[g.data]} *const", "from", f"plane + row * {row}"),
            Declare(f"const {C_TYPES[g.weight]}", "weight", weight),
            For("x", "first", "last", Assign("acc[x]", product, "+=")),
        )
        plane = f"in0 + n * {image} + {self._channel} * {channel}"
        axes = image_axes(g, f"(y * {g.ow} + x)", "c")
        return nest(
            [Axis("n", (g.n,)), Axis("c", (g.oc,))],
            Declare(f"const {C_TYPES[g.data]} *const", "plane", plane),
            For(
                *("y", 0, g.oh),
                For("x", 0, g.ow, Assign("acc[x]", 0)),
                For("ky", 0, window.kernel[0], self._row, columns),
                For("x", 0, g.ow, epilogue.write("acc[x]", g.sums, axes)),
            ),
        )


KERNELS = (
    Kernel(name="conv2d_depthwise_scalar", op=Conv2d, prepare=DepthwiseRow.of, kind=is_depthwise),
    *(
        Kernel(name=f"{op.name}_patches_scalar", op=op, prepare=Patches.of)
        for op in (Conv2d, Dense)
    ),
)
