"""Tensors in another order of their dimensions, and nodes that read and write them so.

A *view* says what the dimensions of a tensor are made of: of each dimension its *parts*, which are
axes of a frame with their sizes. Axis 2 of one tensor of the frame is axis 2 of all others: the
height of an image, say, wherever a transposition has moved it to. A dimension with several parts
is what a reshape has made of several axes, in the order of the parts.

Dimensions of size 1 lie nowhere in particular. So the *key* of a view, its axes that are longer,
is all that matters: between two views with the same key a tensor is reshaped, which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import dropwhile

import numpy as np

from tinyai.ir import (
    Array,
    Graph,
    Node,
    Op,
    Operand,
    QParams,
    Step,
    Tensor,
    Type,
    broadcasts,
    rename_reads,
    rename_steps,
    rewritten,
    unused_name,
)
from tinyai.ops import Elementwise, Reshape, Transpose
from tinyai.ops.contraction import Contraction
from tinyai.passes.remove_unused import remove_unused
from tinyai.traits import Dims

Part = tuple[int, int]  # an axis of the frame, and its size
View = tuple[tuple[Part, ...], ...]
Order = tuple[int, ...]  # axes of a frame, the outermost first


def plain(shape: tuple[int, ...]) -> View:
    """The view in whose frame a tensor's dimensions are the axes."""
    return tuple(((axis, size),) for axis, size in enumerate(shape))


def shape_of(view: View) -> tuple[int, ...]:
    return tuple(math.prod(size for _, size in parts) for parts in view)


def key_of(view: View) -> Order:
    return tuple(axis for parts in view for axis, size in parts if size != 1)


@dataclass(frozen=True)
class Turn:
    """Dimension i of the result is dimension ``dims[i]``, its parts in the order ``parts[i]``."""

    dims: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(axes: tuple[int, ...]) -> Turn:
        """The turn of dimensions of one part each."""
        return Turn(axes, ((0,),) * len(axes))

    def __call__(self, view: View) -> View:
        return tuple(
            tuple(view[dim][part] for part in parts)
            for dim, parts in zip(self.dims, self.parts, strict=True)
        )

    def without(self, gone: tuple[int, ...]) -> Turn:
        """The turn of what is left when dimensions go away."""
        kept = [dim for dim in range(len(self.dims)) if dim not in gone]
        rows = [
            (kept.index(dim), parts)
            for dim, parts in zip(self.dims, self.parts, strict=True)
            if dim in kept
        ]
        return Turn(tuple(dim for dim, _ in rows), tuple(parts for _, parts in rows))

    def numbers(self, dim: int, view: View) -> list[int]:
        """Which old elements of an old dimension its new elements are."""
        sizes = [size for _, size in view[dim]]
        parts = self.parts[self.dims.index(dim)]
        old = np.arange(math.prod(sizes)).reshape(sizes).transpose(parts)
        return [int(number) for number in old.reshape(-1)]

    def array(self, value: Array, view: View) -> Array:
        """A constant that broadcasts to ``view``, turned; its rank is the view's."""
        shape = (1,) * (len(view) - value.ndim) + value.shape
        sizes: list[list[int]] = []
        for size, parts in zip(shape, view, strict=True):
            own = [part for _, part in parts]
            sizes.append([size] if len(own) == 1 else own if size > 1 else [1] * len(own))
        first = np.cumsum([0, *map(len, sizes)])
        axes = [
            int(first[dim]) + part
            for dim, parts in zip(self.dims, self.parts, strict=True)
            for part in parts
        ]
        apart = value.reshape([size for each in sizes for size in each])
        return apart.transpose(axes).reshape([shape[dim] for dim in self.dims])


