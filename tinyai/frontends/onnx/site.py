"""A node of an ONNX file: its attributes and operands, and what is known of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from tinyai.frontends.faults import Fault
from tinyai.frontends.onnx.facts import Facts, constant_of
from tinyai.ir import Array

_STATIC = "--input-shapes with the size of each input, or a model that is exported with it"


@dataclass
class NodeView:
    """A node and what is known of the values before it: what ``reader.Site``, by which an operator
    is read, and ``RespelledNode``, which is for TVM's importer, both need to know of it."""

    node: Any
    facts: Facts

    def refuse(self, found: str, allowed: str, hint: str = _STATIC) -> NoReturn:
        what = f"operator {self.node.op_type} {self.node.name or self.node.output[0]!r}"
        raise Fault(f"{what}: {found}", allowed, hint)

    # --- Attributes ---

    def attr(self, name: str, default: Any = None) -> Any:
        import onnx

        given = [a for a in self.node.attribute if a.name == name]
        value = onnx.helper.get_attribute_value(given[0]) if given else default
        return value.decode() if isinstance(value, bytes) else value

    # --- Operands ---

    def operand(self, place: int) -> str:
        """The name of an input; "" where it is left out."""
        return str(self.node.input[place]) if place < len(self.node.input) else ""

    def value(self, place: int, what: str) -> Array:
        return constant_of(self.facts, self.operand(place), f"{self.node.op_type}: {what}")

    def numbers(self, place: int, what: str) -> list[int]:
        return [int(each) for each in self.value(place, what).reshape(-1)]

    def rank(self, place: int = 0) -> int:
        rank = self.facts.rank(self.operand(place))
        if rank is None:
            self.refuse(f"{self.operand(place)!r} of unknown rank", "a known one")
        return rank

    def sizes(self, place: int, axes: Sequence[int]) -> list[int]:
        """Dimensions that have to be known."""
        shape = self.facts.shape(self.operand(place))
        known = [] if shape is None else [shape[axis] for axis in axes]
        if shape is None or None in known:
            self.refuse(f"{self.operand(place)!r} of an open size", "a known size")
        return [int(size) for size in known if size is not None]


@dataclass
class RespelledNode(NodeView):
    """A node that is spelled anew. ``before`` and ``after`` go around it."""

    constants: list[Any] = field(default_factory=list)
    before: list[Any] = field(default_factory=list)
    after: list[Any] = field(default_factory=list)

    def drop(self, *names: str) -> None:
        kept = [a for a in self.node.attribute if a.name not in names]
        del self.node.attribute[:]
        self.node.attribute.extend(kept)

    def put(self, **attributes: Any) -> None:
        import onnx

        self.drop(*attributes)
        for name, value in attributes.items():
            self.node.attribute.append(onnx.helper.make_attribute(name, value))

    def set_operands(self, *names: str) -> None:
        del self.node.input[:]
        self.node.input.extend(names)

    def constant(self, array: Array, use: str) -> str:
        import onnx

        name = f"{self.node.output[0]}:{use}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def value_before(self, op: str, use: str, *operands: str, **attributes: Any) -> str:
        """The result of a new operator in front of this one."""
        import onnx

        name = f"{self.node.output[0]}:{use}"
        made = onnx.helper.make_node(op, operands, [name], name=f"{self.node.name}:{use}")
        made.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in attributes.items())
        self.before.append(made)
        return name

    def result_through(self, op: str, *operands: str, **attributes: Any) -> None:
        """A new operator makes this one's result of what this one makes then."""
        import onnx

        name, self.node.output[0] = str(self.node.output[0]), f"{self.node.output[0]}:inner"
        made = onnx.helper.make_node(op, [self.node.output[0], *operands], [name], self.node.name)
        made.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in attributes.items())
        self.after.append(made)

    def become(self, op: str, *operands: str, **attributes: Any) -> None:
        """The node is another operator of ONNX's own."""
        self.node.op_type, self.node.domain = op, ""
        self.set_operands(*operands)
        del self.node.attribute[:]
        self.put(**attributes)
