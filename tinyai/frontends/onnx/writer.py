"""Float expressions of the vocabulary as ONNX, for ONNX Runtime.

Images of channels last, as TFLite has them, stand between transpositions: ONNX Runtime moves these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import helper

from tinyai.frontends.onnx.float_nodes import WRITTEN, FloatNodes, element_type, not_written
from tinyai.frontends.onnx.unread import UnreadNode, in_opset, names_read, renamed
from tinyai.qdq.operands import tuple_of
from tinyai.source import (
    UNKNOWN,
    Call,
    Constant,
    Expr,
    Field,
    SourceType,
    Tuple,
    children,
    ordered,
    post_order,
)

# The first with quantize of 16 bits, and the form of files that came with it.
OPSET, IR_VERSION = 21, 10


def written(results: Iterable[Expr], inputs: Mapping[Expr, str]) -> onnx.ModelProto:
    """The model that computes ``results``, named ``result0`` and so on, of ``inputs`` by name.

    Raises ``OptionError`` for an operator that is not written.
    """
    results = [*results]
    calls = (each for each in post_order(tuple_of(*results)) if isinstance(each, Call))
    unread = (each.origin for each in calls)
    opset = max([OPSET, *(each.opset for each in unread if isinstance(each, UnreadNode))])
    writer = Writer(inputs, opset)
    for number, expr in enumerate(results):
        writer.add("Identity", writer.value(expr), outputs=[f"result{number}"])
    graph = helper.make_graph(
        writer.nodes,
        "floats",
        [_declared(name, expr.type) for expr, name in inputs.items()],
        [onnx.ValueInfoProto(name=f"result{number}") for number, _ in enumerate(results)],
        writer.constants,
    )
    others = sorted({node.domain for node in writer.nodes} - {"", "ai.onnx"})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(each, 1) for each in others)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _declared(name: str, of: SourceType) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type(of.dtype), of.shape)


class Writer(FloatNodes):
    """Nodes and constants of the expressions that were asked for, each written once."""

    def __init__(self, inputs: Mapping[Expr, str], opset: int = OPSET) -> None:
        super().__init__()
        self.opset = opset
        self._names = {expr: [name] for expr, name in inputs.items()}

    def value(self, root: Expr) -> str:
        """The name of an expression that is one tensor."""
        for expr in ordered(root, lambda below: () if below in self._names else children(below)):
            if expr not in self._names:
                self._names[expr] = self._written(expr)
        (name,) = self._names[root]
        return name

    def _written(self, expr: Expr) -> list[str]:
        match expr:
            case Constant():
                return [self.constant(expr.value)]
            case Tuple():
                return [name for field in expr.fields for name in self._names[field]]
            case Field():
                return [self._names[expr.call][expr.index]]
            case Call():
                args = [name for arg in expr.args for name in self._names[arg]]
                if expr.op == "split":
                    return self._split(expr, *args)
                if isinstance(expr.origin, UnreadNode):
                    return self._again(expr, expr.origin, args)
                if expr.op not in WRITTEN:
                    raise not_written(expr)
                return [WRITTEN[expr.op](self, expr, *args)]
        raise TypeError(f"no input of the model: {expr!r}")

    def _again(self, call: Call, origin: UnreadNode, args: Sequence[str]) -> list[str]:
        """A node that is not read, as it is, but in the opset of what is written."""
        given, values = names_read(origin.node), []
        for name, expr in zip(given, call.args, strict=True):
            is_known = len(expr.types) == 1 and expr.types[0] != UNKNOWN
            value = _declared(name, expr.type) if is_known else onnx.ValueInfoProto(name=name)
            values.append(value)
        try:
            graph = in_opset(origin.node, origin.opset, self.opset, values)
        except Exception as error:  # onnx raises errors of many kinds
            raise not_written(call, f", which has no form in opset {self.opset}: {error}") from None
        names = {"": "", **dict(zip(given, args, strict=True))}
        for tensor in graph.initializer:
            names[tensor.name] = self.constant(onnx.numpy_helper.to_array(tensor))
        for node in graph.node:
            own = f"value{len(self.nodes)}."
            names |= {name: f"{own}{place}" for place, name in enumerate(node.output) if name}
            self.nodes.append(renamed(node, names, own))
        return [names[name] for name in origin.node.output]

    def _split(self, call: Call, data: str) -> list[str]:
        axis, start = call.attrs["axis"], f"value{len(self.nodes)}"
        sizes = self.constant([of.shape[axis] for of in call.types], "int64")
        names = [f"{start}.{number}" for number, _ in enumerate(call.types)]
        self.add("Split", data, sizes, outputs=names, axis=axis)
        return names
