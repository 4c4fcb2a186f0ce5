"""The memory plan: invariants over random lifetimes, and graphs that run in the planned memory.

``run_in_plan`` executes a graph in numpy with every tensor at its planned place, scratch full of
garbage, and in-place nodes element by element: a wrong decision to share memory changes a result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError
from itertools import pairwise
from random import Random
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.random_graphs import graphs, random_inputs
from tinyai.codegen import concatenate_in_place
from tinyai.codegen.concatenate_in_place import in_place
from tinyai.codegen.isa.variant import IsaVariant
from tinyai.codegen.lowered import (
    ALIGNMENT,
    Kernel,
    KernelChoice,
    Lowered,
    verify_lowered,
    written,
)
from tinyai.codegen.plan import (
    LiveBytes,
    Location,
    MemoryPlan,
    Space,
    least_arena,
    lower_bound,
    place,
    plan_memory,
)
from tinyai.ir import Array, Builder, DType, Graph, Node, Operand, Type, operand_tensors, verify
from tinyai.ops import Concatenate, Conv2d, Elementwise, MaxPool2d, Reshape, Slice, Transpose, steps
from tinyai.ops.window import Window
from tinyai.passes import optimize
from tinyai.reference import run_graph, run_node, run_steps

SETTINGS = settings(deadline=None, derandomize=True, max_examples=150)


# --- Placement of blocks -----------------------------------------------------------------------


@st.composite
def block_lists(draw: st.DrawFn) -> list[LiveBytes]:
    rows = draw(
        st.lists(st.tuples(st.integers(1, 20), st.integers(0, 12), st.integers(0, 6)), max_size=14)
    )
    return [
        LiveBytes(f"b{n}", size * ALIGNMENT, first, first + length)
        for n, (size, first, length) in enumerate(rows)
    ]


def greedy_by_size(blocks: Sequence[LiveBytes]) -> int:
    """Size of the arena when the largest blocks go first, each to the lowest free offset."""
    ends: dict[int, int] = {}  # by number of the block
    starts: dict[int, int] = {}
    order = sorted(
        range(len(blocks)),
        key=lambda n: (-blocks[n].bytes, blocks[n].first, blocks[n].last, blocks[n].name),
    )
    for n in order:
        block = blocks[n]
        rivals = [
            m for m in starts if not (blocks[m].last < block.first or block.last < blocks[m].first)
        ]
        offsets = sorted({0, *(ends[m] for m in rivals)})
        starts[n] = next(
            offset
            for offset in offsets
            if all(offset + block.bytes <= starts[m] or ends[m] <= offset for m in rivals)
        )
        ends[n] = starts[n] + block.bytes
    return max(ends.values(), default=0)


@SETTINGS
@given(block_lists())
def test_blocks_that_live_at_the_same_time_never_overlap(blocks: list[LiveBytes]) -> None:
    offsets, size = place(blocks)
    assert set(offsets) == {block.name for block in blocks}
    for block in blocks:
        assert 0 <= offsets[block.name] <= size - block.bytes
    for at in range(20):
        alive = sorted(
            (offsets[b.name], offsets[b.name] + b.bytes) for b in blocks if b.first <= at <= b.last
        )
        for (_, end), (start, _) in pairwise(alive):
            assert end <= start


@SETTINGS
@given(block_lists())
def test_offsets_are_multiples_of_the_alignment(blocks: list[LiveBytes]) -> None:
    offsets, _ = place(blocks)
    assert all(offset % ALIGNMENT == 0 for offset in offsets.values())


@SETTINGS
@given(block_lists())
def test_size_lies_between_the_lower_bound_and_greedy_by_size(blocks: list[LiveBytes]) -> None:
    _, size = place(blocks)
    assert lower_bound(blocks) <= size <= greedy_by_size(blocks)


@SETTINGS
@given(block_lists())
def test_lower_bound_is_the_largest_sum_that_is_alive_at_any_node(blocks: list[LiveBytes]) -> None:
    sums = [sum(b.bytes for b in blocks if b.first <= at <= b.last) for at in range(20)]
    assert lower_bound(blocks) == max(sums)


@SETTINGS
@given(block_lists(), st.randoms(use_true_random=False))
def test_order_of_the_blocks_does_not_change_the_plan(
    blocks: list[LiveBytes], random: Random
) -> None:
    shuffled = list(blocks)
    random.shuffle(shuffled)
    assert place(shuffled) == place(blocks)


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param([(128, 3, 3), (128, 2, 3), (192, 1, 1), (128, 1, 3)], id="another order"),
        pytest.param([(320, 0, 1), (256, 1, 2), (256, 2, 2), (192, 2, 5)], id="another round"),
    ],
)
def test_placements_other_than_by_size_are_tried_and_the_smallest_wins(
    blocks: list[tuple[int, int, int]],
) -> None:
    """The second needs a round in which blocks that ended above the bound go first."""
    named = [LiveBytes(f"b{n}", *numbers) for n, numbers in enumerate(blocks)]
    assert greedy_by_size(named) > lower_bound(named)
    assert place(named)[1] == lower_bound(named)


def test_no_blocks_need_no_arena() -> None:
    assert place([]) == ({}, 0)
    assert lower_bound([]) == 0


# --- Graphs run in the planned memory ----------------------------------------------------------


class Memory:
    """The rooms of a plan as bytes, full of garbage where nothing is written yet."""

    def __init__(self, graph: Lowered, plan: MemoryPlan, inputs: Sequence[Array]) -> None:
        self.graph, self.plan = graph, plan
        self.rng = np.random.default_rng(7)
        self.arena = self.garbage(plan.arena_bytes)
        self.inputs = [np.frombuffer(array.tobytes(), np.uint8) for array in inputs]  # read-only
        self.outputs = [self.garbage(of.bytes) for of in graph.types(graph.outputs)]

    def garbage(self, size: int) -> Array:
        return self.rng.integers(0, 256, size, np.uint8)

    def view(self, name: str) -> Array:
        """The tensor in its place; what is written to it is seen by whatever shares the bytes."""
        location, of = self.plan.locations[name], self.graph.type(name)
        if location.space is Space.CONSTANT:
            return self.graph.constants[name]
        if location.space is Space.ARENA:
            room, start = self.arena, location.index
        else:
            rooms = self.inputs if location.space is Space.INPUT else self.outputs
            room, start = rooms[location.index], location.offset
        strides = [step * of.dtype.bytes for step in self.graph.stored(name).strides]
        assert start % of.dtype.bytes == 0
        # numpy refuses what reaches out of the room.
        view: Array = np.ndarray(of.shape, of.dtype.numpy, room.data, start, strides)
        return view

    def spoil(self, offset: int, size: int) -> None:
        room = self.arena[offset : offset + size]
        assert room.size == size, "scratch reaches out of the arena"
        room[:] = self.garbage(size)


def run_in_plan(
    graph: Lowered, plan: MemoryPlan, scratch: Mapping[str, int], inputs: Sequence[Array]
) -> list[Array]:
    memory = Memory(graph, plan, inputs)
    for node in graph.nodes:
        size = scratch.get(node.output, 0)
        if size:
            memory.spoil(plan.scratch[node.output], size)
        _run_in_place(memory, node)
        if size:
            memory.spoil(plan.scratch[node.output], size)
    return [
        room.view(of.dtype.numpy).reshape(of.shape)
        for room, of in zip(memory.outputs, graph.types(graph.outputs), strict=True)
    ]


def _run_in_place(memory: Memory, node: Node) -> None:
    locations = memory.plan.locations
    if isinstance(node.op, Reshape) and locations[node.inputs[0]] == locations[node.output]:
        return  # the same memory: the emitted code does nothing
    if isinstance(node.op, Concatenate):
        _join(memory, node)
        return
    reads = {name: memory.view(name) for name in node.reads()}
    out = memory.view(node.output)
    if not any(np.shares_memory(out, read) for read in reads.values()):
        out[...] = run_node(node, reads)
        return
    # No order of the elements is promised, so any has to do.
    for index in memory.rng.permutation(out.size):
        at = np.unravel_index(index, out.shape)
        value = node.op.reference(*(reads[name] for name in node.inputs))[at]
        around = {
            name: np.broadcast_to(reads[name], out.shape)[at].reshape(1)
            for name in operand_tensors(node.epilogue)
        }
        out[at] = run_steps(node.epilogue, value.reshape(1), around)[0]


def _join(memory: Memory, node: Node) -> None:
    """The inputs that are in their places are left alone."""
    assert isinstance(node.op, Concatenate)
    out, at = memory.view(node.output), 0
    left = memory.graph.copied(node)
    for number, name in enumerate(node.inputs):
        length = memory.graph.type(name).shape[node.op.axis]
        place = (slice(None),) * node.op.axis + (slice(at, at + length),)
        if number in left:
            out[place] = memory.view(name)
        at += length


def joined(graph: Graph, scratch: Mapping[str, int] | None = None) -> Lowered:
    """The graph with the inputs of its concatenations in their places, where every kernel takes
    every place; numpy's reshapes would copy."""

    def takes(_: Lowered, node: Node, name: str) -> bool:
        return not isinstance(node.op, Reshape) and name not in operand_tensors(node.epilogue)

    prepare = written(lambda *_: None, takes)
    rows = {
        node.output: KernelChoice(Kernel("numpy", type(node.op), prepare), prepare(graph, node))
        for node in graph.nodes
    }
    return in_place(Lowered.of(graph, {IsaVariant("numpy", ("scalar",)): rows}), scratch or {})