def turn_to(view: View, order: Order) -> Turn | None:
    """The turn that brings the axes of ``view`` into ``order``; None where a dimension holds axes
    that are no neighbours there."""
    place = {axis: position for position, axis in enumerate(order)}

    def first(dim: int) -> int:
        axes = [axis for axis, size in view[dim] if size != 1] or [axis for axis, _ in view[dim]]
        return min(place[axis] for axis in axes)

    dims = tuple(sorted(range(len(view)), key=first))
    inner = [sorted(range(len(parts)), key=lambda p: place[parts[p][0]]) for parts in view]
    turn = Turn(dims, tuple(tuple(inner[dim]) for dim in dims))
    return turn if key_of(turn(view)) == key_in(view, order) else None


def key_in(view: View, order: Order) -> Order:
    """The key that a view has in an order."""
    long = set(key_of(view))
    return tuple(axis for axis in order if axis in long)


# --- Steps and scales -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Ports:
    """How a node is to work in another order: the turns of its inputs, and of its output and the
    operands of its steps (None: as they are)."""

    reads: Turn
    writes: Turn | None


# --- The graph -----------------------------------------------------------------------------------


def rewrite(
    graph: Graph, views: Mapping[str, View], roots: Mapping[str, str], ports: Mapping[str, Ports]
) -> Graph:
    """The graph with the nodes of ``ports`` (by output) in other orders, and transpositions where a
    value is read in another order than it is written in.

    ``views`` holds every tensor but constants. ``roots`` names the results of transpositions that
    are to go, each with the tensor of which it is another order. Constants are turned here.
    """
    return _Rewriter(graph, views, roots, ports).run()


