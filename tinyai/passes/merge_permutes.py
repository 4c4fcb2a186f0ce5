"""As few transpositions as there can be.

Most operators work in any order of dimensions: elementwise ones, concatenations, sums, pads. The
pass chooses an order for each of them, so that the fewest values are read in another order than
they are written in. Each such order of a value is one transposition.

Where two orders meet (NCHW and NHWC) the choice is binary and its cost a cut of a graph:

* A vertex is a node that may choose. Its side of the cut is its order, A (source) or B (sink).
  Nodes that cannot choose, inputs and outputs are the source or the sink.
* A value that is written in A and read in B costs one transposition, however many readers it has:
  an edge from its maker to a vertex of its own, and from there edges that cannot be cut to its
  readers. The same with all edges reversed for a value that is written in B.

So a minimum cut is the best of all choices between A and B. And a third order never helps when
nodes that cannot choose are in A or B: moving all choices of a third order to A makes no value
need more orders. With more orders among those that cannot choose, the problem is the multiway cut,
which is NP-hard; the pass takes the best pair then.

A worked example: a sum between two convolutions of an NCHW network, as ``permute`` leaves it:

    convolution -> r [NHWC] -> Transpose -> a [NCHW] -> Add(c) -> b [NCHW]
                                              -> Transpose -> s [NHWC] -> convolution

1. *Frames.* A transposition gives another view of the same axes, and the sum aligns ``a`` and
   ``b``. So ``r``, ``a``, ``b`` and ``s`` share a frame. Its axes are the dimensions of ``r``: that
   has the view 0 1 2 3, and so has ``s``; ``a`` and ``b`` have the view 0 3 1 2. A convolution does
   not tie its input to its result: it separates frames.
2. *Values.* ``a`` is ``r`` in another order, and ``s`` is ``b`` (``roots``). Two values are left:
   ``r``, written in 0 1 2 3 and read by the sum, and ``b``, written by the sum and read in 0 1 2 3.
3. *The choice.* A is 0 1 2 3, B is 0 3 1 2, and the sum alone may choose. The edges, of which those
   marked ! cannot be cut, are A -> "r in B" -> ! sum, sum -> ! "r in A" -> A,
   sum -> "b in B" -> ! A, and A -> ! "b in A" -> sum. With the sum on the side of B two edges are
   cut, "A -> r in B" and "b in A -> sum": the two transpositions that are there. With the sum on
   the side of A none is cut, so it works in NHWC.
4. *The graph.* ``rewrite`` (``orders.py``) turns the constant ``c`` from [C,1,1] to [C]. No value
   is read in another order than it is written in: both transpositions are gone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from tinyai.ir import Graph, Node, operand_tensors
from tinyai.ops import Elementwise, Transpose
from tinyai.passes.min_cut import Edge, min_cut
from tinyai.passes.orders import (
    Order,
    Part,
    Ports,
    Turn,
    View,
    full_rank,
    key_in,
    key_of,
    plain,
    rewrite,
    shape_of,
    tidy,
    turn_to,
)
from tinyai.traits import Dims

IMAGE = 4  # dimensions

# One transposition outweighs all bytes; among the cuts with the fewest, fewest bytes are moved.
ONE = 1 << 48
NEVER = 1 << 100


def merge_permutes(graph: Graph) -> Graph:
    """The graph with the fewest transpositions, and of those the ones that move fewest bytes.

    Opposite pairs cancel; orders are pulled through what works in any order, and through a reshape
    that flattens an image into the constant weights of the dense layers after it. Constants are
    turned at once. Where dimensions of size 1 move only, a reshape is left.
    """
    if not any(isinstance(node.op, Transpose) for node in graph.nodes):
        return graph
    graph = full_rank(graph, lambda node: node.op.dims not in (Dims.FIXED, Dims.PERMUTED))
    frames = _Frames(graph)
    orders: dict[str, Order] = {}
    for frame, values in _values(frames).items():
        orders |= _choose(frames, frame, values)
    ports = {}
    for node in graph.nodes:
        if node.output in orders:
            found = frames.ports(node, orders[node.output])
            assert found is not None
            ports[node.output] = found
    return tidy(rewrite(graph, frames.views, frames.roots, ports))


# --- Which axes are the same ---------------------------------------------------------------------


class _Frames:
    """The views of all tensors but constants, in as few frames as possible.

    ``free`` holds the nodes that may choose an order; ``roots`` the results of transpositions, each
    with the tensor of which it is another order.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.views: dict[str, View] = {}
        self.frame: dict[str, int] = {}
        self.count = 0
        self.near: dict[str, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for name in self.tied(node):
                self.near[name].append(node)
        names = [*graph.inputs, *(node.output for node in graph.nodes)]
        # What is flattened joins the frame of the image, so images come first.
        for name in sorted(names, key=self.precedence):
            if name not in self.views:
                self.fill(name)
        tied = [node for node in graph.nodes if self.is_tied(node)]
        self.free = {node.output: node for node in tied if not isinstance(node.op, Transpose)}
        self.roots: dict[str, str] = {}
        for node in tied:
            if isinstance(node.op, Transpose):
                self.roots[node.output] = self.root(node.inputs[0])

    def precedence(self, name: str) -> tuple[bool, int]:
        rank = len(self.graph.type(name).shape)
        return rank != IMAGE, -rank

    def root(self, name: str) -> str:
        return self.roots.get(name, name)

    def tied(self, node: Node) -> list[str]:
        """The tensors of a node that change their order together; none where it cannot choose."""
        constants = self.graph.constants
        data = [name for name in node.inputs if name not in constants]
        if node.op.dims is Dims.CONTRACTED:
            return data if len(data) == 1 and node.inputs[1] in constants else []
        if node.op.dims is Dims.FIXED:
            return []
        if not data and not isinstance(node.op, Elementwise):
            return []
        read = [name for name in operand_tensors(node.epilogue) if name not in constants]
        return list(dict.fromkeys((*data, node.output, *read)))

    def fill(self, seed: str) -> None:
        """A new frame: all that is tied to ``seed``, directly or not, and has no frame yet."""
        self.views[seed] = plain(self.graph.type(seed).shape)
        self.frame[seed] = self.count
        queue = [seed]
        for name in queue:
            for node in self.near[name]:
                for other, view in self.beside(node, name).items():
                    if other not in self.views and view is not None:
                        self.views[other], self.frame[other] = view, self.count
                        queue.append(other)
        self.count += 1

    def beside(self, node: Node, name: str) -> dict[str, View | None]:
        """The views of a node's tensors, as far as they follow from that of one of them; None
        where a dimension cannot be told apart into parts."""
        view, op, result = self.views[name], node.op, node.output
        behind = [other for other in self.tied(node) if other not in node.inputs]
        if op.dims is Dims.CONTRACTED:
            return {}
        if isinstance(op, Transpose):
            if name == result:
                return {node.inputs[0]: tuple(view[op.axes.index(d)] for d in range(len(view)))}
            return {result: tuple(view[axis] for axis in op.axes)}
        aligned = op.dims is Dims.REDUCED and not op.dropped_dims()
        if op.dims is Dims.ALIGNED or aligned:
            return {other: self.alike(view, other) for other in self.tied(node)}
        found: View | None = view
        if name in node.inputs:
            found = self.reduced(node, view)
        return {other: found and self.alike(found, other) for other in behind}

    def reduced(self, node: Node, view: View) -> View | None:
        """The view of the result of a sum that drops dimensions, or of a reshape."""
        if node.op.dims is Dims.REDUCED:
            gone = node.op.dropped_dims()
            return tuple(parts for dim, parts in enumerate(view) if dim not in gone)
        return _flattened(view, self.graph.type(node.output).shape)

    def alike(self, view: View, name: str) -> View | None:
        """``view`` with the sizes of another tensor of as many dimensions."""
        shape = self.graph.type(name).shape
        if len(shape) != len(view):
            return None
        found: list[tuple[Part, ...]] = []
        for parts, size, own in zip(view, shape, shape_of(view), strict=True):
            if size == own:
                found.append(parts)
            elif len(parts) == 1:
                found.append(((parts[0][0], size),))
            elif size == 1:
                found.append(tuple((axis, 1) for axis, _ in parts))
            else:
                return None
        return tuple(found)

    def is_tied(self, node: Node) -> bool:
        """Whether all its tensors have the views that follow from the one that leads, and the
        operator does not look into dimensions of several parts."""
        names = self.tied(node)
        if not names:
            return False
        leads = self.leads(node)
        beside = self.beside(node, leads)
        for name, view in beside.items():
            if self.views[name] != view or self.frame[name] != self.frame[leads]:
                return False
        if node.op.dims is not Dims.CONTRACTED and not {*names} <= {leads, *beside}:
            return False
        whole = [len(parts) == 1 for parts in self.views[leads]]
        return all(whole[dim] for dim in node.op.bound_dims())

    def leads(self, node: Node) -> str:
        """The tensor from whose view those of the others follow."""
        return node.output if node.op.dims is Dims.ALIGNED else node.inputs[0]

    def ports(self, node: Node, order: Order) -> Ports | None:
        """A free node in ``order``; None where it cannot work so."""
        turn = turn_to(self.views[self.leads(node)], order)
        if turn is None:
            return None
        dims = node.op.dims
        if dims is Dims.CONTRACTED:
            stays = turn.dims == (0, 1) and list(turn.parts[0]) == sorted(turn.parts[0])
            return Ports(turn, None) if stays else None
        after: Turn | None = turn
        if dims is Dims.REDUCED:
            after = turn.without(node.op.dropped_dims())
        elif dims is Dims.REGROUPED:
            after = turn_to(self.views[node.output], order)
        fits = after and node.op.permuted(turn.dims, shape_of(after(self.views[node.output])))
        return Ports(turn, after) if fits else None


def _flattened(view: View, shape: tuple[int, ...]) -> View | None:
    """The view of a reshape that makes one dimension of neighbours; None for another."""
    rest = [part for parts in view for part in parts]
    result: list[list[Part]] = []
    for size in shape:
        parts: list[Part] = []
        while rest and (not parts or _elements(parts) < size):
            parts.append(rest.pop(0))
        if not parts or _elements(parts) != size:
            return None
        result.append(parts)
    if not result or any(size != 1 for _, size in rest):
        return None
    result[-1] += rest
    return tuple(map(tuple, result))


def _elements(parts: list[Part]) -> int:
    return math.prod(size for _, size in parts)


# --- The choice ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Value:
    """A tensor and all transpositions of it: who writes it and who reads it, as (node that may
    choose, or None; tensor)."""

    maker: tuple[str | None, str]
    readers: tuple[tuple[str | None, str], ...]
    weight: int


def _values(frames: _Frames) -> dict[int, list[_Value]]:
    """The values of each frame."""
    graph = frames.graph
    readers: dict[str, list[tuple[str | None, str]]] = defaultdict(list)
    for node in graph.nodes:
        if node.output in frames.roots:
            continue
        chooser = node.output if node.output in frames.free else None
        ports = [(chooser, name) for name in node.inputs]
        # What is added to the sums of a dense layer has an order of its own.
        behind = None if node.op.dims is Dims.CONTRACTED else chooser
        ports += [(behind, name) for name in operand_tensors(node.epilogue)]
        for port in ports:
            if port[1] not in graph.constants:
                readers[frames.root(port[1])].append(port)
    for name in graph.outputs:
        readers[frames.root(name)].append((None, name))
    values: dict[int, list[_Value]] = defaultdict(list)
    for root, each in readers.items():
        own = frames.free.get(root)
        chooses = own is not None and own.op.dims is not Dims.CONTRACTED
        maker = (root if chooses else None, root)
        weight = ONE + graph.type(root).bytes
        values[frames.frame[root]].append(_Value(maker, tuple(dict.fromkeys(each)), weight))
    return values


def _cost(frames: _Frames, values: list[_Value], orders: Mapping[str, Order]) -> int:
    """Transpositions that a choice needs, with their weights."""

    def key(port: tuple[str | None, str]) -> Order:
        node, name = port
        view = frames.views[name]
        order = orders.get(node) if node is not None else None
        return key_in(view, order) if order is not None else key_of(view)

    return sum(
        value.weight * len({key(port) for port in value.readers} - {key(value.maker)})
        for value in values
    )


def _choose(frames: _Frames, frame: int, values: list[_Value]) -> dict[str, Order]:
    """The best order for each free node of a frame; none where the given ones are as good."""
    best: dict[str, Order] = {}
    least = _cost(frames, values, best)
    if not least:
        return best
    views = [view for name, view in frames.views.items() if frames.frame[name] == frame]
    rank = max(map(len, views))
    full = (view for view in views if len(view) == rank and all(len(parts) == 1 for parts in view))
    orders = dict.fromkeys(tuple(axis for ((axis, _),) in view) for view in full)
    for pair in combinations(orders, 2):
        found = _cut(frames, values, pair)
        cost = _cost(frames, values, found)
        if cost < least:
            best, least = found, cost
    return best


def _cut(frames: _Frames, values: list[_Value], pair: tuple[Order, Order]) -> dict[str, Order]:
    """The best choice between two orders."""
    possible: dict[str, list[Order]] = {}
    for value in values:
        for node, _ in (value.maker, *value.readers):
            if node is not None and node not in possible:
                ports = {order: frames.ports(frames.free[node], order) for order in pair}
                possible[node] = [order for order in pair if ports[order] is not None]
    edges = [edge for value in values for edge in _edges(frames, value, pair, possible)]
    side = min_cut(edges, pair[0], pair[1])
    return {
        node: (allowed[0] if len(allowed) == 1 else pair[0] if node in side else pair[1])
        for node, allowed in possible.items()
        if allowed
    }


def _edges(
    frames: _Frames,
    value: _Value,
    pair: tuple[Order, Order],
    possible: Mapping[str, list[Order]],
) -> Iterator[Edge]:
    """The edges of one value. The orders themselves are the source and the sink."""
    keys = {key_in(frames.views[value.maker[1]], order): order for order in pair}
    if len(keys) == 1:  # what moves has size 1
        return

    def vertex(port: tuple[str | None, str]) -> str | Order | None:
        node, name = port
        allowed = possible[node] if node is not None else []
        if node is not None and allowed:
            return node if len(allowed) == 2 else allowed[0]
        return keys.get(key_of(frames.views[name]))  # None: in a third order, whatever is chosen

    maker = vertex(value.maker)
    readers = {vertex(port): None for port in value.readers}
    readers.pop(None, None)
    in_a, in_b = (value.maker[1], "in A"), (value.maker[1], "in B")
    yield pair[0] if maker is None else maker, in_b, value.weight
    yield in_a, pair[1] if maker is None else maker, value.weight
    for reader in readers:
        yield in_b, reader, NEVER
        yield reader, in_a, NEVER