def check_plan(graph: Graph, scratch: Mapping[str, int] | None = None) -> MemoryPlan:
    """Plan ``graph``; running in the plan gives what running without one gives."""
    scratch = scratch or {}
    graph = graph if isinstance(graph, Lowered) else Lowered.of(graph)
    plan = plan_memory(graph, scratch)
    inputs = random_inputs(graph, 3)
    expected = run_graph(graph, inputs)
    found = run_in_plan(graph, plan, scratch, inputs)
    for name, want, got in zip(graph.outputs, expected, found, strict=True):
        assert want.tobytes() == got.tobytes(), f"%{name} of\n{graph}\n{plan}"
    return plan


@SETTINGS
@given(graphs(), st.randoms(use_true_random=False), st.booleans())
def test_any_graph_computes_in_the_planned_memory_what_it_computes_without(
    graph: Graph, random: Random, optimized: bool
) -> None:
    graph = optimize(graph) if optimized else graph
    sizes = [random.choice((0, 1, 64, 200)) for _ in graph.nodes]
    scratch = {node.output: size for node, size in zip(graph.nodes, sizes, strict=True)}
    plan = check_plan(graph, scratch)
    assert plan.lower_bound <= plan.arena_bytes
    assert set(plan.scratch) == {name for name, size in scratch.items() if size}