class _Rewriter:
    def __init__(
        self,
        graph: Graph,
        views: Mapping[str, View],
        roots: Mapping[str, str],
        ports: Mapping[str, Ports],
    ) -> None:
        self.graph, self.views, self.roots, self.ports = graph, views, roots, ports
        self.nodes: list[Node] = []
        self.constants = dict(graph.constants)
        self.tensors = {name: graph.tensors[name] for name in (*graph.inputs, *graph.constants)}
        # Of each value the tensors that hold it, by view; the first is what its maker wrote.
        self.held: dict[str, dict[View, str]] = {}
        self.turned_constants: dict[tuple[object, ...], str] = {}
        self.outputs: dict[str, list[str]] = {}
        for name in graph.outputs:
            self.outputs.setdefault(roots.get(name, name), []).append(name)

    def run(self) -> Graph:
        for name in self.graph.inputs:
            self.held[name] = {self.views[name]: name}
            self.write_outputs(name, ())
        for node in self.graph.nodes:
            if node.output not in self.roots:
                self.rewrite_node(node)
        return replace(
            self.graph,
            nodes=tuple(self.nodes),
            tensors=self.tensors,
            constants=self.constants,
        )

    def rewrite_node(self, node: Node) -> None:
        ports = self.ports.get(node.output)
        if ports is None:
            self.define(rename_reads(node, lambda name: self.read(name, None, node)), None)
            return
        given = self.views[node.output]
        result = ports.writes(given) if ports.writes else given
        inputs = tuple(self.read_input(node, ports, place) for place in range(len(node.inputs)))
        steps = rename_steps(node.epilogue, lambda name: self.read(name, ports.writes, node))
        if ports.writes:
            steps = _turned_steps(steps, ports.writes, given)
        op = node.op.permuted(ports.reads.dims, shape_of(result))
        assert op is not None, node.op.name
        self.define(replace(node, op=op, inputs=inputs, epilogue=steps), ports.writes)

    def read_input(self, node: Node, ports: Ports, place: int) -> str:
        """An input of a node that is turned; weights, which have no order of the data's, stay,
        but those that meet a flattened image."""
        name = node.inputs[place]
        if place == 0 or not isinstance(node.op, Contraction):
            return self.read(name, ports.reads, node)
        if node.op.dims is not Dims.CONTRACTED:
            return name
        columns = ports.reads.numbers(1, self.views[node.inputs[0]])
        return self.constant(self.graph.constants[name][:, columns], name, tuple(columns))

    def read(self, name: str, turn: Turn | None, node: Node) -> str:
        """The tensor ``name`` for ``node`` (whose output a constant broadcasts to), turned."""
        if name in self.graph.constants:
            return self.read_constant(name, turn, node) if turn else name
        view = self.views[name]
        return self.hold(self.roots.get(name, name), turn(view) if turn else view, node.sources)

    def read_constant(self, name: str, turn: Turn, node: Node) -> str:
        """A constant, turned; without leading 1s where it is broadcast."""
        value = self.graph.constants[name]
        spread = isinstance(node.op, Elementwise) or name not in node.inputs
        if spread and value.size == 1:
            return name
        value = turn.array(value, self.views[node.output])
        value = value.reshape(without_ones(value.shape)) if spread else value
        return self.constant(value, name, turn, value.shape)

    def constant(self, value: Array, *key: object) -> str:
        if key not in self.turned_constants:
            value = np.ascontiguousarray(value).reshape(value.shape)
            value.setflags(write=False)
            dtype = self.graph.type(str(key[0])).dtype
            name = self.fresh("c", Type(value.shape, dtype), None)
            self.constants[name] = value
            self.turned_constants[key] = name
        return self.turned_constants[key]

    def define(self, node: Node, turn: Turn | None) -> None:
        """Append the maker of a value, which it writes to an output's memory where that has the
        same order, and what the value's other outputs need."""
        root, given = node.output, self.graph.tensors[node.output]
        before = self.views[root]
        view, quant = before, given.quant
        if turn is not None:
            view = turn(before)
            if quant is not None and quant.axis is not None:
                scale = tuple(quant.scale[i] for i in turn.numbers(quant.axis, before))
                quant = replace(quant, scale=scale, axis=turn.dims.index(quant.axis))
        fitting = [name for name in self.outputs.get(root, ()) if self.views[name] == view]
        of = Type(shape_of(view), given.type.dtype)
        if fitting or root not in self.graph.outputs:
            name = fitting[0] if fitting else root
            self.tensors[name] = Tensor(name, of, quant)
        else:
            name = self.fresh("t", of, quant)
        self.nodes.append(replace(node, output=name))
        self.held[root] = {view: name}
        self.write_outputs(root, node.sources)

    def write_outputs(self, root: str, sources: tuple[str, ...]) -> None:
        for name in self.outputs.get(root, ()):
            if name in self.tensors:
                continue
            view = self.views[name]
            self.tensors[name] = self.graph.tensors[name]
            if view in self.held[root]:
                copy = Elementwise(shape_of(view))
                self.nodes.append(Node(copy, (self.held[root][view],), name, (), sources))
            else:
                self.move(root, view, name, sources)

    def hold(self, root: str, view: View, sources: tuple[str, ...]) -> str:
        """The tensor that holds a value in a view, made where there is none."""
        if view not in self.held[root]:
            dtype = self.graph.type(root).dtype
            self.move(root, view, self.fresh("t", Type(shape_of(view), dtype), None), sources)
        return self.held[root][view]

    def move(self, root: str, view: View, name: str, sources: tuple[str, ...]) -> None:
        """Write a value to the tensor ``name`` in a view that no tensor holds yet."""
        held = self.held[root]
        same = [old for old in held if key_of(old) == key_of(view)]
        old, x = (same[0], held[same[0]]) if same else next(iter(held.items()))
        chain: list[Op] = [Reshape(shape_of(view))]
        if not same:
            apart = [part for parts in old for part in parts]
            wanted = [part for parts in view for part in parts]
            chain = [Transpose(tuple(apart.index(part) for part in wanted))]
            if len(apart) > len(old):
                chain.insert(0, Reshape(tuple(size for _, size in apart)))
            if len(wanted) > len(view):
                chain.append(Reshape(shape_of(view)))
        for op in chain[:-1]:
            middle = self.fresh("t", op.infer(self.tensors[x].type), None)
            self.nodes.append(Node(op, (x,), middle, (), sources))
            x = middle
        self.nodes.append(Node(chain[-1], (x,), name, (), sources))
        held[view] = name

    def fresh(self, prefix: str, of: Type, quant: QParams | None) -> str:
        """A new tensor, with a name that neither graph has."""
        name = unused_name(prefix, self.tensors, self.graph.tensors)
        self.tensors[name] = Tensor(name, of, quant)
        return name


