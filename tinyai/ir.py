"""The neutral graph between front ends and the back end: typed, frozen, verified.

A ``Graph`` is a list of nodes in the order of execution. A node applies one operator (``Op``, see
``tinyai.ops``) and then an *epilogue*: a straight line of elementwise steps, such as the
rounding constant, shift, clip and cast of a requantization, that run on each result before it is
stored. Tensors are named; a name is defined once. Nothing here knows TVM.
"""

from __future__ import annotations

import abc
import enum
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, count
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tinyai.dropped import NOTHING, Dropped
from tinyai.errors import GraphError
from tinyai.traits import ChannelMap, Dims, Range, join

Array = npt.NDArray[Any]


class DType(enum.StrEnum):
    """Element types, named as numpy and Relay name them."""

    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.value)

    @property
    def bytes(self) -> int:
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self is DType.FLOAT32

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        info = np.iinfo(self.numpy)
        return int(info.min), int(info.max)


# The types of quantized values.
NARROW = (DType.INT8, DType.UINT8)


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours of each dimension of a dense tensor of this shape."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


@dataclass(frozen=True)
class Type:
    """Shape and element type of a tensor. Scalars have the shape ()."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def channels(self) -> int:
        """Places of the last dimension."""
        return self.shape[-1] if self.shape else 1

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.bytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours of each dimension of a dense tensor."""
        return strides(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class QParams:
    """Affine quantization: real = scale * (q - zero_point), per tensor or along ``axis``."""

    scale: tuple[float, ...]
    zero_point: int = 0
    axis: int | None = None

    def __str__(self) -> str:
        each = " ".join(f"{scale:.6g}" for scale in self.scale)
        scale = each if self.axis is None else f"per-channel axis {self.axis}"
        return f"scale {scale}, zero point {self.zero_point}"


@dataclass(frozen=True)
class Stored:
    """Which channels (places of the last dimension) a tensor stores of the ``whole`` ones that the
    same tensor of the source model has.

    ``channels`` are the stored ones, in their order. ``constant`` holds pairs of a channel and the
    value that it has for every input, ``equal`` pairs of a channel and the stored one that has the
    same values. All others were read by nobody.
    """

    whole: int
    channels: tuple[int, ...]
    constant: tuple[tuple[int, int], ...] = ()
    equal: tuple[tuple[int, int], ...] = ()

    @property
    def unread(self) -> int:
        """How many channels nobody read."""
        return self.whole - len(self.channels) - len(self.constant) - len(self.equal)

    def plus(self, number: int) -> Stored:
        """The same of a tensor whose values are all larger by ``number``."""
        return replace(self, constant=tuple((c, value + number) for c, value in self.constant))

    def restored(self, value: Array) -> tuple[Array, Array]:
        """The tensor with all channels that follow from the stored ones, and which these are."""
        whole = np.zeros((*value.shape[:-1], self.whole), value.dtype)
        whole[..., list(self.channels)] = value
        for channel, number in self.constant:
            whole[..., channel] = number
        for channel, stored in self.equal:
            whole[..., channel] = whole[..., stored]
        known = [*self.channels, *(c for c, _ in self.constant), *(c for c, _ in self.equal)]
        return whole, np.isin(np.arange(self.whole), known)

    def __str__(self) -> str:
        runs = np.split(self.channels, np.flatnonzero(np.diff(self.channels) != 1) + 1)
        texts = (f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
        return f"channels {' '.join(texts)} of {self.whole}"


@dataclass(frozen=True)
class Tensor:
    """A named value: what a node writes, an input, or a constant."""

    name: str
    type: Type
    quant: QParams | None = None
    stored: Stored | None = None

    def __str__(self) -> str:
        facts = [f"<{self.quant}>"] if self.quant else []
        facts += [f"({self.stored})"] if self.stored else []
        return " ".join([f"%{self.name}: {self.type}", *facts])


def _said(what: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of a dataclass's fields, without those that have their default."""
    for each in fields(what):
        value = getattr(what, each.name)
        if value != each.default:
            yield each.name, value


@dataclass(frozen=True)
class Operand:
    """The second operand of a step: a tensor, after elementwise steps of its own."""

    tensor: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Step(abc.ABC):
    """One elementwise operation of an epilogue: a frozen dataclass in ``tinyai/ops/steps/``.

    ``operand``, where the kind has one, is broadcast to the shape of the node's output and has
    the type of the value that it meets.

    What follows ``fits`` are its *traits*: what passes ask. A kind that has none of its own answers
    what is true of any step, and is left as it is.
    """

    name: ClassVar[str]
    keeps_channels: ClassVar[bool] = False  # whether passes leave a node's channels as they are
    operand: Operand | None = field(default=None, kw_only=True)

    @abc.abstractmethod
    def result(self, dtype: DType) -> DType:
        """Type of the result on a value of type ``dtype``; ``ValueError`` where not defined."""

    @abc.abstractmethod
    def reference(self, value: Array, operand: Array | None) -> Array:
        """The step in plain numpy; integers wrap as in TVM."""

    def with_operand(self, change: Callable[[Operand], Operand]) -> Step:
        """The step with its operand changed, if it has one."""
        return self if self.operand is None else replace(self, operand=change(self.operand))

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether the step's own numbers fit an output of this shape."""
        return True

    @property
    def commuted(self) -> type[Step] | None:
        """The kind that gives the same result where value and operand change places."""
        return None

    @property
    def along(self) -> int | None:
        """The dimension of the node's output along which each element has numbers of its own."""
        return None

    def with_elements(self, elements: Sequence[int], axis: int) -> Step:
        """The step with the numbers of these elements, for outputs where they lie along ``axis``;
        asked only of steps with numbers ``along`` a dimension."""
        raise NotImplementedError(self.name)

    def apart(self) -> tuple[Step, Array]:
        """The step without the numbers ``along`` a dimension, and these, a row for each element."""
        raise NotImplementedError(self.name)

    def is_identity(self, dtype: DType, operand: Array | None) -> bool:
        """Whether it changes no integer of type ``dtype``; ``operand`` is given where constant."""
        return False

    def commutes_with_widening(self) -> bool:
        """Whether it gives of an int64 that is an int32's value what it gives of the int32."""
        return False

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        """The range of the result, for a value of type ``of`` within ``value``; None where it is
        not known. A range that leaves the result's type says that results may wrap."""
        return None

    def largest(self, size: int, operand: int, constant: Array | None) -> int | None:
        """The largest absolute value of a result that does not wrap, of a value of at most ``size``
        and an operand of at most ``operand``, which is ``constant`` where that is known."""
        return None

    def text(self, show: Callable[[str], str]) -> str:
        """``kind(operand, arguments)``, where ``show`` names a tensor."""
        args = [str(value) for name, value in _said(self) if name != "operand"]
        if self.operand is not None:
            inner = format_steps(self.operand.steps, show)
            args.insert(0, " >> ".join(filter(None, (show(self.operand.tensor), inner))))
        return f"{self.name}({', '.join(args)})"


class Op(abc.ABC):
    """An operator with its attributes: a frozen dataclass in ``tinyai/ops/``.

    ``name`` is unique. What follows ``macs``, and these three, are its *traits*: what passes ask.
    One that has none of its own answers what is true of any operator, and is left as it is.

    - ``takes_epilogue``: whether kernels of this operator run steps on their results.
    - ``takes_narrow``: whether it sums in int32 whatever 8-bit integers it reads.
    - ``dims``: how it works in another order of dimensions. All but ``FIXED`` ones can be
      ``permuted``, but for what is nothing else than another order, or other dimensions.
    """

    name: ClassVar[str]
    takes_epilogue: ClassVar[bool] = False
    takes_narrow: ClassVar[bool] = False
    dims: ClassVar[Dims] = Dims.FIXED

    @abc.abstractmethod
    def infer(self, *inputs: Type) -> Type:
        """Type of the result before the epilogue. Raises ``ValueError`` with the reason."""

    @abc.abstractmethod
    def reference(self, *inputs: Array) -> Array:
        """The operator in plain numpy: the meaning that every kernel must equal bit for bit."""

    @staticmethod
    @abc.abstractmethod
    def examples() -> Iterator[Example]:
        """Operators with input types, at the edges of what is allowed: the tests walk them."""

    def macs(self, *inputs: Type) -> int:
        """Multiply-accumulate operations of one run."""
        return 0

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op | None:
        """The operator on inputs whose dimension i is what was ``dims[i]``, with a result of this
        shape; None where it cannot work so."""
        return None

    def bound_dims(self) -> tuple[int, ...]:
        """Dimensions along which elements do not all meet the same: no other may be part of one."""
        return ()

    def dropped_dims(self) -> tuple[int, ...]:
        """Dimensions of the data that the result has not; of a ``REDUCED`` operator."""
        return ()

    def channel_map(self, *inputs: Type) -> ChannelMap | None:
        """Which channels (places of the last dimension) of the data each one of the result is made
        of; None where that is more than one of an input."""
        return None

    def with_channels(self, kept: Array, count: int) -> Op | None:
        """The operator where the channels ``kept`` of the data are left, and ``count`` of the
        result; None where it cannot do without the others. Asked where there is a channel map."""
        return self

    def without_channels(self) -> Op:
        """The operator as it is for any channel: without what it says of their places."""
        return self

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range | None:
        """The range of the result for inputs of these types within ``data``, constant ones with
        their values; None where it is not known. A range that leaves the result's type says that
        results may wrap."""
        return None

    def shifted(self, offset: int, data: Type) -> tuple[Op, int] | None:
        """The operator for a first input that is ``offset`` larger, and what its result is larger
        by, for every input; None where that is not known."""
        return None

    def padded(self, widths: Sequence[tuple[int, int]], value: float) -> Op | None:
        """The operator that pads its first input itself, by (before, after) of each dimension;
        None where it cannot."""
        return None

    def __str__(self) -> str:
        attrs = ", ".join(f"{name}={value}" for name, value in _said(self))
        return f"{self.name}({attrs})" if attrs else self.name


class Move(Op):
    """An operator whose result is made of elements of its inputs alone."""

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range:
        return join(data, self.channel_map(*types), self.infer(*types).channels)


Example = tuple[Op, tuple[Type, ...]]


@dataclass(frozen=True)
class Node:
    """``output = epilogue(op(inputs))``. ``sources`` are names from the user's model."""

    op: Op
    inputs: tuple[str, ...]
    output: str
    epilogue: tuple[Step, ...] = ()
    sources: tuple[str, ...] = ()

    def reads(self) -> tuple[str, ...]:
        """Every tensor that the node reads, inputs first, operands of steps after, each once."""
        return tuple(dict.fromkeys((*self.inputs, *operand_tensors(self.epilogue))))

    @property
    def named(self) -> str:
        """The operator, and the names by which the user's model knows the layer, for messages."""
        of = f" of layer {', '.join(map(repr, self.sources))}" if self.sources else ""
        return f"{self.op.name}{of}"


def operands(steps: Iterable[Step]) -> Iterator[Operand]:
    """What steps read, and after each what its steps read."""
    return (step.operand for step in every_step(steps) if step.operand is not None)


def operand_tensors(steps: Iterable[Step]) -> Iterator[str]:
    """Names of the tensors that steps read, in the order of use."""
    return (operand.tensor for operand in operands(steps))


def every_step(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps, and after each those of its operand."""
    for step in steps:
        yield step
        if step.operand is not None:
            yield from every_step(step.operand.steps)


def step_types(dtype: DType, steps: Iterable[Step]) -> list[DType]:
    """The type in front of the steps, and after each of them."""
    return list(accumulate(steps, lambda before, step: step.result(before), initial=dtype))


def rename_steps(steps: tuple[Step, ...], rename: Callable[[str], str]) -> tuple[Step, ...]:
    """The same steps with every operand's tensor renamed."""

    def renamed(operand: Operand) -> Operand:
        return Operand(rename(operand.tensor), rename_steps(operand.steps, rename))

    return tuple(step.with_operand(renamed) for step in steps)


def rename_reads(node: Node, rename: Callable[[str], str]) -> Node:
    """The same node with every tensor that it reads renamed."""
    inputs = tuple(map(rename, node.inputs))
    return replace(node, inputs=inputs, epilogue=rename_steps(node.epilogue, rename))


@dataclass(frozen=True)
class Graph:
    """A region: inputs, constants, nodes in the order of execution, outputs.

    ``tensors`` holds every tensor by name; ``constants`` the values of those that are constant
    (read-only arrays). ``outputs`` are names of tensors that nodes define, each once.
    ``dropped`` is what passes left out of the source model.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, Array] = field(default_factory=dict)
    dropped: Dropped = NOTHING

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))

    def type(self, name: str) -> Type:
        return self.tensors[name].type

    def types(self, names: Iterable[str]) -> list[Type]:
        return [self.type(name) for name in names]

    def computed(self, node: Node) -> Type:
        """The type of what a node's operator computes, before its epilogue."""
        return node.op.infer(*self.types(node.inputs))

    @functools.cached_property
    def makers(self) -> Mapping[str, Node]:
        """The node that defines each tensor that is neither an input nor constant."""
        return MappingProxyType({node.output: node for node in self.nodes})

    @functools.cached_property
    def readers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each tensor, in the order of execution, each once; none for what
        nobody reads."""
        found: dict[str, list[Node]] = {name: [] for name in self.tensors}
        for node in self.nodes:
            for name in node.reads():
                found[name].append(node)
        return MappingProxyType({name: tuple(nodes) for name, nodes in found.items()})

    @functools.cached_property
    def uses(self) -> Mapping[str, int]:
        """How often each tensor is read: by nodes (each read counts) and as an output."""
        count = dict.fromkeys(self.tensors, 0)
        for node in self.nodes:
            for name in (*node.inputs, *operand_tensors(node.epilogue)):
                count[name] += 1
        for name in self.outputs:
            count[name] += 1
        return MappingProxyType(count)

    def constant_operand(self, step: Step | None) -> Array | None:
        """The value of a step's operand, where that is constant and has no steps of its own."""
        if step is None or step.operand is None or step.operand.steps:
            return None
        return self.constants.get(step.operand.tensor)

    def number(self, name: str) -> Array | None:
        """The value of a constant that is one number, in whatever shape."""
        value = self.constants.get(name)
        return value if value is not None and value.size == 1 else None

    def number_operand(self, step: Step | None) -> Array | None:
        """``constant_operand``, where it is one number."""
        if step is None or step.operand is None or step.operand.steps:
            return None
        return self.number(step.operand.tensor)

    def macs(self) -> int:
        return sum(node.op.macs(*self.types(node.inputs)) for node in self.nodes)

    def weight_bytes(self) -> int:
        return sum(value.nbytes for value in self.constants.values())

    def __str__(self) -> str:
        return print_graph(self)


def rewritten(
    graph: Graph, rewrite: Callable[[Node], Node | str], known: Mapping[str, str] | None = None
) -> Graph:
    """The graph with each node as ``rewrite`` gives it; where that is the name of another tensor,
    the node goes away, and all that follow read that tensor. ``known`` are such names of before."""
    instead = dict(known or {})
    nodes = []
    for node in graph.nodes:
        found = rewrite(rename_reads(node, lambda name: instead.get(name, name)))
        if isinstance(found, str):
            instead[node.output] = found
        else:
            nodes.append(found)
    return replace(graph, nodes=tuple(nodes))


def unused_name(prefix: str, *taken: Mapping[str, Tensor]) -> str:
    """A name for a new tensor that none of these has."""
    names = (f"{prefix}{number}" for number in count(len(taken[0])))
    return next(name for name in names if not any(name in each for each in taken))


class Builder:
    """Collects the parts of a ``Graph``; the only mutable thing on the way to one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: list[str] = []
        self.nodes: list[Node] = []
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, Array] = {}

    def _define(self, prefix: str, of: Type, quant: QParams | None = None) -> str:
        name = f"{prefix}{len(self.tensors)}"
        self.tensors[name] = Tensor(name, of, quant)
        return name

    def type(self, name: str) -> Type:
        return self.tensors[name].type

    def last_step(self, name: str) -> Step | None:
        """The elementwise step that made a tensor last; None for inputs and constants."""
        maker = next((node for node in reversed(self.nodes) if node.output == name), None)
        return maker.epilogue[-1] if maker and maker.epilogue else None

    def input(self, of: Type) -> str:
        name = self._define("in", of)
        self.inputs.append(name)
        return name

    def constant(self, value: Array) -> str:
        value = np.ascontiguousarray(value).reshape(value.shape)
        value.setflags(write=False)
        name = self._define("c", Type(value.shape, DType(value.dtype.name)))
        self.constants[name] = value
        return name

    def add(
        self,
        op: Op,
        inputs: Sequence[str],
        epilogue: tuple[Step, ...] = (),
        sources: tuple[str, ...] = (),
        quant: QParams | None = None,
    ) -> str:
        """Append a node; its type follows from the operator's rule. Returns its output, which
        stands for real numbers as ``quant`` says."""
        result = op.infer(*(self.type(name) for name in inputs))
        dtype = result.dtype
        for step in epilogue:
            dtype = step.result(dtype)
        output = self._define("t", Type(result.shape, dtype), quant)
        self.nodes.append(Node(op, tuple(inputs), output, epilogue, sources))
        return output

    def graph(self, outputs: Sequence[str]) -> Graph:
        return Graph(
            self.name,
            tuple(self.inputs),
            tuple(outputs),
            tuple(self.nodes),
            self.tensors,
            self.constants,
        )


def format_steps(steps: tuple[Step, ...], show: Callable[[str], str] = "%{}".format) -> str:
    """``add(%c1) >> right_shift(%c2) >> clip(-127.0, 127.0) >> cast(int8)``"""
    return " >> ".join(step.text(show) for step in steps)


def format_node(graph: Graph, node: Node) -> str:
    inputs = ", ".join(f"%{name}" for name in node.inputs)
    output = str(graph.tensors.get(node.output, f"%{node.output}: ?"))
    epilogue = f" >> {format_steps(node.epilogue)}" if node.epilogue else ""
    sources = f"  # {', '.join(node.sources)}" if node.sources else ""
    return f"{output} = {node.op} [{inputs}]{epilogue}{sources}"


def print_graph(graph: Graph) -> str:
    """The graph as text: one line a tensor or node, the same for the same graph."""
    lines = [f"graph {graph.name} {{"]
    lines += [f"  input {graph.tensors[name]}" for name in graph.inputs]
    lines += [f"  constant {graph.tensors[name]}" for name in graph.constants]
    lines += [f"  {format_node(graph, node)}" for node in graph.nodes]
    lines += [f"  return {', '.join(f'%{name}' for name in graph.outputs)}", "}"]
    return "\n".join(lines)


def verify(graph: Graph) -> Graph:
    """Return ``graph`` when it obeys the rules, else raise ``GraphError`` at the failing node.

    Rules: a tensor is defined before it is read, and once; its type is what the operator's and the
    steps' rules say; an operand broadcasts to the output; constants match their types;
    quantization parameters fit the type and the axis; a record of stored channels fits the type;
    outputs are defined by nodes, each once, and whole.
    """
    defined = {*graph.inputs, *graph.constants}
    for name in (*graph.inputs, *graph.constants):
        _check_tensor(graph, name)
    for node in graph.nodes:
        _check_node(graph, node, defined)
        defined.add(node.output)
    by_nodes = {node.output for node in graph.nodes}
    for name in graph.outputs:
        if name not in by_nodes:
            raise GraphError(f"output %{name} of graph {graph.name}", found="no node defines it")
        if graph.tensors[name].stored:
            raise GraphError(f"output %{name} of graph {graph.name}", found="channels are missing")
    if len(set(graph.outputs)) != len(graph.outputs):
        raise GraphError(f"outputs of graph {graph.name}", found="a tensor is returned twice")
    return graph


def _check_tensor(graph: Graph, name: str) -> None:
    tensor = graph.tensors[name]
    value = graph.constants.get(name)
    if value is not None and (value.shape, value.dtype) != (
        tensor.type.shape,
        tensor.type.dtype.numpy,
    ):
        raise GraphError(
            f"constant {tensor}", found=f"{value.dtype}{list(value.shape)}", allowed=tensor.type
        )
    if tensor.stored is not None:
        _check_stored(tensor, tensor.stored)
    quant = tensor.quant
    if quant is None:
        return
    channels = 1 if quant.axis is None else None
    if quant.axis is not None and 0 <= quant.axis < len(tensor.type.shape):
        channels = tensor.type.shape[quant.axis]
    if tensor.type.dtype.is_float or channels != len(quant.scale):
        raise GraphError(
            f"quantization of {tensor}",
            found=f"{len(quant.scale)} scale(s), axis {quant.axis}, {tensor.type}",
            allowed="an integer type, and one scale or one a channel of an axis that exists",
        )


def _check_stored(tensor: Tensor, stored: Stored) -> None:
    others = [channel for channel, _ in (*stored.constant, *stored.equal)]
    every = sorted([*stored.channels, *others])
    shape = tensor.type.shape
    if (
        not shape
        or shape[-1] != len(stored.channels)
        or list(stored.channels) != sorted(stored.channels)
        or every != sorted(set(every) & set(range(stored.whole)))
        or not {other for _, other in stored.equal} <= set(stored.channels)
    ):
        raise GraphError(
            f"stored channels of {tensor}",
            found=f"{len(stored.channels)} channels, {len(others)} that follow from them",
            allowed="one a place of the last dimension, each once, in order; others less than "
            "whole, equal ones equal to a stored one",
        )


def _check_node(graph: Graph, node: Node, defined: set[str]) -> None:
    def fail(what: str, found: object, allowed: object) -> GraphError:
        text = f"{what}\n  at {format_node(graph, node)}\nin {print_graph(graph)}"
        return GraphError(text, found=found, allowed=allowed)

    for name in node.reads():
        if name not in defined:
            raise fail(f"%{name} is read", "not defined yet", "inputs, constants, earlier outputs")
    if node.output in defined:
        raise fail(f"%{node.output} is written", "defined before", "a new name")
    try:
        result = graph.computed(node)
        dtype = _epilogue_type(graph, node.epilogue, result)
    except ValueError as error:
        raise fail(
            "an operator's rule is broken", error, "see the operator in tinyai/ops"
        ) from None
    if node.epilogue and not node.op.takes_epilogue:
        raise fail("an epilogue", node.op.name, "an operator that takes one")
    output = graph.tensors.get(node.output)
    if output is None or output.type != Type(result.shape, dtype):
        found = output.type if output else "none"
        raise fail("the type of an output", found, Type(result.shape, dtype))
    try:
        _check_tensor(graph, node.output)
    except GraphError as error:
        raise fail(error.what, error.found, error.allowed) from None


def _epilogue_type(graph: Graph, steps: tuple[Step, ...], start: Type) -> DType:
    dtype = start.dtype
    for step in steps:
        if not step.fits(start.shape):
            raise ValueError(f"{step.text(str)} does not fit {start.shape}")
        if step.operand is not None:
            operand = graph.type(step.operand.tensor)
            if not broadcasts(operand.shape, start.shape):
                raise ValueError(f"operand {operand} does not broadcast to {start.shape}")
            inner = _epilogue_type(graph, step.operand.steps, Type(start.shape, operand.dtype))
            if inner != dtype:
                raise ValueError(f"operand of {step.name} is {inner}, the value is {dtype}")
        dtype = step.result(dtype)
    return dtype


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether ``shape`` broadcasts to ``to`` (right-aligned, as numpy and Relay do)."""
    if len(shape) > len(to):
        return False
    return all(have in (1, want) for have, want in zip(reversed(shape), reversed(to), strict=False))