@st.composite
def joining_graphs(draw: st.DrawFn) -> Graph:
    """Concatenations of few small tensors that others read, reshape, cut, overwrite and return."""
    b = Builder("joining")
    pool = [b.input(Type((2, 3), DType.INT32))]
    for _ in range(draw(st.integers(2, 14))):
        x = draw(st.sampled_from(pool[::-1]))
        shape = b.type(x).shape
        axis = draw(st.integers(0, len(shape) - 1))
        around = (shape[:axis], shape[axis + 1 :])
        alike = [
            name
            for name in pool
            if len(of := b.type(name).shape) == len(shape)
            and (of[:axis], of[axis + 1 :]) == around
            and 4 * b.type(name).elements <= 96
        ]
        match draw(st.sampled_from(("step", "sum", "join", "join", "reshape", "cut"))):
            case "join" if alike:
                parts = draw(st.lists(st.sampled_from(alike[::-1]), min_size=1, max_size=3))
                pool.append(b.add(Concatenate(axis), parts))
            case "reshape":
                shapes = (shape[::-1], (math.prod(shape),), (1, *shape))
                pool.append(reshape(b, x, *draw(st.sampled_from(shapes))))
            case "cut":
                cut = (*shape[:axis], (shape[axis] + 1) // 2, *shape[axis + 1 :])
                pool.append(b.add(Slice((0,) * len(shape), (1,) * len(shape), cut), [x]))
            case "sum":
                others = [name for name in pool if b.type(name) == b.type(x)]
                pool.append(copy_of(b, x, add(draw(st.sampled_from(others)))))
            case _:
                pool.append(copy_of(b, x, steps.Clip(-len(pool), 1000 * len(pool))))
    made = [node.output for node in b.nodes]
    outputs = draw(st.lists(st.sampled_from(made[::-1]), min_size=1, max_size=3, unique=True))
    return verify(b.graph(outputs))


@settings(SETTINGS, max_examples=500)
@given(joining_graphs(), st.booleans())
def test_any_graph_computes_the_same_where_concatenations_are_made_in_place(
    graph: Graph, cheap: bool
) -> None:
    """Where it saves memory, and at any cost."""
    bound = least_arena if cheap else lambda *_: 2**60
    with mock.patch.object(concatenate_in_place, "least_arena", bound):
        together = joined(graph)
    plan = check_plan(verify_lowered(together))
    assert not cheap or plan.lower_bound <= least_arena(Lowered.of(graph), {})


@SETTINGS
@given(graphs())
def test_outputs_and_inputs_live_with_the_caller(graph: Graph) -> None:
    plan = plan_memory(Lowered.of(graph), {})
    for index, name in enumerate(graph.outputs):
        assert plan.locations[name] == Location(Space.OUTPUT, index)
    for index, name in enumerate(graph.inputs):
        assert plan.locations[name] == Location(Space.INPUT, index)


# --- Particular graphs -------------------------------------------------------------------------

SHAPE = (1, 3, 4, 2)
INT32 = Type(SHAPE, DType.INT32)
RELU = (steps.Relu(),)


def copy_of(builder: Builder, name: str, *epilogue: steps.Step) -> str:
    return builder.add(Elementwise(builder.type(name).shape), [name], epilogue)


def reshape(builder: Builder, name: str, *shape: int) -> str:
    return builder.add(Reshape(shape), [name])


def conv(builder: Builder, name: str, *epilogue: steps.Step) -> str:
    weight = np.arange(-9, 9, dtype=np.int8).reshape(2, 1, 3, 3)[:, :, :, :2].transpose(0, 2, 1, 3)
    window = Window((3, 1), padding=(1, 0, 1, 0))
    return builder.add(Conv2d(window), [name, builder.constant(weight)], epilogue)


def add(name: str) -> steps.Add:
    return steps.Add(operand=Operand(name))


def test_an_elementwise_node_takes_the_place_of_the_input_that_it_reads_last() -> None:
    b = Builder("g")
    x = copy_of(b, b.input(INT32), *RELU)
    y = copy_of(b, x, *RELU)
    plan = check_plan(b.graph([copy_of(b, y, *RELU)]))
    assert plan.locations[x] == plan.locations[y]
    assert plan.arena_bytes == math.ceil(INT32.bytes / ALIGNMENT) * ALIGNMENT


def test_a_convolution_takes_the_place_of_the_operand_that_it_reads_last() -> None:
    b = Builder("g")
    data, other = b.input(Type(SHAPE, DType.INT8)), b.input(INT32)
    x = copy_of(b, other, *RELU)
    y = conv(b, data, add(x))
    plan = check_plan(b.graph([copy_of(b, y, *RELU)]))
    assert plan.locations[x] == plan.locations[y]


def test_a_value_that_is_read_later_keeps_its_place() -> None:
    b = Builder("g")
    x = copy_of(b, b.input(INT32), *RELU)
    y = copy_of(b, x, steps.Clip(-5, 5))
    plan = check_plan(b.graph([copy_of(b, y, add(x))]))
    assert plan.locations[x] != plan.locations[y]


def test_a_value_whose_reshape_is_read_later_keeps_its_place() -> None:
    b = Builder("g")
    x = copy_of(b, b.input(INT32), *RELU)
    flat = reshape(b, x, 24)
    y = copy_of(b, x, steps.Clip(-5, 5))
    plan = check_plan(b.graph([copy_of(b, y), copy_of(b, flat)]))
    assert plan.locations[x] == plan.locations[flat] != plan.locations[y]


def test_a_pooling_does_not_overwrite_the_value_it_reads_in_windows_under_another_name() -> None:
    """The operand, read last, has the type of the result; the input is the same memory."""
    b = Builder("g")
    x = copy_of(b, b.input(INT32), *RELU)
    again = reshape(b, reshape(b, x, 24), *SHAPE)
    window = Window((3, 3), padding=(1, 1, 1, 1))
    y = b.add(MaxPool2d(window), [again], (add(x),))
    plan = check_plan(b.graph([copy_of(b, y)]))
    assert plan.locations[y] != plan.locations[x]


def test_a_pooling_does_not_overwrite_the_value_it_reads_in_windows() -> None:
    b = Builder("g")
    x = copy_of(b, b.input(INT32), *RELU)
    y = b.add(MaxPool2d(Window((3, 3), padding=(1, 1, 1, 1))), [x], (add(x),))
    plan = check_plan(b.graph([copy_of(b, y)]))
    assert plan.locations[y] != plan.locations[x]


def test_a_broadcast_operand_keeps_its_place() -> None:
    b = Builder("g")
    row = copy_of(b, b.input(Type((2,), DType.INT32)), *RELU)
    x = copy_of(b, b.input(INT32), *RELU)
    y = copy_of(b, x, add(row))
    plan = check_plan(b.graph([copy_of(b, y)]))
    assert plan.locations[y] == plan.locations[x] != plan.locations[row]


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT64, DType.FLOAT32])
def test_a_result_of_another_dtype_does_not_take_its_inputs_place(dtype: DType) -> None:
    b = Builder("g")
    x = copy_of(b, b.input(INT32), *RELU)
    y = copy_of(b, x, steps.Cast(dtype))
    plan = check_plan(b.graph([copy_of(b, y)]))
    assert plan.locations[y] != plan.locations[x]


