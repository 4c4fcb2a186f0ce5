"""Where the images of a convolution lie: with a border, without one, or copied to get one."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.helpers import WRITE_BORDER
from tinyai.codegen.kernels.geometry import Geometry
from tinyai.codegen.kernels.table import Values
from tinyai.codegen.lowered import BORDER_SLACK, Lowered, Storage
from tinyai.codegen.steps import Epilogue
from tinyai.ir import DType, Node, operand_tensors
from tinyai.ops.contraction import Contraction
from tinyai.traits import Border

ALIGNMENT = 64


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
    """Where a convolution finds its input. ``reaches_behind`` says that it may read bytes behind
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
    return Image(row, rows * row, g.c, copy_bytes=-(-size // ALIGNMENT) * ALIGNMENT)


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


def written_border(stored: Storage, epilogue: Epilogue) -> Values:
    """What the template ``border.c.j2`` asks for, which writes the border of a result, if any."""
    if stored.border:
        epilogue.need(WRITE_BORDER)
    return {"border": stored.border, "shape": stored.type.shape, "strides": stored.strides}


def _distances(stored: Storage) -> tuple[int, int, int]:
    """Elements from one image to the next, from row to row and from pixel to pixel in NHWC; rows of
    a matrix are the pixels of one row."""
    *outer, pixel, _ = stored.strides
    columns = stored.type.shape[-2]
    image, row = outer if outer else (columns * pixel, columns * pixel)
    return image, row, pixel


def signs(data: DType, zero_point: int, *, copied: bool) -> dict[str, object]:
    """How signed values become unsigned: by a copy that is made anyway, or at each load (``flip``:
    128 in every byte of an int32). ``fill`` is the value of a copy's border."""
    signed = data is DType.INT8
    return {
        "flip": "(-2139062143 - 1)" if signed and not copied else "0",
        "copy_flip": 128 if signed else 0,
        "fill": zero_point + 128 if signed else zero_point,
    }
