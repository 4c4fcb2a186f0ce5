"""The nodes that one node becomes where it is spelled out by others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Nodes:
    """What is ``made`` of the operator ``name``; each node has the name of its result."""

    name: str
    made: list[Any] = field(default_factory=list)

    @classmethod
    def inside_of(cls, name: str, names: Iterable[str]) -> Nodes:
        """Of the operator ``name``, in a file of values with these ``names``."""
        while any(each.startswith(f"{name}/") for each in names):
            name += "_"
        return cls(name)

    def add(self, op: str, result: str, *operands: str, **attrs: Any) -> str:
        import onnx

        self.made.append(onnx.helper.make_node(op, operands, [result], result, **attrs))
        return result

    def value(self, op: str, name: str, *operands: str, **attrs: Any) -> str:
        """The result of an operator inside of this one."""
        return self.add(op, f"{self.name}/{name}", *operands, **attrs)

    def constant(self, name: str, values: Any, dtype: Any = np.float32) -> str:
        import onnx

        tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(values, dtype))
        return self.value("Constant", name, value=tensor)

    def reshaped(self, name: str, value: str, sizes: Sequence[int]) -> str:
        return self.value("Reshape", name, value, self.constant(f"{name}/shape", sizes, np.int64))

    def part(self, name: str, value: str, start: int, end: int, axis: int) -> str:
        places = {"start": start, "end": end, "axis": axis}
        ends = [self.constant(f"{name}/{n}", [at], np.int64) for n, at in places.items()]
        return self.value("Slice", name, value, *ends)