def test_the_callers_inputs_are_never_written_to() -> None:
    b = Builder("g")
    given_ = b.input(INT32)
    x = copy_of(b, given_, *RELU)
    y = copy_of(b, reshape(b, given_, 24), *RELU)
    plan = check_plan(b.graph([copy_of(b, x), copy_of(b, y)]))
    assert Space.INPUT not in (plan.locations[x].space, plan.locations[y].space)


def test_a_reshape_of_an_input_is_free_inside_and_copied_as_an_output() -> None:
    b = Builder("g")
    given_ = b.input(INT32)
    inside, outside = reshape(b, given_, 24), reshape(b, given_, 2, 12)
    plan = check_plan(b.graph([copy_of(b, inside), outside]))
    assert plan.locations[inside] == plan.locations[given_]
    assert plan.locations[outside] == Location(Space.OUTPUT, 1)


def test_a_reshape_of_a_reshape_of_an_input_is_copied_as_an_output() -> None:
    b = Builder("g")
    out = reshape(b, reshape(b, b.input(INT32), 24), 2, 12)
    assert check_plan(b.graph([out])).arena_bytes == 0


def test_a_reshape_of_a_constant_is_computed() -> None:
    b = Builder("g")
    constant = b.constant(np.arange(6, dtype=np.int32))
    check_plan(b.graph([reshape(b, constant, 2, 3), copy_of(b, reshape(b, constant, 3, 2))]))


