"""Nodes between pairs in a form that ONNX Runtime runs: what 1.31 and 1.32 fail on has others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto

from tinyai.ir import Array


def of_all_axes(
    node: NodeProto, known: Mapping[str, Array], shape: Sequence[int]
) -> tuple[int, Array] | None:
    """The numbers of all axes for a Pad or a Resize that has those of some, which are ``known``
    constants, and the place of that operand; ``shape`` is the data's. None for any other node.

    ONNX Runtime moves a Transpose behind such a node, and leaves its axes as they were.
    """
    if node.op_type == "Pad" and len(node.input) == 4:
        pads, some = (known.get(node.input[place]) for place in (1, 3))
        if pads is None or some is None:
            return None
        everywhere = np.zeros((2, len(shape)), np.int64)
        everywhere[:, some] = pads.reshape(2, -1)
        return 1, everywhere.reshape(-1)
    attributes = {each.name: each for each in node.attribute}
    if node.op_type != "Resize" or "axes" not in attributes:
        return None
    place = len(node.input) - 1
    numbers = known.get(node.input[place])
    with_others = node.input[1] != "" or "keep_aspect_ratio_policy" in attributes
    if place < 2 or numbers is None or with_others:
        return None
    all_of_them = np.array(shape if place == 3 else [1] * len(shape), numbers.dtype)
    all_of_them[[*attributes["axes"].ints]] = numbers
    return place, all_of_them


def without(node: NodeProto, *names: str) -> None:
    """Take attributes off a node."""
    for attribute in [each for each in node.attribute if each.name in names]:
        node.attribute.remove(attribute)
