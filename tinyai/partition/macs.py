"""How much work an operator of a model is, by its shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from tinyai.source import Call


def macs(call: Call) -> int | None:
    """Multiply-accumulates of a convolution or a product of matrices in one run, by its shapes and
    without regard to padding; None for another operator, or where shapes are not known."""
    names = call.op, call.spelled
    rules = (rule for word, rule in _MACS if any(re.search(word, name) for name in names))
    rule = next(rules, None)
    shapes = [of.shape for expr in (call, *call.args[:2]) for of in expr.types]
    if rule is None or len(shapes) != 3 or any(None in shape for shape in shapes):
        return None
    result, data, weight = ([dim for dim in shape if dim is not None] for shape in shapes)
    return rule(call, result, data, weight)


def _layout(call: Call) -> str:
    """An operator that the vocabulary does not have keeps its attributes' names too."""
    return str(call.attrs.get("layout") or call.attrs.get("data_layout") or "NCHW")


def _conv_macs(call: Call, result: list[int], data: list[int], weight: list[int]) -> int:
    """Each place of the result meets every weight once."""
    layout = str(call.attrs.get("out_layout") or _layout(call))
    return _places(result, layout) * math.prod(weight)


def _transposed_macs(call: Call, result: list[int], data: list[int], weight: list[int]) -> int:
    """Each place of the data meets every weight once."""
    return _places(data, _layout(call)) * math.prod(weight)


def _matmul_macs(call: Call, result: list[int], data: list[int], weight: list[int]) -> int:
    turned = call.attrs.get("transpose_a") or call.attrs.get("tensor_a_transpose")
    return math.prod(result) * data[-2 if turned and len(data) > 1 else -1]


def _places(shape: list[int], layout: str) -> int:
    """Elements of all dimensions but the channels'; ``NCHW4c`` has two of those."""
    axes = re.sub(r"\d", "", layout)
    pairs = zip(shape, axes.ljust(len(shape), "?"), strict=False)
    return math.prod(dim for dim, axis in pairs if axis not in "Cc")


_MACS: tuple[tuple[str, Callable[[Call, list[int], list[int], list[int]], int]], ...] = (
    (r"conv\dd_transpose$", _transposed_macs),
    (r"conv\dd(_NCHWc)?(_int8)?$", _conv_macs),
    (r"dense$", lambda call, result, data, weight: math.prod(result) * data[-1]),
    (r"matmul$", _matmul_macs),
)
