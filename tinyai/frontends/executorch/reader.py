"""From a torch graph to expressions of the vocabulary.

``operators/`` has a reader for each operator; here are the values that they read: what is
constant, what comes from outside, and in which order the dimensions of a tensor are stored.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from tinyai.errors import TinyAIError, UnsupportedError
from tinyai.ir import Array
from tinyai.partition.reasons import OWN_FAULT
from tinyai.partition.trial import NO_FAULT, warn_of_fault
from tinyai.source import UNKNOWN, Call, Expr, Refusal, SourceType, require
from tinyai.vocabulary import call, constant

QUANTIZATION = "quantized_decomposed."


def operator_of(node: Node) -> str:
    """What a node calls, without the overload: "aten.convolution"; "getitem" for a part."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return str(getattr(node.target, "__name__", node.target))
    return str(schema.name).replace("::", ".")


def calls(program: ExportedProgram) -> Iterator[Node]:
    return (node for node in program.graph.nodes if node.op == "call_function")


def arguments_of(node: Node) -> dict[str, Any]:
    """The arguments of an operator by the names that its schema gives them, defaults included."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return dict(node.kwargs)
    given = dict(zip((each.name for each in schema.arguments), node.args, strict=False))
    defaults = {each.name: each.default_value for each in schema.arguments}
    return {**defaults, **given, **node.kwargs}


def _fixed(size: Any) -> int | None:
    return size if isinstance(size, int) else None


def type_of(node: Node) -> SourceType:
    """Type of a node's tensor; refuses one that has several results."""
    value = node.meta.get("val")
    several = isinstance(value, tuple | list)
    kind = f"a tuple of {len(value)}" if several else type(value).__name__
    require(isinstance(value, torch.Tensor), "result", kind, "one tensor")
    return type_of_value(value)


def type_of_value(value: torch.Tensor, size: Callable[[Any], int | None] = _fixed) -> SourceType:
    """Type of a tensor; ``size`` tells a dimension that is none of a number."""
    return SourceType(tuple(map(size, value.shape)), str(value.dtype).removeprefix("torch."))


def dim_order_of(node: Node) -> tuple[int, ...]:
    """The dimensions of a node's tensor from the outermost in memory to the innermost."""
    value = node.meta["val"]
    fixed = all(isinstance(stride, int) for stride in value.stride())
    if not fixed or 0 in value.stride():
        return tuple(range(value.dim()))
    return tuple(sorted(range(value.dim()), key=value.stride().__getitem__, reverse=True))


@dataclass(frozen=True)
class Site:
    """A node as its reader sees it."""

    node: Node
    args: Mapping[str, Any]
    reading: Reading

    @cached_property
    def type(self) -> SourceType:
        """Of the node's result, which is one tensor."""
        types = self.types
        require(len(types) == 1, "result", f"a tuple of {len(types)}", "one tensor")
        return types[0]

    @cached_property
    def types(self) -> tuple[SourceType, ...]:
        """Of each of its tensors."""
        return self.reading.types_of(self.node)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(dim for dim in self.type.shape if dim is not None)

    def value(self, name: str) -> Expr:
        """The operand of this name."""
        operand = self.args[name]
        return self.reading(operand) if isinstance(operand, Node) else constant(operand)

    def known(self, name: str) -> Array | None:
        """The value of an operand that depends on constants alone; None of any other."""
        operand = self.args[name]
        return self.reading.known(operand) if isinstance(operand, Node) else None

    def known_or(self, name: str, absent: float) -> Array:
        """The value of a constant operand, or ``absent`` where there is none; refuses another."""
        value = np.asarray(absent) if self.args[name] is None else self.known(name)
        if value is None:
            raise Refusal(
                f"{name} of {operator_of(self.node)}", "computed at run time", "a constant"
            )
        return value

    def values(self, name: str) -> tuple[Expr, ...]:
        return tuple(map(self.reading, self.args[name]))

    def call(self, operator: str, *args: Expr, of: SourceType | None = None, **attrs: Any) -> Call:
        """A call of the vocabulary's operator with this node's type and name."""
        made = call(operator, of or self.type, *args, name=self.node.name, **attrs)
        return replace(made, spelling=operator_of(self.node))