def _turned_steps(steps: tuple[Step, ...], turn: Turn, view: View) -> tuple[Step, ...]:
    """Steps whose operands are turned already, with what they say of axes turned too."""

    def turned(operand: Operand) -> Operand:
        return replace(operand, steps=_turned_steps(operand.steps, turn, view))

    def along_turned(step: Step) -> Step:
        axis = step.along
        if axis is None:
            return step
        return step.with_elements(turn.numbers(axis, view), turn.dims.index(axis))

    return tuple(along_turned(step.with_operand(turned)) for step in steps)


# --- Before and after ----------------------------------------------------------------------------


def full_rank(graph: Graph, chosen: Callable[[Node], bool]) -> Graph:
    """The graph in which all that the chosen nodes broadcast, but constants, has as many dimensions
    as their results, by reshapes."""
    tensors = dict(graph.tensors)
    nodes: list[Node] = []
    made: dict[tuple[str, int], str] = {}

    def spread(name: str, node: Node) -> str:
        of, rank = graph.type(name), len(graph.type(node.output).shape)
        if name in graph.constants or len(of.shape) >= rank:
            return name
        if (name, rank) not in made:
            shape = (1,) * (rank - len(of.shape)) + of.shape
            new = f"{name}_rank{rank}"
            while new in tensors:
                new += "_"
            tensors[new] = Tensor(new, Type(shape, of.dtype))
            nodes.append(Node(Reshape(shape), (name,), new, (), node.sources))
            made[name, rank] = new
        return made[name, rank]

    for node in graph.nodes:
        if chosen(node):
            inputs = node.inputs
            if isinstance(node.op, Elementwise):
                inputs = tuple(spread(name, node) for name in inputs)
            steps = rename_steps(node.epilogue, lambda name, node=node: spread(name, node))  # type: ignore[misc]
            node = replace(node, inputs=inputs, epilogue=steps)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def tidy(graph: Graph) -> Graph:
    """The graph without reshapes of reshapes, reshapes to the same shape, and reshapes in front of
    what broadcasts anyway."""
    made: dict[str, Node] = {}

    def tidied(node: Node) -> Node | str:
        shape = graph.type(node.output).shape

        def plainer(name: str) -> str:
            return _before_spreading(graph, made, name, shape)

        if isinstance(node.op, Elementwise):
            node = replace(node, inputs=tuple(map(plainer, node.inputs)))
        node = replace(node, epilogue=rename_steps(node.epilogue, plainer))
        if isinstance(node.op, Reshape):
            before = made.get(node.inputs[0])
            if before is not None and isinstance(before.op, Reshape):
                node = replace(node, inputs=before.inputs)
            if graph.type(node.inputs[0]).shape == shape and node.output not in graph.outputs:
                return node.inputs[0]
        made[node.output] = node
        return node

    return remove_unused(rewritten(graph, tidied))


def _before_spreading(
    graph: Graph, made: Mapping[str, Node], name: str, shape: tuple[int, ...]
) -> str:
    """The input of a reshape that only adds or drops leading 1s, where that input broadcasts as
    well; else ``name``."""
    node = made.get(name)
    if node is None or not isinstance(node.op, Reshape):
        return name
    before, after = graph.type(node.inputs[0]).shape, graph.type(name).shape
    same = without_ones(before) == without_ones(after)
    return node.inputs[0] if same and broadcasts(before, shape) else name


def without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without the 1s that it begins with."""
    return tuple(dropwhile(lambda size: size == 1, shape))