def test_a_value_lives_with_the_output_that_is_its_reshape() -> None:
    b = Builder("g")
    x = conv(b, b.input(Type(SHAPE, DType.INT8)))
    plan = check_plan(b.graph([reshape(b, x, 24)]))
    assert plan.locations[x] == Location(Space.OUTPUT, 0)
    assert plan.arena_bytes == 0


def test_two_outputs_that_are_reshapes_of_one_value_have_a_memory_each() -> None:
    b = Builder("g")
    x = copy_of(b, b.input(INT32), *RELU)
    check_plan(b.graph([reshape(b, x, 24), reshape(b, x, 2, 12)]))


def test_an_output_and_its_reshape_have_a_memory_each() -> None:
    b = Builder("g")
    x = copy_of(b, b.input(INT32), *RELU)
    check_plan(b.graph([x, reshape(b, x, 24)]))
    check_plan(b.graph([b.nodes[-1].output, x]))


def test_a_reshape_of_an_output_that_is_read_later_is_right() -> None:
    b = Builder("g")
    x = copy_of(b, b.input(INT32), *RELU)
    flat = reshape(b, x, 24)
    other = reshape(b, x, 2, 12)
    inner = reshape(b, other, 6, 4)
    last = copy_of(b, inner, steps.Clip(-3, 3))
    check_plan(b.graph([flat, other, last]))


