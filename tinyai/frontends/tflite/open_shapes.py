"""Shapes that a .tflite file leaves open, where the batch is. What a reshape to a computed shape
gives, its converter did not know: the file has 1 for each size of it, and for those of what
follows. Keras writes layers on more than two dimensions so, and dilated windows along one. As
LiteRT does, the sizes are taken from the inputs of each operator; a reader refuses what does not
fit.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import numpy as np

from tinyai.frontends.tflite.file import FileOperator
from tinyai.ir import Array
from tinyai.source import Constant, Expr

Shape = tuple[int, ...]

# Of these the values tell, whatever the file says; of the others, which move all that they read,
# where the file says another number of elements.
TOLD = ("SLICE", "CONCATENATION")
MOVES = ("RESHAPE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
_ELEMENTWISE = (
    *("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU"),
    *("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU", "ELU", "GELU", "HARD_SWISH"),
    *("LOGISTIC", "TANH", "SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION", "EXP", "LOG", "ABS", "NEG"),
    *("SQUARE", "SQRT", "RSQRT", "QUANTIZE", "DEQUANTIZE"),
)
_OF_IMAGES = ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D")


def shape_by_inputs(
    operator: FileOperator,
    declared: Shape,
    shapes: Sequence[Shape],
    values: Sequence[Expr | None],
) -> Shape:
    """The shape of an operator's result by those of its inputs, and by the ``values`` among them
    that are known; as ``declared`` where that is not told here."""
    kind, data = operator.kind, shapes[0]
    rest = [
        each.value if isinstance(each, Constant) and each.value.dtype.kind == "i" else None
        for each in values[1:]
    ]
    first, second, *_ = (*rest, None, None)
    found: Shape | None = None
    if kind == "RESHAPE" and first is not None:
        found = _reshaped(data, first.reshape(-1).tolist())
    elif kind in MOVES and first is not None and second is not None:
        found = _in_blocks(data, first, second, back=kind == "BATCH_TO_SPACE_ND")
    elif kind == "FULLY_CONNECTED" and len(shapes) > 1 and shapes[1][1:] > (0,):
        units, depth = shapes[1][:2]
        kept = operator.options.get("KeepNumDims", False)
        found = (*(data[:-1] if kept else [math.prod(data) // depth]), units)
    elif kind in _ELEMENTWISE:
        with contextlib.suppress(ValueError):  # of shapes that are refused
            found = np.broadcast_shapes(*shapes)
    elif kind in _OF_IMAGES:
        found = (*data[:1], *declared[1:])
    elif kind == "SLICE" and first is not None and second is not None:
        found = _sliced(data, first, second)
    elif kind == "CONCATENATION" and len({len(each) for each in shapes}) == 1 and data:
        axis = operator.options.get("Axis", 0) % len(data)
        found = (*data[:axis], sum(each[axis] for each in shapes), *data[axis + 1 :])
    elif kind == "EXPAND_DIMS" and first is not None and first.size == 1:
        found = (*data[:1], *declared[1:]) if first.item() % (len(data) + 1) else None
    return declared if found is None else found


def _reshaped(data: Shape, sizes: list[int]) -> Shape | None:
    """To ``sizes``, one of which may be -1."""
    count = math.prod(data)
    rest = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and rest > 0:
        sizes[sizes.index(-1)] = count // rest
    return tuple(sizes) if math.prod(sizes) == count and min(sizes, default=1) > 0 else None


def _sliced(data: Shape, begin: Array, size: Array) -> Shape | None:
    """From ``begin`` on, as many as ``size`` has, where -1 is all that are left."""
    starts, sizes = begin.reshape(-1).tolist(), size.reshape(-1).tolist()
    if not len(data) == len(starts) == len(sizes):
        return None
    rows = zip(data, starts, sizes, strict=True)
    found = tuple(whole - start if count == -1 else count for whole, start, count in rows)
    return found if min(found, default=0) >= 0 else None


def _in_blocks(data: Shape, blocks: Array, widths: Array, *, back: bool) -> Shape | None:
    """Of a batch whose images are cut into blocks, or that is put together of such: ``widths`` are
    those of borders, or what is cut off."""
    sizes, image = blocks.reshape(-1).tolist(), data[1:]
    if not 2 * len(sizes) == widths.size <= 2 * len(image) or min(sizes, default=1) < 1:
        return None
    count, pads = data[0], widths.reshape(-1, 2).sum(axis=1).tolist()
    pairs = [*zip(image, sizes, pads, strict=False)]
    rest, number = image[len(pairs) :], math.prod(sizes)
    if back:
        found = (count // number, *(n * size - cut for n, size, cut in pairs), *rest)
    else:
        found = (count * number, *((n + pad) // size for n, size, pad in pairs), *rest)
    return found if min(found) > 0 else None
