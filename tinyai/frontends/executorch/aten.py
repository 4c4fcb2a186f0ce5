"""An exported torch graph in our vocabulary, as far as it takes to say which values are quantized.

That needs operators, operands, types and names, but no attributes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tinyai.source import Call, Constant, Expr, SourceType, Tuple, post_order
from tinyai.vocabulary import constant, signature

# By the name in aten, without overload and without the "_" of operators that work in place.
OPERATORS: Mapping[str, str] = MappingProxyType(
    {
        "conv1d": "conv1d",
        "conv2d": "conv2d",
        "conv_transpose2d": "conv2d_transpose",
        "linear": "dense",
        "add": "add",
        "sub": "subtract",
        "mul": "multiply",
        "div": "divide",
        "cat": "concatenate",
        "relu": "relu",
        "relu6": "clip",
        "hardtanh": "clip",
        "clamp": "clip",
        "max_pool2d": "max_pool2d",
        "avg_pool2d": "avg_pool2d",
        "mean": "mean",
        "sigmoid": "sigmoid",
        "tanh": "tanh",
        "exp": "exp",
        "log": "log",
        "sqrt": "sqrt",
        "rsqrt": "rsqrt",
        "erf": "erf",
        "abs": "abs",
        "neg": "negative",
        "ceil": "ceil",
        "floor": "floor",
        "leaky_relu": "leaky_relu",
        "maximum": "maximum",
        "minimum": "minimum",
        "softmax": "softmax",
        "batch_norm": "bias_add",  # in training it stays, and goes with its layer as a bias does
        "view": "reshape",
        "reshape": "reshape",
        "flatten": "reshape",
        "unflatten": "reshape",
        "squeeze": "reshape",
        "unsqueeze": "reshape",
        "permute": "transpose",
        "transpose": "transpose",
        "t": "transpose",
        "slice": "strided_slice",
        "select": "strided_slice",
        "narrow": "strided_slice",
        "dropout": "copy",
        "clone": "copy",
        "contiguous": "copy",
        "alias": "copy",
        "upsample_nearest2d": "resize2d",
        # What the vocabulary spells with several operators is one function of a value here, as it
        # is for torch: it becomes one table, whatever it computes.
        **dict.fromkeys(("hardswish", "hardsigmoid", "silu", "gelu"), "sigmoid"),
    }
)


class Reading:
    """``root`` is what the graph computes; ``nodes`` says which node an expression came from."""

    def __init__(self, model: GraphModule) -> None:
        self.model = model
        self.nodes: dict[Expr, Node] = {}
        self._exprs: dict[Node, Expr] = {}
        self.root: Expr = Tuple((), load=lambda: ())
        for node in model.graph.nodes:
            if node.op == "output":
                self.root = self._tuple(node.all_input_nodes)
            else:
                self._exprs[node] = self._read(node)

    def calls(self) -> list[tuple[str, Node]]:
        """The calls that the result depends on, by name."""
        found = post_order(self.root)
        return [(each.name, self.nodes[each]) for each in found if isinstance(each, Call)]

    def _read(self, node: Node) -> Expr:
        if node.op == "get_attr":
            expr: Expr = Constant(_types_of(node), load=lambda: _numpy(self._attribute(node)))
        elif node.op == "placeholder":
            expr = Expr(_types_of(node))
        else:
            expr = self._call(node)
        self.nodes[expr] = node
        return expr

    def _attribute(self, node: Node) -> torch.Tensor:
        found: Any = operator.attrgetter(str(node.target))(self.model)
        assert isinstance(found, torch.Tensor)
        return found

    def _call(self, node: Node) -> Expr:
        name, types = aten_name(node), _types_of(node)
        operands = [self._operand(arg) for arg in node.args]
        ours = OPERATORS.get(name, "")
        if name == "adaptive_avg_pool2d" and types[0].shape[-2:] == (1, 1):
            ours = "global_avg_pool2d"
        if node.kwargs.get("approximate", "none") != "none":  # gelu by tanh has no reader
            ours = ""
        known = signature(ours)
        if known is None:
            every = tuple(self._exprs[each] for each in node.all_input_nodes)
            return _unknown(str(node.target), types, every, node)
        operands = [*operands, *[None] * len(known.operands)][: len(known.operands)]
        return _made(ours, types, operands, node)

    def _operand(self, arg: object) -> Expr | None:
        if isinstance(arg, Node):
            return self._exprs[arg]
        if isinstance(arg, list | tuple) and arg and all(isinstance(each, Node) for each in arg):
            return self._tuple(arg)
        if isinstance(arg, int | float):
            return constant(float(arg), "float32")
        return None

    def _tuple(self, nodes: Iterable[Node]) -> Tuple:
        parts = tuple(self._exprs[each] for each in nodes)
        return Tuple(tuple(each for part in parts for each in part.types), load=lambda: parts)


def aten_name(node: Node) -> str:
    """What an operator is called in aten: ``relu`` for ``aten::relu_``."""
    schema = getattr(node.target, "_schema", None)
    name = schema.name if schema is not None else str(node.target)
    return str(name).removeprefix("aten::").rstrip("_")


def _made(
    name: str, types: tuple[SourceType, ...], operands: list[Expr | None], node: Node
) -> Call:
    """A call whose operands that aten does not have are 0, and whose attributes nobody reads."""
    known = signature(name)
    assert known is not None
    given = tuple(constant(0.0, "float32") if each is None else each for each in operands)
    return Call(
        types,
        op=name,
        load_attrs=dict,
        load=lambda: given,
        operands=known.operands,
        name=node.name,
        spelling=str(node.target),
    )


def _unknown(
    name: str, types: tuple[SourceType, ...], operands: tuple[Expr, ...], node: Node
) -> Call:
    return Call(types, op=name, load_attrs=dict, load=lambda: operands, name=node.name)


def _types_of(node: Node) -> tuple[SourceType, ...]:
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else (value,)
    return tuple(_type(each) for each in values)


def _type(value: Any) -> SourceType:
    if not isinstance(value, torch.Tensor):
        return SourceType((), type(value).__name__)
    shape = tuple(int(size) if isinstance(size, int) else None for size in value.shape)
    return SourceType(shape, str(value.dtype).removeprefix("torch."))


def _numpy(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().numpy()
