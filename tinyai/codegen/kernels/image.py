"""Where the images of a convolution lie: with a border, without one, or copied to get one; and the
loops over them."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.ctree import Assign, CallStatement, Code, Declare, For, If, nest
from tinyai.codegen.helpers import ADD_BORDER, STRING_H, WRITE_BORDER
from tinyai.codegen.index import Axis
from tinyai.codegen.kernels.work_stealing import ends
from tinyai.codegen.lowered import Lowered, aligned
from tinyai.codegen.placed import BORDER_SLACK, Storage
from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.steps import Epilogue
from tinyai.ir import DType, Node, Op, operand_tensors
from tinyai.ops import Dense
from tinyai.ops.contraction import Contraction
from tinyai.ops.window import NHWC
from tinyai.traits import Border


@dataclass(frozen=True)
class Image:
    """Distances: between rows, between the images of a batch, between pixels, and from the start of
    the first image to the first value that counts (the first of the first window, or of the
    result); in bytes, and of a result of larger elements in those.
    ``border`` is what has to be written around it; ``copy_bytes`` the size of a copy that has to
    be made, 0 for none."""

    row: int
    image: int
    pixel: int
    first: int = 0
    border: Border | None = None
    copy_bytes: int = 0


def image_in(graph: Lowered, node: Node, g: Geometry, *, reaches_behind: bool) -> Image:
    """Where a convolution finds its input. ``reaches_behind`` says that it may read bytes beyond
    the last one, which only a copy or a tensor with a border has."""
    stored = graph.stored(node.inputs[0])
    border = stored.border
    top, left, bottom, right = g.window.padding
    plain = not any(g.window.padding) and g.window.upsample == (1, 1)
    if border is not None or (plain and not reaches_behind):
        image, row, pixel = _distances(stored)
        first = stored.first - (top * row + left * pixel if border else 0)
        return Image(row, image, pixel, first)
    height, width = g.window.spread((g.h, g.w))
    row, rows = (width + left + right) * g.c, height + top + bottom
    size = rows * row + BORDER_SLACK
    return Image(row, rows * row, g.c, copy_bytes=aligned(size))


def image_of(stored: Storage) -> Image:
    """Where a tensor lies that a convolution or dense layer makes or adds."""
    image, row, pixel = _distances(stored)
    return Image(row, image, pixel, stored.first, stored.border)


def takes_image(graph: Lowered, node: Node, name: str) -> bool:
    """Whether a tensor with a border is the result, the image that windows read as it is stored, or
    an operand that has an element for each result."""
    assert isinstance(node.op, Contraction)
    operand = name in operand_tensors(node.epilogue)
    whole = graph.type(name).shape == graph.type(node.output).shape
    as_image = name not in node.inputs or node.op.border is not None
    return name not in node.inputs[1:] and as_image and (whole or not operand)


def takes_border(graph: Lowered, name: str) -> bool:
    """Whether a kernel that moves an image writes the border too, if the image is stored with one:
    not where its readers turn signs. A copy with a border turns them once, not at each load."""
    return graph.stored(name).border is None or graph.type(name).dtype is graph.bytes_are


def border_of(stored: Storage, epilogue: Epilogue) -> Code:
    """Writes the border of a result, if any."""
    if stored.border is None:
        return None
    image, row, _, _ = stored.strides
    count, rows = stored.type.shape[:2]
    to = Image(row, image, stored.strides[2], border=stored.border)
    return For("n", 0, count, _write_border(to, rows, epilogue))


def _write_border(to: Image, rows: int, epilogue: Epilogue) -> Code:
    """Writes the border of image ``n``, of so many rows."""
    border = to.border
    if border is None:
        return None
    image = f"(uint8_t *)out + n * {to.image}"
    sides = border.top, border.left * to.pixel, border.bottom, border.right * to.pixel
    around = (rows, to.row, *sides, border.value)
    return CallStatement(epilogue.need(WRITE_BORDER), image, *around, *ends(rows, epilogue.threads))


def _distances(stored: Storage) -> tuple[int, int, int]:
    """Elements from one image to the next, from row to row and from pixel to pixel in NHWC; rows of
    a matrix are the pixels of one row."""
    *outer, pixel, _ = stored.strides
    columns = stored.type.shape[-2]
    image, row = outer if outer else (columns * pixel, columns * pixel)
    return image, row, pixel


def turned(zero_point: int, data: DType, to: DType) -> int:
    """The zero point of bytes whose type changes by turning their highest bits."""
    return zero_point + (to.range[0] - data.range[0])


@dataclass(frozen=True)
class Signs:
    """How signed values become unsigned, or the other way: by a copy that is made anyway, or at
    each load (``flip``: 128 in every byte of an int32). ``fill`` is the value of a copy's
    border."""

    flip: str
    copy_flip: int
    fill: int

    @classmethod
    def of(cls, data: DType, zero_point: int, to: DType, *, copied: bool) -> Signs:
        if data is to:
            return cls("0", 0, zero_point)
        flip = "0" if copied else "(-2139062143 - 1)"
        return cls(flip, 128, turned(zero_point, data, to))


@dataclass(frozen=True)
class Images:
    """Where the images of a convolution lie, and how signed values become unsigned."""

    g: Geometry
    source: Image
    target: Image
    signs: Signs

    def opened(self, epilogue: Epilogue) -> Code:
        """``image``, the first byte of the first window of image ``n``, copied with a border where
        it has none; and the border of the result."""
        waits = epilogue.threads > 1 and self.g.n > 1
        first = f"(const uint8_t *)in0 + n * {self.source.image} + {self.source.first}"
        found = Declare("const uint8_t *const", "image", first)
        return [
            If("n > 0", CallStatement("tinyai_barrier", "thread")) if waits else None,
            self._copied(epilogue) if self.source.copy_bytes else found,
            _write_border(self.target, self.g.oh, epilogue),
        ]

    def _copied(self, epilogue: Epilogue) -> Code:
        g, whole = self.g, f"(const uint8_t *)in0 + n * {self.g.h * self.g.w * self.g.c}"
        return [
            Declare("uint8_t *const", "copy", "(uint8_t *)scratch"),
            Declare("const uint8_t *const", "whole", whole),
            self._bordered(epilogue) if g.window.upsample == (1, 1) else self._spread(epilogue),
            CallStatement("tinyai_barrier", "thread") if epilogue.threads > 1 else None,
            Declare("const uint8_t *const", "image", "copy"),
        ]

    def _bordered(self, epilogue: Epilogue) -> Code:
        g, (top, left, bottom, right) = self.g, self.g.window.padding
        sides = top, left * g.c, bottom, right * g.c
        values = g.h, g.w * g.c, *sides, self.signs.fill, self.signs.copy_flip
        shares = ends(g.h, epilogue.threads)
        return CallStatement(epilogue.need(ADD_BORDER), "whole", "copy", *values, *shares)

    def _spread(self, epilogue: Epilogue) -> Code:
        """With places in between that hold the border's value; by one thread."""
        epilogue.need(STRING_H)
        g, (top, left, _, _) = self.g, self.g.window.padding
        down, along = g.window.upsample
        at = f"({top} + y * {down}) * {self.source.row} + ({left} + x * {along}) * {g.c} + i"
        value = f"whole[(y * {g.w} + x) * {g.c} + i] ^ {self.signs.copy_flip}"
        axes = [Axis("y", (g.h,)), Axis("x", (g.w,)), Axis("i", (g.c,))]
        spread = [
            CallStatement("memset", "copy", self.signs.fill, self.source.copy_bytes),
            nest(axes, Assign(f"copy[{at}]", f"(uint8_t)({value})")),
        ]
        return If("thread->task == 0", spread) if epilogue.threads > 1 else spread


def output_axes(g: Geometry, op: Op, pixel: str, channel: str) -> list[Axis]:
    """Loops over the output of a convolution or dense layer, in the order of its dimensions."""
    if isinstance(op, Dense):
        return [Axis(pixel, (g.ow,)), Axis(channel, (g.oc,))]
    return image_axes(g, pixel, channel)


def image_axes(g: Geometry, pixel: str, channel: str) -> list[Axis]:
    """Those over the images that a convolution makes."""
    image, pixels = Axis("n", (g.n,)), Axis(pixel, (g.oh, g.ow))
    channels = Axis(channel, (g.oc,))
    return [image, pixels, channels] if g.layout == NHWC else [image, channels, pixels]
