"""Where the images of a convolution lie: with a border, without one, or copied to get one."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.kernels.geometry import Geometry
from tinyai.ir import BORDER_SLACK, Border, DType, Graph, Node

ALIGNMENT = 64


@dataclass(frozen=True)
class Image:
    """Distances in bytes: between rows, between the images of a batch, and from the start of the
    first image to the first byte that counts (the first of the first window, or of the result).
    ``border`` is what has to be written around it; ``copy_bytes`` the size of a copy that has to
    be made, 0 for none."""

    row: int
    image: int
    first: int = 0
    border: Border | None = None
    copy_bytes: int = 0


def image_in(graph: Graph, node: Node, g: Geometry, *, reaches_behind: bool) -> Image:
    """Where a convolution finds its input. ``reaches_behind`` says that it may read bytes behind
    the last one, which only a copy or a tensor with a border has."""
    border = graph.tensors[node.inputs[0]].border
    top, left, bottom, right = g.window.padding
    if border is not None:
        row = (g.w + border.left + border.right) * g.c
        first = (border.top - top) * row + (border.left - left) * g.c
        return Image(row, (g.h + border.top + border.bottom) * row, first)
    plain = not any(g.window.padding) and g.window.upsample == (1, 1)
    if plain and not reaches_behind:
        return Image(g.w * g.c, g.h * g.w * g.c)
    height, width = g.window.spread((g.h, g.w))
    row, rows = (width + left + right) * g.c, height + top + bottom
    size = rows * row + BORDER_SLACK
    return Image(row, rows * row, copy_bytes=-(-size // ALIGNMENT) * ALIGNMENT)


def image_out(graph: Graph, node: Node, g: Geometry) -> Image:
    """Where a convolution or dense layer writes its result."""
    border = graph.tensors[node.output].border
    if border is None:
        return Image(g.ow * g.oc, g.oh * g.ow * g.oc)
    row = (g.ow + border.left + border.right) * g.oc
    rows = g.oh + border.top + border.bottom
    return Image(row, rows * row, border.top * row + border.left * g.oc, border)


def signs(data: DType, zero_point: int, *, copied: bool) -> dict[str, object]:
    """How signed values become unsigned: by a copy that is made anyway, or at each load (``flip``:
    128 in every byte of an int32). ``fill`` is the value of a copy's border."""
    signed = data is DType.INT8
    return {
        "flip": "(-2139062143 - 1)" if signed and not copied else "0",
        "copy_flip": 128 if signed else 0,
        "fill": zero_point + 128 if signed else zero_point,
    }
