"""Images in the order that kernels want: what is transposed, how often, and that no result
changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.example_graphs import (
    EPILOGUES,
    NETWORKS,
    all_examples,
    assert_transposed_at_the_ends,
    examples_graph,
)
from tests.support.random_graphs import graphs, random_array, random_inputs
from tinyai.ir import Builder, DType, Graph, Op, Operand, QParams, Step, Tensor, Type, verify
from tinyai.ops import (
    AdaptivePool2d,
    Concatenate,
    Conv2d,
    Dense,
    Elementwise,
    IntegerL2Norm,
    IntegerSoftmax,
    MaxPool2d,
    Pad,
    Reshape,
    Resize,
    Slice,
    Softmax,
    Sum,
    Transpose,
)
from tinyai.ops.softmax import tflite_powers
from tinyai.ops.steps import Add, Cast, FixedPointMultiply, Maximum, Multiply, Relu
from tinyai.ops.window import Window
from tinyai.passes import fuse_epilogues, merge_permutes, optimize, permute
from tinyai.passes.min_cut import min_cut
from tinyai.reference import run_graph

INT8, INT32, FLOAT32 = DType.INT8, DType.INT32, DType.FLOAT32
SIZES = {"N": 2, "C": 3, "H": 4, "W": 5}
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def merged(graph: Graph) -> Graph:
    return verify(merge_permutes(verify(permute(verify(graph)))))


def transposes(graph: Graph) -> int:
    return sum(isinstance(node.op, Transpose) for node in graph.nodes)


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def assert_same(before: Graph, after: Graph, seed: int = 1) -> None:
    assert (after.name, after.inputs, after.outputs) == (before.name, before.inputs, before.outputs)
    assert after.types(after.outputs) == before.types(before.outputs)
    inputs = random_inputs(before, seed)
    expected, found = run_graph(before, inputs), run_graph(after, inputs)
    for want, got in zip(expected, found, strict=True):
        assert want.tobytes() == got.tobytes(), f"{before}\n{after}"


# --- Small graphs --------------------------------------------------------------------------------


class Nchw(Builder):
    """A builder of images [2, 3, 4, 5] of int8, as ONNX orders them."""

    def __init__(self) -> None:
        super().__init__("g")
        self.rng = np.random.default_rng(2)

    def image(self, dtype: DType = INT8, shape: Sequence[int] = (2, 3, 4, 5)) -> str:
        return self.input(Type(tuple(shape), dtype))

    def values(self, *shape: int, dtype: DType = INT8) -> str:
        return self.constant(random_array(self.rng, Type(shape, dtype)))

    def conv(self, x: str, *chain: Step, out: int = 3) -> str:
        weight = self.values(out, 1, 1, self.type(x).shape[1])
        return self.add(Conv2d(Window((1, 1)), 1, "NCHW"), [x, weight], (*chain, Cast(INT8)))

    def pool(self, x: str) -> str:
        return self.add(MaxPool2d(Window((2, 2)), "NCHW"), [x])

    def pool2(self, x: str) -> str:
        """A pooling that keeps the size."""
        return self.add(MaxPool2d(Window((3, 3), padding=(1, 1, 1, 1)), "NCHW"), [x])

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def each(self, x: str, *chain: Step) -> str:
        return self.add(Elementwise(self.type(x).shape), [x], chain or (Relu(),))

    def sum(self, x: str, y: str) -> str:
        return self.each(x, Add(operand=Operand(y)))

    def turn(self, x: str, axes: tuple[int, ...] = TO_NHWC) -> str:
        return self.add(Transpose(axes), [x])


def assert_merges(before: Graph, *expected: str) -> Graph:
    """The two passes leave nodes of these operators, and the results as they were."""
    after = merged(before)
    assert names(after) == list(expected), f"{after}"
    assert_same(before, after)
    return after


def test_an_operator_in_nchw_works_in_nhwc_between_transpositions() -> None:
    b = Nchw()
    bias, scale = b.values(3, 1, 1, dtype=INT32), FixedPointMultiply((2**30, 7, 9), (1, 2, 3), 1)
    graph = verify(b.graph([b.conv(b.image(), Add(operand=Operand(bias)), scale)]))
    after = verify(permute(graph))
    assert_same(graph, after)
    into, conv, back = after.nodes
    assert (into.op, back.op) == (Transpose(TO_NHWC), Transpose(TO_NCHW))
    assert after.type(conv.output).shape == (2, 4, 5, 3)
    bias_step, scale_step, _ = conv.epilogue
    assert after.type(bias_step.operand.tensor).shape == (3,)  # type: ignore[union-attr]
    assert scale_step == replace(scale, axis=3)


def test_a_second_branch_of_lower_rank_is_turned_with_the_operator() -> None:
    b = Nchw()
    x, y = b.image(), b.image(INT32, (3, 4, 5))
    graph = verify(b.graph([b.conv(x, Add(operand=Operand(y)))]))
    after = verify(permute(graph))
    assert sorted(names(after)) == ["conv2d", "reshape", *["transpose"] * 3]
    assert_same(graph, after)


def test_what_is_in_nhwc_stays_as_it_is() -> None:
    graph = NETWORKS["small NHWC"]()
    assert permute(graph) is graph
    assert merge_permutes(graph) is graph


def test_between_a_chain_of_operators_nothing_is_transposed() -> None:
    b = Nchw()
    y = b.conv(b.each(b.conv(b.image())))
    assert_merges(b.graph([b.pool(y)]), *CHAIN, "conv2d", "max_pool2d", "transpose")


CHAIN = ("transpose", "conv2d", "elementwise")


def test_one_value_of_many_readers_is_transposed_once() -> None:
    b = Nchw()
    x = b.each(b.image())
    total = b.add(Sum((1, 2, 3)), [b.sum(b.conv(x), b.sum(b.pool2(x), b.conv(x)))])
    expected = ("elementwise", "transpose", "conv2d", "max_pool2d", "conv2d")
    assert_merges(b.graph([total]), *expected, "elementwise", "elementwise", "sum")


def test_many_values_of_one_reader_meet_as_they_are() -> None:
    b = Nchw()
    x = b.image()
    y = b.add(Concatenate(1), [b.conv(x), b.pool2(x), b.conv(x)])
    after = assert_merges(
        b.graph([b.conv(y)]),
        *("transpose", "conv2d", "max_pool2d", "conv2d", "concatenate", "conv2d", "transpose"),
    )
    assert after.nodes[4].op == Concatenate(3)


def test_many_values_of_many_readers_are_transposed_at_the_ends_only() -> None:
    b = Nchw()
    x, y = b.image(), b.image()
    left, right = b.conv(x), b.conv(y)
    first, second = b.sum(left, right), b.each(right, Multiply(operand=Operand(left)))
    graph = b.graph([b.conv(first), b.conv(second)])
    after = merged(graph)
    assert_same(graph, after)
    assert transposes(after) == 4


def test_a_residual_add_is_passed_with_what_its_second_branch_meets() -> None:
    b = Nchw()
    stem = b.conv(b.image())
    row = Multiply(operand=Operand(b.values(3, 1, 1, dtype=INT32)))
    steps = (Cast(INT32), FixedPointMultiply((9, 8, 2**30), (1, 2, 0), 1), row)
    y = b.conv(stem, Add(operand=Operand(stem, steps)))
    after = assert_merges(b.graph([y]), "transpose", "conv2d", "conv2d", "transpose")
    inner = after.nodes[2].epilogue[0].operand.steps  # type: ignore[union-attr]
    assert inner[1] == FixedPointMultiply((9, 8, 2**30), (1, 2, 0), 3)


def test_a_factor_a_channel_that_is_computed_is_reshaped_only() -> None:
    """Squeeze and excitation: the factors come through a dense layer."""
    b = Nchw()
    x = b.conv(b.image())
    mean = b.add(AdaptivePool2d("max", (1, 1), "NCHW"), [x])
    factors = b.add(Dense(), [b.add(Reshape((2, 3)), [mean]), b.values(3, 3)], (Cast(INT8),))
    wide = b.add(Reshape((2, 3, 1, 1)), [factors])
    y = b.each(x, Multiply(operand=Operand(wide)))
    graph = b.graph([b.conv(y)])
    after = merged(graph)
    assert_same(graph, after)
    assert names(after).count("transpose") == 2
    assert names(after).count("reshape") == 2


POWERS = tflite_powers(0.05)
ROWS, COLUMNS = (0, 0, 1, 1, 2, 2, 3, 3), (0, 1, 1, 2, 2, 3, 3, 4, 4)


@pytest.mark.parametrize(
    ("op", "turned"),
    [
        (Pad(((0, 0), (1, 2), (0, 1), (3, 0)), -7), Pad(((0, 0), (0, 1), (3, 0), (1, 2)), -7)),
        (
            Slice((1, 2, 0, 4), (1, -1, 2, -2), (1, 3, 2, 2)),
            Slice((1, 0, 4, 2), (1, 2, -2, -1), (1, 2, 2, 3)),
        ),
        (Sum((2, 3)), Sum((1, 2))),
        (Sum((1,), keepdims=True), Sum((3,), keepdims=True)),
        (Sum((0, 1)), Sum((0, 3))),
        (IntegerSoftmax(1, POWERS), IntegerSoftmax(3, POWERS)),
        (IntegerL2Norm(1, 4), IntegerL2Norm(3, 4)),
        (Resize(ROWS, COLUMNS, "NCHW"), Resize(ROWS, COLUMNS, "NHWC")),
        (Reshape((2, 3, 20)), Reshape((2, 20, 3))),
    ],
    ids=str,
)
def test_operators_follow_the_order_of_their_input(op: Op, turned: Op) -> None:
    b = Nchw()
    y = b.add(op, [b.conv(b.image())])
    match len(b.type(y).shape):
        case 4:
            y = b.pool2(y)
        case 3:
            y = b.turn(y, (0, 2, 1))
    graph = b.graph([b.each(y, Cast(INT32))])
    after = merged(graph)
    assert_same(graph, after)
    assert after.nodes[2].op == turned
    is_image = len(b.type(y).shape) == 4 and b.type(y).shape[1] > 1
    assert transposes(after) == (2 if is_image else 1)


def test_a_float_softmax_follows_the_order_of_its_input() -> None:
    b = Nchw()
    y = b.each(b.conv(b.image()), Cast(FLOAT32), Multiply(operand=Operand(b.number(0.01))))
    y = b.add(Softmax(1), [y], (Multiply(operand=Operand(b.number(9))), Cast(INT8)))
    after = assert_merges(b.graph([b.pool(y)]), *CHAIN, "softmax", "max_pool2d", "transpose")
    assert after.nodes[3].op == Softmax(3)


def test_a_softmax_over_a_flattened_image_keeps_the_order_in_which_floats_are_summed() -> None:
    b = Nchw()
    y = b.each(b.conv(b.image()), Cast(FLOAT32), Multiply(operand=Operand(b.number(0.01))))
    y = b.add(Softmax(1), [b.add(Reshape((2, 60)), [y])])
    assert_merges(
        b.graph([y]), "transpose", "conv2d", "transpose", "elementwise", "reshape", "softmax"
    )


# --- Flattened images ----------------------------------------------------------------------------


def test_a_dense_layer_behind_a_flattened_image_has_its_weights_turned() -> None:
    b = Nchw()
    flat = b.add(Reshape((2, 60)), [b.conv(b.image())])
    weight = b.values(7, 60)
    after = assert_merges(
        b.graph([b.add(Dense(), [flat, weight])]), "transpose", "conv2d", "reshape", "dense"
    )
    want = b.constants[weight].reshape(7, 3, 4, 5).transpose(0, 2, 3, 1).reshape(7, 60)
    np.testing.assert_array_equal(after.constants[after.nodes[-1].inputs[1]], want)


def test_elementwise_nodes_between_a_flattened_image_and_dense_layers_are_turned() -> None:
    b = Nchw()
    flat = b.add(Reshape((2, 60)), [b.conv(b.image())])
    scale = FixedPointMultiply(tuple(range(2**30, 2**30 + 60)), (*range(-9, 0),) * 6 + (0,) * 6, 1)
    row = Add(operand=Operand(b.values(60, dtype=INT32)))
    column = Maximum(operand=Operand(b.values(2, 1, dtype=INT32)))
    wide = b.each(flat, Cast(INT32), row, scale, column, Cast(INT8))
    shared = b.values(7, 60)
    ends = [b.add(Dense(), [x, shared]) for x in (wide, flat)]
    after = assert_merges(
        b.graph([*ends, b.add(Dense(3), [wide, b.values(2, 60)])]),
        *("transpose", "conv2d", "reshape", "elementwise", "dense", "dense", "dense"),
    )
    assert after.nodes[4].inputs[1] == after.nodes[5].inputs[1]


def test_a_flattened_image_that_is_added_to_its_own_dense_layer_is_read_in_two_orders() -> None:
    b = Nchw()
    flat = b.add(Reshape((2, 60)), [b.conv(b.image())])
    y = b.add(Dense(), [flat, b.values(60, 60)], (Cast(INT8), Add(operand=Operand(flat))))
    after = merged(b.graph([y]))
    assert_same(b.graph([y]), after)
    assert transposes(after) == 2


def test_a_flattened_image_that_is_an_output_is_transposed() -> None:
    b = Nchw()
    flat = b.each(b.add(Reshape((2, 60)), [b.conv(b.image())]))
    graph = b.graph([flat, b.add(Dense(), [flat, b.values(7, 60)])])
    after = merged(graph)
    assert_same(graph, after)
    assert transposes(after) == 2


def test_a_pooled_image_is_flattened_for_nothing() -> None:
    b = Nchw()
    pooled = b.add(AdaptivePool2d("max", (1, 1), "NCHW"), [b.conv(b.image())])
    y = b.add(Dense(), [b.add(Reshape((2, 3)), [pooled]), b.values(4, 3)])
    graph = b.graph([y])
    after = assert_merges(graph, "transpose", "conv2d", "adaptive_pool2d", "reshape", "dense")
    np.testing.assert_array_equal(
        after.constants[after.nodes[-1].inputs[1]], graph.constants[graph.nodes[-1].inputs[1]]
    )


# --- Inputs, outputs, constants ------------------------------------------------------------------


def test_the_source_models_own_transpositions_are_used_up() -> None:
    b = Nchw()
    nhwc = b.turn(b.conv(b.image()))
    y = b.add(MaxPool2d(Window((1, 1))), [b.each(nhwc)])
    assert_merges(b.graph([y]), *CHAIN, "max_pool2d")


def test_an_output_in_both_orders_is_computed_once() -> None:
    b = Nchw()
    y = b.conv(b.image())
    z = b.turn(y)
    assert_merges(
        b.graph([y, z, b.turn(z, TO_NCHW)]), "transpose", "conv2d", "transpose", "elementwise"
    )


def test_an_input_that_is_returned_turned_twice_is_copied() -> None:
    b = Nchw()
    x = b.image()
    assert_merges(b.graph([b.turn(b.turn(x), TO_NCHW)]), "elementwise")


def test_where_dimensions_of_one_move_only_a_reshape_is_left() -> None:
    b = Nchw()
    x = b.image(shape=(2, 1, 4, 5))
    assert_merges(b.graph([b.turn(x)]), "reshape")
    graph = b.graph([b.conv(b.image(shape=(1, 3, 1, 1)), out=4)])
    assert_merges(graph, "reshape", "conv2d", "reshape")


def test_constants_that_are_concatenated_are_turned_at_once() -> None:
    b = Nchw()
    y = b.add(Concatenate(1), [b.conv(b.image()), b.values(2, 2, 4, 5)])
    after = assert_merges(
        b.graph([b.conv(y)]), "transpose", "conv2d", "concatenate", "conv2d", "transpose"
    )
    assert after.type(after.nodes[2].inputs[1]).shape == (2, 4, 5, 2)


def test_of_equal_counts_the_one_that_moves_fewer_bytes_is_taken() -> None:
    b = Nchw()
    y = b.each(b.each(b.conv(b.image()), Cast(INT32)), Cast(FLOAT32))
    after = assert_merges(
        b.graph([y]), "transpose", "conv2d", "transpose", "elementwise", "elementwise"
    )
    assert [after.type(node.output).dtype for node in after.nodes] == [INT8] * 3 + [INT32, FLOAT32]


def test_scales_along_an_axis_follow_it() -> None:
    b = Nchw()
    y = b.conv(b.image())
    end = b.conv(y)
    graph = b.graph([end])
    quant = QParams((0.5, 0.25, 0.125), 0, 1)
    tensors = {**graph.tensors, y: Tensor(y, graph.type(y), quant)}
    after = merged(replace(graph, tensors=tensors))
    assert after.tensors[y].quant == replace(quant, axis=3)


# --- Any graph -----------------------------------------------------------------------------------


@settings(deadline=None, derandomize=True, max_examples=150)
@given(graph=graphs(14), seed=st.integers(0, 2**16))
def test_any_graph_keeps_its_meaning_and_gets_no_more_transpositions(
    graph: Graph, seed: int
) -> None:
    before = verify(permute(fuse_epilogues(graph)))
    after = verify(merge_permutes(before))
    assert_same(graph, before, seed)
    assert_same(graph, after, seed)
    assert transposes(after) <= transposes(before)
    again = verify(merge_permutes(after))
    assert transposes(again) == transposes(after)
    assert_same(graph, again, seed)
    assert {getattr(node.op, "layout", "NHWC") for node in before.nodes} == {"NHWC"}


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_every_operator_keeps_its_meaning_behind_any_epilogue(epilogue: str) -> None:
    graph = examples_graph(all_examples(), epilogue)
    assert_same(graph, merged(graph))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_example_networks_are_transposed_at_their_ends_only(name: str) -> None:
    graph = NETWORKS[name]()
    after = optimize(graph)
    assert_same(graph, after)
    assert_transposed_at_the_ends(after)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 5)), st.integers(1, 9), max_size=14)
)
def test_a_minimum_cut_is_the_least_of_all_cuts(capacities: dict[tuple[int, int], int]) -> None:
    """From vertex 0 to vertex 5."""

    def cost(side: set[int]) -> int:
        return sum(room for (a, b), room in capacities.items() if a in side and b not in side)

    every = ({0} | {v for v in range(1, 5) if bits >> v & 1} for bits in range(0, 32, 2))
    side = min_cut(((a, b, room) for (a, b), room in capacities.items()), 0, 5)
    assert 5 not in side
    assert cost({v for v in range(6) if v in side}) == min(map(cost, every))


# --- As few as brute force -----------------------------------------------------------------------


@dataclass
class Traced:
    """A random graph of images, and of each tensor which axes its dimensions are."""

    draw: st.DrawFn
    builder: Nchw = field(default_factory=Nchw)
    axes: dict[str, str] = field(default_factory=dict)

    def pick(self, flat: bool = False) -> str:
        fitting = [name for name in self.axes if len(self.builder.type(name).shape) == 4 - 2 * flat]
        return fitting[-1 - self.draw(st.integers(0, len(fitting) - 1))] if fitting else ""

    def put(self, name: str, axes: str) -> None:
        self.axes[name] = axes

    def image(self) -> None:
        axes = self.draw(st.sampled_from(("NCHW", "NCHW", "NHWC")))
        sizes = SIZES | {"N": self.draw(st.sampled_from((1, 2)))}
        self.put(self.builder.image(shape=[sizes[axis] for axis in axes]), axes)

    def add(self) -> None:
        makers = [self.rigid, self.rigid, self.each, self.sum, self.join, self.border, self.cut]
        makers += [self.mean, self.turn, self.turn, self.flatten, self.flat_sum, self.dense]
        self.draw(st.sampled_from(makers))()

    def rigid(self) -> None:
        x = self.pick()
        op = MaxPool2d(Window((1, 1)), self.axes[x])
        self.put(self.builder.add(op, [x]), self.axes[x])

    def each(self) -> None:
        x = self.pick()
        self.put(self.builder.each(x), self.axes[x])

    def fitting(self, x: str) -> str:
        same = [y for y in self.axes if self.builder.type(y) == self.builder.type(x)]
        return self.draw(st.sampled_from([y for y in same if self.axes[y] == self.axes[x]]))

    def sum(self) -> None:
        x = self.pick()
        self.put(self.builder.sum(x, self.fitting(x)), self.axes[x])

    def join(self) -> None:
        x = self.pick()
        op = Concatenate(self.axes[x].index("C"))
        self.put(self.builder.add(op, [x, self.fitting(x)]), self.axes[x])

    def border(self) -> None:
        x = self.pick()
        op = Pad(tuple((1, 0) if axis in "HW" else (0, 0) for axis in self.axes[x]))
        self.put(self.builder.add(op, [x]), self.axes[x])

    def cut(self) -> None:
        x = self.pick()
        shape = self.builder.type(x).shape
        cut = (1 if axis == "C" else size for axis, size in zip(self.axes[x], shape, strict=True))
        self.put(self.builder.add(Slice((0,) * 4, (1,) * 4, tuple(cut)), [x]), self.axes[x])

    def mean(self) -> None:
        x = self.pick()
        over = tuple(i for i, axis in enumerate(self.axes[x]) if axis in "HW")
        total = self.builder.add(Sum(over, keepdims=True), [x], (Cast(INT8),))
        self.put(total, self.axes[x])

    def turn(self) -> None:
        x = self.pick()
        other = "NHWC" if self.axes[x] == "NCHW" else "NCHW"
        order = tuple(self.axes[x].index(axis) for axis in other)
        self.put(self.builder.turn(x, order), other)

    def flatten(self) -> None:
        x = self.pick()
        n, *rest = self.builder.type(x).shape
        if self.axes[x][0] == "N":
            flat = self.builder.add(Reshape((n, int(np.prod(rest)))), [x])
            self.put(flat, self.axes[x])

    def flat_sum(self) -> None:
        if x := self.pick(flat=True):
            self.put(self.builder.sum(x, self.fitting(x)), self.axes[x])

    def dense(self) -> None:
        if x := self.pick(flat=True):
            weight = self.builder.values(2, self.builder.type(x).shape[1])
            self.builder.add(Dense(), [x, weight])


@st.composite
def traced_graphs(draw: st.DrawFn) -> tuple[Graph, dict[str, str]]:
    make = Traced(draw)
    for _ in range(draw(st.integers(1, 2))):
        make.image()
    for _ in range(draw(st.integers(1, 8))):
        make.add()
    builder = make.builder
    if not builder.nodes:
        make.each()
    # What nothing reads is an output, and so may be another.
    read = {name for node in builder.nodes for name in node.reads()}
    made = [node.output for node in builder.nodes]
    ends = [name for name in made if name not in read]
    extra = draw(st.lists(st.sampled_from(made), max_size=1))
    return verify(builder.graph(list(dict.fromkeys((*ends, *extra))))), make.axes


def fewest(graph: Graph, axes: dict[str, str], orders: Sequence[str]) -> int:
    """By trying all: each node but poolings, which are NHWC, works in any of the orders."""
    root: dict[str, str] = {}
    for node in graph.nodes:
        if isinstance(node.op, Transpose):
            root[node.output] = root.get(node.inputs[0], node.inputs[0])
    shapes = {name: graph.type(name).shape for name in axes}
    long = {
        name: {axis for axis, size in zip(text, shapes[name], strict=False) if size > 1}
        for name, text in axes.items()
        if len(shapes[name]) == 4
    }
    nodes = [node for node in graph.nodes if node.output not in root]
    for node in nodes:  # a flattened image is as long as the image
        if node.output in axes and node.output not in long:
            long[node.output] = long[node.inputs[0]]
    free = [node.output for node in nodes if not isinstance(node.op, MaxPool2d)]
    best = len(graph.nodes) * 9
    for choice in product(orders, repeat=len(free)):
        chosen = dict(zip(free, choice, strict=True))
        made = {name: axes[name] for name in graph.inputs}
        wanted: dict[str, set[str]] = defaultdict(set)

        def key(name: str, order: str) -> str:
            return "".join(axis for axis in order if axis in long[name])

        for node in nodes:
            order = chosen.get(node.output, "NHWC")
            for name in node.reads():
                if name not in graph.constants:
                    wanted[root.get(name, name)].add(key(name, order))
            made[node.output] = order
        for name in graph.outputs:
            if name in axes:  # not that of a dense layer
                wanted[root.get(name, name)].add(key(name, axes[name]))
        count = sum(len(keys - {key(name, made[name])}) for name, keys in wanted.items())
        best = min(best, count)
    return best


@settings(deadline=None, derandomize=True, max_examples=250)
@given(traced_graphs())
def test_the_count_of_transpositions_equals_brute_force(
    traced: tuple[Graph, dict[str, str]],
) -> None:
    graph, axes = traced
    after = merged(graph)
    assert_same(graph, after)
    assert transposes(after) == fewest(graph, axes, ("NCHW", "NHWC")), f"{graph}\n{after}"