Read: TypeAlias = "Callable[[Site], Expr]"


class Reading:
    """Expressions of a program's nodes, each read once.

    ``inside`` are the nodes that are read, None for all; a value of another node is an input, but
    for the program's constants. ``parameters`` are the nodes that became inputs, in the order
    of the program's graph, and what they became; ``refused`` says why a node has no
    expression of its own: it is a call of an operator that nobody knows.
    """

    def __init__(
        self,
        program: ExportedProgram | GraphModule,
        readers: Mapping[str, Read],
        inside: Collection[Node] | None = None,
    ) -> None:
        self.program, self.graph = program, program.graph
        self.readers, self.inside = readers, inside
        self.parameters: dict[Node, Expr] = {}
        self.refused: dict[Node, Refusal] = {}
        self.nodes: dict[Expr, Node] = {}
        self._made: dict[Node, Expr] = {}
        self._values: dict[Node, Array | None] = {}
        self.constants = constants_of(program)

    def __call__(self, node: Node) -> Expr:
        return self._made[node]

    def read(self) -> None:
        """Every node, in the order of the graph."""
        for node in self.graph.nodes:
            if node.op == "output":
                continue
            self._made[node] = self._read(node)
            self.nodes[self._made[node]] = node

    def known(self, node: Node) -> Array | None:
        """The value of a node that depends on constants alone, without quantization."""
        if node not in self._values:
            self._values[node] = self._known(node)
        return self._values[node]

    def _known(self, node: Node) -> Array | None:
        if node in self.constants:
            return array_of(self.constants[node])
        if self._is_outside(node) or operator_of(node).startswith(QUANTIZATION):
            return None
        values = {each: self.known(each) for each in node.all_input_nodes}
        # Without an operand it makes numbers: a constant, unless they are random.
        if any(value is None for value in values.values()) or not is_pure(node):
            return None
        known = {each: torch.from_numpy(np.array(value)) for each, value in values.items()}
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
        try:
            value = node.target(*args, **kwargs)
        except Exception:  # torch's operators raise what they like: then it is not known
            return None
        whole = isinstance(value, torch.Tensor)
        return array_of(value) if whole else None

    def _read(self, node: Node) -> Expr:
        known = self.known(node)
        if known is not None:
            return constant(known)
        if self._is_outside(node):
            return self._parameter(node)
        try:
            return self._call(node)
        except Refusal as refusal:
            self.refused[node] = refusal
        except TinyAIError:
            raise
        except Exception as error:  # which nobody foresaw: the rest is read all the same
            found = f"{type(error).__name__}: {error}"
            warn_of_fault(operator_of(node), found)
            self.refused[node] = Refusal(OWN_FAULT, found, NO_FAULT)
        return self._unknown(node)

    def _is_outside(self, node: Node) -> bool:
        """Whether a value comes from outside: what another program computes is no constant here."""
        return node.op != "call_function" or not (self.inside is None or node in self.inside)

    def _call(self, node: Node) -> Expr:
        for each in node.all_input_nodes:
            if each in self.constants and self.known(each) is None:
                found = f"{self.constants[each].dtype} of {each.name}"
                raise Refusal("dtype of a constant", found, "one that numpy has")
            kind = each.meta.get("val")
            require(not isinstance(kind, torch.SymInt), "operand", f"size {each.name}", "tensors")
        shapes = [of.shape for of in self.types_of(node)]
        dynamic = next((shape for shape in shapes if None in shape), None)
        require(dynamic is None, "shape", dynamic, "fixed dimensions")
        return self.readers[operator_of(node)](Site(node, arguments_of(node), self))

    def types_of(self, node: Node) -> tuple[SourceType, ...]:
        """Types of a node's tensors."""
        value = node.meta.get("val")
        several = value if isinstance(value, tuple | list) else [value]
        return tuple(
            self._type_of_value(each)
            if isinstance(each, torch.Tensor)
            else SourceType((), type(each).__name__)
            for each in several
        )

    def _type_of_value(self, value: torch.Tensor) -> SourceType:
        return type_of_value(value)

    def _unknown(self, node: Node) -> Call:
        args = tuple(map(self._made.__getitem__, node.all_input_nodes))
        types = self.types_of(node)
        return Call(types, op=operator_of(node), load_attrs=dict, load=lambda: args, name=node.name)

    def _parameter(self, node: Node) -> Expr:
        parameter, value = from_outside(node)
        if parameter is not None:
            self.parameters[node] = parameter
        return value


