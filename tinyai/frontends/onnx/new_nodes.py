"""What a file with pairs has beside the source's: new names, constants, and the nodes of pairs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tinyai.frontends.onnx.facts import CONTRIB
from tinyai.ir import Array
from tinyai.qdq.operands import Grid

# The first opset whose pairs have 16 bits; before it those of ONNX Runtime's own do.
WITH_16_BITS = 21


class NewNodes:
    """``constants`` by name, ``of_constants`` the nodes that dequantize them. Names that are
    ``taken`` are not given anew."""

    def __init__(self, taken: Iterable[str], opset: int) -> None:
        self._taken, self._opset = {*taken}, opset
        self.constants: dict[str, onnx.TensorProto] = {}
        self.of_constants: list[onnx.NodeProto] = []
        self.has_16_bits = False

    def pair(
        self, name: str, at: Grid, source: str, between: str, target: str
    ) -> list[onnx.NodeProto]:
        """What reads ``source`` and hands ``between`` on to what makes ``target``."""
        pair = (
            self.number(f"{name}_scale", at.scale, "float32"),
            self.number(f"{name}_zero_point", at.zero_point, at.dtype),
        )
        domain = self._domain(at.dtype)
        return [
            helper.make_node(kind, [first, *pair], [last], f"{name}_{kind}", domain=domain)
            for kind, first, last in (
                ("QuantizeLinear", source, between),
                ("DequantizeLinear", between, target),
            )
        ]

    def dequantized(
        self, name: str, values: Array, scale: Array, zero: Array, axis: int | None
    ) -> str:
        """The result of a DequantizeLinear of constants, with scales along an axis or one."""
        shape, dtype = () if axis is None else (-1,), values.dtype.name
        inputs = [
            self.number(f"{name}_quantized", values, dtype),
            self.number(f"{name}_scale", scale.reshape(shape), "float32"),
            self.number(f"{name}_zero_point", zero.reshape(shape), dtype),
        ]
        node = self.name(f"{name}_DequantizeLinear")
        result = self.name(f"{node}_Output")
        more: dict[str, Any] = {} if axis is None else {"axis": axis}
        domain = self._domain(dtype)
        self.of_constants.append(
            helper.make_node("DequantizeLinear", inputs, [result], node, domain=domain, **more)
        )
        return result

    def _domain(self, dtype: str) -> str:
        wide = dtype == "int16" and self._opset < WITH_16_BITS
        self.has_16_bits |= wide
        return CONTRIB if wide else ""

    def number(self, name: str, value: Any, dtype: str) -> str:
        """A constant."""
        name = self.name(name)
        array = np.array(value, dtype, order="C")
        self.constants[name] = onnx.numpy_helper.from_array(array, name)
        return name

    def name(self, wanted: str) -> str:
        """A name that nothing else has."""
        name, number = wanted, 1
        while name in self._taken:
            number += 1
            name = f"{wanted}#{number}"
        self._taken.add(name)
        return name