def test_an_output_that_is_read_later_is_not_overwritten() -> None:
    b = Builder("g")
    x = copy_of(b, b.input(INT32), *RELU)
    y = copy_of(b, x, steps.Clip(-5, 5))
    z = copy_of(b, y, steps.Clip(-2, 2))
    plan = check_plan(b.graph([x, copy_of(b, z)]))
    assert plan.locations[y] != plan.locations[x]


def test_a_value_whose_reshape_is_an_output_is_not_overwritten() -> None:
    b = Builder("g")
    x = copy_of(b, b.input(INT32), *RELU)
    out = reshape(b, x, 24)
    y = copy_of(b, x, steps.Clip(-5, 5))
    plan = check_plan(b.graph([out, copy_of(b, y)]))
    assert plan.locations[y] != plan.locations[x]


def test_a_value_written_in_place_and_then_reshaped_to_an_output_starts_in_the_output() -> None:
    b = Builder("g")
    x = copy_of(b, b.input(INT32), *RELU)
    y = copy_of(b, x, steps.Clip(-5, 5))
    plan = check_plan(b.graph([reshape(b, y, 24)]))
    assert plan.locations[x] == plan.locations[y] == Location(Space.OUTPUT, 0)


def test_nodes_that_move_values_never_work_in_place() -> None:
    b = Builder("g")
    x = copy_of(b, b.input(Type((3, 3), DType.INT8)), *RELU)
    turned = b.add(Transpose((1, 0)), [x])
    joined = b.add(Concatenate(0), [turned])
    plan = check_plan(b.graph([copy_of(b, joined)]))
    assert len({plan.locations[x], plan.locations[turned]}) == 2
    assert plan.locations[joined] != plan.locations[turned]


def test_scratch_meets_nothing_that_its_node_reads_or_writes() -> None:
    b = Builder("g")
    x = copy_of(b, b.input(Type(SHAPE, DType.INT8)), *RELU)
    y = conv(b, x)
    graph = b.graph([copy_of(b, y)])
    plan = check_plan(graph, {y: 1000})
    assert plan.arena_bytes == plan.lower_bound == 64 + 128 + 1024


def rows_and_columns(axis: int) -> tuple[Builder, list[str], str]:
    """Three results of a shape and their concatenation."""
    b = Builder("g")
    given_ = b.input(Type((8, 16), DType.INT32))
    made = [copy_of(b, given_, steps.Clip(-n, n)) for n in (3, 5, 7)]
    return b, made, b.add(Concatenate(axis), made)


@pytest.mark.parametrize(("axis", "offset"), [(0, 8 * 16 * 4), (1, 16 * 4)])
def test_the_inputs_of_a_concatenation_lie_in_its_memory(axis: int, offset: int) -> None:
    b, made, whole = rows_and_columns(axis)
    plan = check_plan(joined(b.graph([copy_of(b, whole)])))
    assert [plan.locations[name].index for name in made] == [0, offset, 2 * offset]
    assert plan.arena_bytes == plan.lower_bound == 3 * 8 * 16 * 4


@pytest.mark.parametrize("axis", [0, 1])
def test_a_part_that_is_read_behind_its_whole_takes_no_dense_result(axis: int) -> None:
    b, made, whole = rows_and_columns(axis)
    first = copy_of(b, whole, *RELU)
    second = copy_of(b, copy_of(b, made[1], *RELU), steps.Clip(-4, 4))
    plan = check_plan(joined(b.graph([first, second])))
    assert plan.locations[made[1]].space is Space.ARENA
    inside = plan.locations[b.nodes[-2].output] == plan.locations[made[1]]
    assert inside == (axis == 0)  # a stretch of bytes is as good as any


def test_a_whole_lives_from_its_first_part_on() -> None:
    b, _, whole = rows_and_columns(0)
    between = copy_of(b, b.inputs[0], steps.Clip(-1, 1))
    b.nodes.insert(1, b.nodes.pop())
    graph = joined(b.graph([copy_of(b, whole), copy_of(b, between)]))
    plan = check_plan(graph)
    assert plan.locations[between].index >= 3 * 8 * 16 * 4


def test_a_plan_cannot_be_changed() -> None:
    b = Builder("g")
    plan = plan_memory(Lowered.of(b.graph([copy_of(b, b.input(INT32))])), {})
    with pytest.raises(FrozenInstanceError):
        plan.arena_bytes = 1  # type: ignore[misc]