def from_outside(node: Node) -> tuple[Expr | None, Expr]:
    """The parameter that a value from outside is, with its dimensions in the order of memory, and
    the value itself; no parameter where it is not one tensor."""
    try:
        of = type_of(node)
    except Refusal:
        return None, Expr((UNKNOWN,))
    order = dim_order_of(node)
    parameter = Expr((replace(of, shape=tuple(of.shape[dim] for dim in order)),))
    back = tuple(int(dim) for dim in np.argsort(order))
    plain = order == tuple(range(len(order)))
    return parameter, parameter if plain else call("transpose", of, parameter, axes=back)


def tags_of(node: Node) -> Collection[torch.Tag]:
    """What torch says of an operator; the edge dialect's are wrapped ones of ATen."""
    target: Any = node.target
    overload = target if isinstance(target, torch._ops.OpOverload) else getattr(target, "_op", None)
    return getattr(overload, "tags", ())


def is_pure(node: Node) -> bool:
    """Whether an operator gives the same result each time."""
    return torch.Tag.nondeterministic_seeded not in tags_of(node)


def constants_of(program: ExportedProgram | GraphModule) -> dict[Node, torch.Tensor]:
    """The nodes that hold a parameter, a buffer that nobody changes, or a constant."""
    if isinstance(program, GraphModule):
        named = {n: n.target for n in program.graph.nodes if n.op == "get_attr"}
        found = {n: operator.attrgetter(str(name))(program) for n, name in named.items()}
        return {n: value for n, value in found.items() if isinstance(value, torch.Tensor)}
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    names = {
        **signature.inputs_to_parameters,
        **{n: t for n, t in signature.inputs_to_buffers.items() if t not in changed},
        **signature.inputs_to_lifted_tensor_constants,
    }
    held = {**program.constants, **program.state_dict}
    return {
        node: held[names[node.name]]
        for node in program.graph.nodes
        if node.op == "placeholder" and names.get(node.name) in held
    }


def array_of(tensor: torch.Tensor) -> Array | None:
    """The numbers of a constant; None of a dtype that numpy does not have.

    Partitioners get programs whose parameters have no numbers (``FakeTensor``), to save memory.
    What they stand for is found in the table by which they were made. Raises ``UnsupportedError``
    where it is not: a program whose numbers are not known is not divided.
    """
    real = _behind(tensor) if isinstance(tensor, FakeTensor) else tensor
    if real is None:
        raise UnsupportedError(
            "the constants of a program",
            found=f"tensors without numbers: torch {torch.__version__} keeps these elsewhere",
            allowed="parameters with numbers, or as torch 2.13 hides them from a partitioner",
            hint="the versions of torch and ExecuTorch that tinyai[executorch] asks for",
        )
    if not hasattr(np, str(real.dtype).removeprefix("torch.")):
        return None
    return np.ascontiguousarray(real.detach().contiguous().numpy())


def _behind(fake: FakeTensor) -> torch.Tensor | None:
    try:
        made = fake.fake_mode.fake_tensor_converter.meta_converter
        known = made.describer.lookup_tensor.items()
        return next((real for real, key in known if made.tensor_memo.get(key) is fake), None)
    except AttributeError:  # another torch has another table
        return None
