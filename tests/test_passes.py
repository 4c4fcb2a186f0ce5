"""The passes: what each one does to a graph, and that none of them changes what it computes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyai.passes
from tests.random_graphs import graphs, random_inputs
from tinyai.errors import GraphError
from tinyai.ir import Builder, DType, Graph, Operand, Step, Type, every_step, print_graph, verify
from tinyai.ops import Conv2d, Elementwise, Pad, Reshape, Sum
from tinyai.ops.steps import (
    Add,
    Cast,
    Clip,
    FixedPointMultiply,
    Function,
    LeftShift,
    Lookup,
    Maximum,
    Minimum,
    Multiply,
    Relu,
    RightShift,
    Round,
    Subtract,
    SubtractFrom,
)
from tinyai.ops.window import Window
from tinyai.passes import (
    PIPELINE,
    drop_copies,
    drop_idle_steps,
    fold_constants,
    fold_pads,
    fuse_epilogues,
    make_tables,
    make_unsigned,
    merge_equal,
    optimize,
    remove_unused,
    sink_widening,
    tabulate_functions,
)
from tinyai.reference import run_graph

Pass = Callable[[Graph], Graph]
PASSES: tuple[Pass, ...] = (*dict.fromkeys(PIPELINE), make_unsigned, drop_idle_steps, optimize)
INT8, INT32, FLOAT32 = DType.INT8, DType.INT32, DType.FLOAT32
SHAPE = (1, 2, 2, 2)
CONV = "conv2d(1×1)"


# --- Meaning -----------------------------------------------------------------------------------


def assert_same_meaning(before: Graph, after: Graph, seed: int = 1) -> None:
    inputs = random_inputs(before, seed)
    expected, found = run_graph(before, inputs), run_graph(after, inputs)
    for name, want, got in zip(before.outputs, expected, found, strict=True):
        assert (want.shape, want.dtype) == (got.shape, got.dtype)
        assert want.tobytes() == got.tobytes(), f"%{name}\n{before}\n{after}"


@pytest.mark.parametrize("run", PASSES, ids=lambda run: run.__name__)
@settings(deadline=None, derandomize=True, max_examples=80)
@given(graph=graphs(), seed=st.integers(0, 2**16))
def test_a_pass_keeps_signature_and_meaning_of_any_graph(
    run: Pass, graph: Graph, seed: int
) -> None:
    after = verify(run(graph))
    assert (after.name, after.inputs, after.outputs) == (graph.name, graph.inputs, graph.outputs)
    assert after.types(after.outputs) == graph.types(graph.outputs)
    assert_same_meaning(graph, after, seed)


@settings(deadline=None, derandomize=True, max_examples=120)
@given(graph=graphs(), seed=st.integers(0, 2**16))
def test_passes_keep_the_meaning_on_what_those_before_them_leave(graph: Graph, seed: int) -> None:
    before = graph
    for run in (*PIPELINE, *PIPELINE):
        after = verify(run(before))
        assert_same_meaning(graph, after, seed)
        before = after


@settings(deadline=None, derandomize=True, max_examples=60)
@given(graphs())
def test_a_pass_is_deterministic_and_leaves_its_argument_alone(graph: Graph) -> None:
    text = print_graph(graph)
    for run in PASSES:
        assert print_graph(run(graph)) == print_graph(run(graph))
        assert print_graph(graph) == text


@settings(deadline=None, derandomize=True, max_examples=60)
@given(graphs())
def test_no_source_name_of_what_is_computed_gets_lost_by_fusion(graph: Graph) -> None:
    graph = remove_unused(graph)
    names = {name for node in graph.nodes for name in node.sources}
    fused = fuse_epilogues(graph)
    assert {name for node in fused.nodes for name in node.sources} == names


@settings(deadline=None, derandomize=True, max_examples=60)
@given(graphs())
def test_fusion_never_adds_nodes_and_sinking_never_widens(graph: Graph) -> None:
    fused = fuse_epilogues(graph)
    assert len(fused.nodes) <= len(graph.nodes)
    sunk = sink_widening(fused)
    for node in sunk.nodes:
        assert sunk.type(node.output).bytes <= fused.type(node.output).bytes


# --- Small graphs ------------------------------------------------------------------------------


class Small(Builder):
    """A builder with the few operators that the cases below are made of."""

    def __init__(self) -> None:
        super().__init__("g")

    def step(self, x: str, *chain: Step, source: str = "") -> str:
        shape = self.type(x).shape
        return self.add(Elementwise(shape), [x], chain, (source,) if source else ())

    def spread(self, x: str, shape: tuple[int, ...], *chain: Step) -> str:
        return self.add(Elementwise(shape), [x], chain)

    def conv(self, x: str, *chain: Step, source: str = "") -> str:
        weight = self.constant(np.array([[3, -2], [1, 5]], np.int8).reshape(2, 1, 1, 2))
        op = Conv2d(Window((1, 1)))
        return self.add(op, [x, weight], chain, (source,) if source else ())

    def number(self, value: int | Sequence[int]) -> str:
        return self.constant(np.array(value, np.int32))


def add(name: str, *inner: Step) -> Add:
    return Add(operand=Operand(name, inner))


def assert_becomes(run: Pass, before: Graph, nodes: str) -> Graph:
    """``run`` turns ``before`` into a graph of these nodes, with the same results."""
    after = verify(run(verify(before)))
    short = str(Conv2d(Window((1, 1)))), CONV
    lines = [line[2:].replace(*short) for line in str(after).splitlines()]
    found = [line for line in lines if " = " in line]
    found = [line.replace("elementwise(shape=(1, 2, 2, 2))", "elementwise") for line in found]
    assert found == textwrap.dedent(nodes).strip().splitlines()
    assert_same_meaning(before, after)
    return after


# --- fold_constants ----------------------------------------------------------------------------


def test_what_depends_on_constants_only_is_computed() -> None:
    b = Small()
    x = b.input(Type((3,), INT32))
    c = b.constant(np.array([100, -100, 7], np.int8))
    wide = b.step(c, Cast(INT32))
    doubled = b.step(wide, add(wide))
    graph = b.graph([b.step(x, add(doubled))])
    after = assert_becomes(
        fold_constants, graph, "%t4: int32[3] = elementwise(shape=(3,)) [%in0] >> add(%t3)"
    )
    np.testing.assert_array_equal(after.constants[doubled], np.array([200, -200, 14], np.int32))
    assert not after.constants[doubled].flags.writeable


def test_an_output_of_constants_is_still_written_at_run_time() -> None:
    b = Small()
    c = b.number([1, 2, 3])
    graph = b.graph([b.step(c, Relu())])
    assert_becomes(fold_constants, graph, "%t1: int32[3] = elementwise(shape=(3,)) [%c0] >> relu()")


def test_a_constant_with_an_operand_that_is_none_is_not_folded() -> None:
    b = Small()
    x, c = b.input(Type((3,), INT32)), b.number([1, 2, 3])
    graph = b.graph([b.step(b.step(c, add(x)), Relu())])
    assert len(fold_constants(graph).nodes) == 2


# --- merge_equal -------------------------------------------------------------------------------


def test_equal_nodes_become_one_that_names_all_sources() -> None:
    b = Small()
    x = b.input(Type((3,), INT32))
    first, second = (
        b.step(x, add(b.number([1, 2, 3])), Cast(INT8), source=name) for name in ("a", "b")
    )
    graph = b.graph([b.step(b.step(first, Relu()), add(second))])
    assert_becomes(
        merge_equal,
        graph,
        """
        %t2: int8[3] = elementwise(shape=(3,)) [%in0] >> add(%c1) >> cast(int8)  # a, b
        %t5: int8[3] = elementwise(shape=(3,)) [%t2] >> relu()
        %t6: int8[3] = elementwise(shape=(3,)) [%t5] >> add(%t2)
        """,
    )


def test_merged_nodes_make_their_readers_equal() -> None:
    b = Small()
    x = b.input(Type((3,), INT32))
    left, right = (b.step(b.step(x, Cast(INT8)), Relu()) for _ in range(2))
    graph = b.graph([b.step(left, add(right))])
    assert len(merge_equal(graph).nodes) == 3


@pytest.mark.parametrize(
    "other", [Clip(0, 5), Cast(DType.UINT8), Relu()], ids=lambda step: step.name
)
def test_nodes_of_another_epilogue_stay_apart(other: Step) -> None:
    b = Small()
    x = b.input(Type((3,), INT32))
    first, second = b.step(x, Clip(0, 6)), b.step(x, other)
    graph = b.graph([b.step(first, Cast(INT8)), b.step(second, Cast(INT8))])
    assert len(merge_equal(graph).nodes) == 4


def test_constants_of_equal_bytes_and_another_type_stay_apart() -> None:
    b = Small()
    x, y = b.input(Type((2,), INT32)), b.input(Type((2,), FLOAT32))
    zero, flat = b.number([0, 0]), b.constant(np.zeros(2, np.float32))
    graph = b.graph([b.step(x, add(zero)), b.step(y, add(flat))])
    assert_same_meaning(graph, verify(merge_equal(graph)))


def test_constants_of_equal_bytes_and_another_shape_stay_apart() -> None:
    b = Small()
    x = b.input(Type((2, 2), INT32))
    row, column = b.constant(np.array([[1, 2]])), b.constant(np.array([[1], [2]]))
    graph = b.graph([b.step(x, Cast(DType.INT64), add(row), add(column))])
    assert_same_meaning(graph, verify(merge_equal(graph)))


def test_outputs_keep_nodes_of_their_own() -> None:
    b = Small()
    x = b.input(Type((3,), INT32))
    graph = b.graph([b.step(x, Relu()), b.step(x, Relu())])
    after = merge_equal(graph)
    assert after.outputs == graph.outputs
    assert len(after.nodes) == 2


# --- remove_unused -----------------------------------------------------------------------------


def test_what_no_output_reads_goes_and_inputs_stay() -> None:
    b = Small()
    x, unread = b.input(Type((3,), INT32)), b.input(Type((3,), INT32))
    b.step(b.step(x, add(b.number([4, 5, 6]))), Relu())
    inner = b.number([1, 2, 3])
    y = b.step(x, add(x, add(inner)))
    after = assert_becomes(
        remove_unused,
        b.graph([y]),
        "%t6: int32[3] = elementwise(shape=(3,)) [%in0] >> add(%in0 >> add(%c5))",
    )
    assert set(after.tensors) == {x, unread, inner, y}
    assert set(after.constants) == {inner}
    assert after.inputs == (x, unread)


# --- fuse_epilogues ----------------------------------------------------------------------------


def test_a_requantization_chain_becomes_the_epilogue_of_its_convolution() -> None:
    b = Small()
    y = b.conv(b.input(Type(SHAPE, INT8)), source="conv")
    y = b.step(y, add(b.number(64)), source="add")
    y = b.step(y, RightShift(operand=Operand(b.number(7))), source="shift")
    y = b.step(b.step(y, Clip(-127, 127)), Cast(INT8), source="conv")
    assert_becomes(
        fuse_epilogues,
        b.graph([y]),
        f"""
        %t8: int8[1,2,2,2] = {CONV} [%in0, %c1] >> add(%c3) >> right_shift(%c5) >> clip(-127, 127)\
 >> cast(int8)  # conv, add, shift
        """,
    )


def test_a_value_that_is_read_twice_is_not_fused() -> None:
    b = Small()
    y = b.conv(b.input(Type(SHAPE, INT8)))
    graph = b.graph([b.step(y, Relu()), b.step(y, Cast(INT8))])
    assert len(fuse_epilogues(graph).nodes) == 3
    b = Small()
    y = b.conv(b.input(Type(SHAPE, INT8)))
    graph = b.graph([b.step(y, add(y))])
    assert_becomes(
        fuse_epilogues,
        graph,
        f"""
        %t2: int32[1,2,2,2] = {CONV} [%in0, %c1]
        %t3: int32[1,2,2,2] = elementwise [%t2] >> add(%t2)
        """,
    )


def test_an_output_is_not_fused_away() -> None:
    b = Small()
    y = b.conv(b.input(Type(SHAPE, INT8)))
    graph = b.graph([y, b.step(y, Relu())])
    assert_becomes(
        fuse_epilogues,
        graph,
        f"""
        %t2: int32[1,2,2,2] = {CONV} [%in0, %c1]
        %t3: int32[1,2,2,2] = elementwise [%t2] >> relu()
        """,
    )


def test_a_broadcast_is_not_fused_into_the_smaller_value() -> None:
    b = Small()
    small = b.step(b.input(Type((2,), INT32)), Relu())
    graph = b.graph([b.spread(small, SHAPE, Clip(-5, 5))])
    assert_becomes(
        fuse_epilogues,
        graph,
        """
        %t1: int32[2] = elementwise(shape=(2,)) [%in0] >> relu()
        %t2: int32[1,2,2,2] = elementwise [%t1] >> clip(-5, 5)
        """,
    )


def test_an_operator_without_epilogue_takes_no_steps() -> None:
    b = Small()
    flat = b.add(Reshape((8,)), [b.input(Type(SHAPE, INT8))])
    graph = b.graph([b.step(flat, Relu())])
    assert len(fuse_epilogues(graph).nodes) == 2


def test_the_second_branch_of_a_residual_add_is_converted_while_it_is_read() -> None:
    b = Small()
    x, other = b.input(Type(SHAPE, INT8)), b.input(Type(SHAPE, INT8))
    branch = b.step(other, Cast(INT32), source="cast")
    branch = b.step(branch, LeftShift(operand=Operand(b.number(3))), source="shift")
    y = b.step(b.conv(x, source="conv"), add(branch), source="add")
    assert_becomes(
        fuse_epilogues,
        b.graph([y]),
        f"""
        %t7: int32[1,2,2,2] = {CONV} [%in0, %c5] >> add(%in1 >> cast(int32) >> left_shift(%c3))\
  # conv, add, cast, shift
        """,
    )


def test_operands_of_operands_are_converted_while_they_are_read_too() -> None:
    b = Small()
    x, y, z = (b.input(Type((3,), INT8)) for _ in range(3))
    inner = b.step(b.step(y, Cast(INT32)), add(b.step(z, Cast(INT32))))
    graph = b.graph([b.step(b.step(x, Cast(INT32)), add(inner))])
    assert_becomes(
        fuse_epilogues,
        graph,
        "%t7: int32[3] = elementwise(shape=(3,)) [%in0] >> cast(int32)"
        " >> add(%in1 >> cast(int32) >> add(%in2 >> cast(int32)))",
    )


def test_an_operand_that_is_read_twice_is_computed_once() -> None:
    b = Small()
    x, other = b.input(Type(SHAPE, INT8)), b.input(Type(SHAPE, INT8))
    branch = b.step(other, Cast(INT32))
    graph = b.graph([b.step(b.conv(x), add(branch)), b.step(b.conv(x), add(branch))])
    assert len(fuse_epilogues(graph).nodes) == 3


@pytest.mark.parametrize(
    ("step", "swapped"),
    [
        (Add, Add),
        (Multiply, Multiply),
        (Maximum, Maximum),
        (Minimum, Minimum),
        (Subtract, SubtractFrom),
        (SubtractFrom, Subtract),
    ],
)
def test_a_convolution_that_is_the_second_operand_takes_the_step_the_other_way_round(
    step: type[Step], swapped: type[Step]
) -> None:
    b = Small()
    x, first = b.input(Type(SHAPE, INT8)), b.input(Type(SHAPE, INT32))
    y = b.step(first, step(operand=Operand(b.conv(x))), Relu())
    assert_becomes(
        fuse_epilogues,
        b.graph([y]),
        f"%t4: int32[1,2,2,2] = {CONV} [%in0, %c2] >> {swapped.name}(%in1) >> relu()",
    )


def test_a_convolution_as_the_second_operand_takes_a_broadcast_first_one() -> None:
    b = Small()
    x, row = b.input(Type(SHAPE, INT8)), b.input(Type((2,), INT32))
    y = b.spread(row, SHAPE, Subtract(operand=Operand(b.conv(x))))
    assert_becomes(
        fuse_epilogues,
        b.graph([y]),
        f"%t4: int32[1,2,2,2] = {CONV} [%in0, %c2] >> subtract_from(%in1)",
    )


def test_of_two_convolutions_the_first_takes_the_sum() -> None:
    b = Small()
    x, other = b.input(Type(SHAPE, INT8)), b.input(Type(SHAPE, INT8))
    y = b.step(b.conv(x, source="left"), add(b.conv(other, source="right")))
    assert_becomes(
        fuse_epilogues,
        b.graph([y]),
        f"""
        %t5: int32[1,2,2,2] = {CONV} [%in1, %c4]  # right
        %t6: int32[1,2,2,2] = {CONV} [%in0, %c2] >> add(%t5)  # left
        """,
    )


def test_an_operand_with_steps_of_its_own_keeps_its_side() -> None:
    b = Small()
    x, first = b.input(Type(SHAPE, INT8)), b.input(Type(SHAPE, INT8))
    y = b.step(first, add(b.conv(x), Cast(INT8)))
    graph = b.graph([y])
    after = verify(fuse_epilogues(verify(graph)))
    assert len(after.nodes) == 2
    assert_same_meaning(graph, after)


# --- sink_widening -----------------------------------------------------------------------------


def test_a_value_in_front_of_a_residual_add_is_stored_as_int8() -> None:
    b = Small()
    x, other, shift = b.input(Type(SHAPE, INT8)), b.input(Type(SHAPE, INT8)), b.number(3)
    tail = (Cast(INT32), LeftShift(operand=Operand(shift)))
    wide = b.conv(x, Clip(-127, 127), Cast(INT8), *tail)
    y = b.conv(other, add(wide), Cast(INT8))
    z = b.step(wide, Relu(), Cast(INT8))
    assert_becomes(
        sink_widening,
        b.graph([y, z]),
        f"""
        %t4: int8[1,2,2,2] = {CONV} [%in0, %c3] >> clip(-127, 127) >> cast(int8)
        %t6: int8[1,2,2,2] = {CONV} [%in1, %c5] >> add(%t4 >> cast(int32) >> left_shift(%c2))\
 >> cast(int8)
        %t7: int8[1,2,2,2] = elementwise [%t4] >> cast(int32) >> left_shift(%c2) >> relu()\
 >> cast(int8)
        """,
    )


def test_a_per_channel_tail_sinks_into_readers_that_broadcast() -> None:
    b = Small()
    channel = b.number([3, 4])
    x = b.input(Type((2,), INT32))
    row = b.step(x, Clip(-9, 9), Cast(INT8), Cast(INT32), Multiply(operand=Operand(channel)))
    y = b.spread(row, SHAPE, Relu())
    z = b.spread(row, (3, 2), add(row))
    assert_becomes(
        sink_widening,
        b.graph([y, z]),
        """
        %t2: int8[2] = elementwise(shape=(2,)) [%in1] >> clip(-9, 9) >> cast(int8)
        %t3: int32[1,2,2,2] = elementwise [%t2] >> cast(int32) >> multiply(%c0) >> relu()
        %t4: int32[3,2] = elementwise(shape=(3, 2)) [%t2] >> cast(int32) >> multiply(%c0)\
 >> add(%t2 >> cast(int32) >> multiply(%c0))
        """,
    )


def test_a_tail_sinks_into_operands_of_operands() -> None:
    b = Small()
    x, y, z = (b.input(Type((3,), INT32)) for _ in range(3))
    wide = b.step(x, Cast(INT8), Cast(INT32))
    first, second = (b.step(each, add(each, add(wide))) for each in (y, z))
    assert_becomes(
        sink_widening,
        b.graph([first, second]),
        """
        %t3: int8[3] = elementwise(shape=(3,)) [%in0] >> cast(int8)
        %t4: int32[3] = elementwise(shape=(3,)) [%in1] >> add(%in1 >> add(%t3 >> cast(int32)))
        %t5: int32[3] = elementwise(shape=(3,)) [%in2] >> add(%in2 >> add(%t3 >> cast(int32)))
        """,
    )


def test_a_value_that_a_kernel_reads_whole_stays_wide() -> None:
    b = Small()
    x = b.input(Type((8,), INT32))
    wide = b.step(x, Cast(INT8), Cast(INT32))
    graph = b.graph([b.add(Reshape((2, 4)), [wide]), b.step(wide, Relu())])
    assert str(sink_widening(graph)) == str(graph)


def test_an_output_stays_wide() -> None:
    b = Small()
    wide = b.step(b.input(Type((8,), INT32)), Cast(INT8), Cast(INT32))
    graph = b.graph([wide, b.step(wide, Relu())])
    assert str(sink_widening(graph)) == str(graph)


def test_a_tail_that_reads_another_value_stays() -> None:
    b = Small()
    x, other = b.input(Type((8,), INT32)), b.input(Type((8,), INT32))
    wide = b.step(x, Cast(INT8), Cast(INT32), add(other))
    graph = b.graph([b.step(wide, Relu()), b.step(wide, Cast(INT8))])
    assert str(sink_widening(graph)) == str(graph)


def test_a_narrowing_epilogue_stays_where_it_is() -> None:
    b = Small()
    y = b.conv(b.input(Type(SHAPE, INT8)), Clip(-127, 127), Cast(INT8))
    graph = b.graph([b.step(y, Cast(INT32)), b.step(y, Relu())])
    assert str(sink_widening(graph)) == str(graph)


def test_a_sum_of_integers_widens_what_it_reads_itself() -> None:
    b = Small()
    wide = b.step(b.input(Type((3, 4), INT32)), Cast(INT8), Cast(INT32))
    total = b.add(Sum((1,)), [wide])
    assert_becomes(
        sink_widening,
        b.graph([b.step(wide, Relu()), total]),
        """
        %t1: int8[3,4] = elementwise(shape=(3, 4)) [%in0] >> cast(int8)
        %t2: int32[3] = sum(axes=(1,)) [%t1]
        %t3: int32[3,4] = elementwise(shape=(3, 4)) [%t1] >> cast(int32) >> relu()
        """,
    )


def test_a_sum_takes_a_tail_that_does_more_than_widen_as_it_is() -> None:
    b = Small()
    wide = b.step(b.input(Type((3, 4), INT32)), Cast(INT8), Cast(INT32), add(b.number(5)))
    graph = b.graph([b.add(Sum((1,)), [wide])])
    assert str(sink_widening(graph)) == str(graph)


# --- fold_pads ---------------------------------------------------------------------------------

IMAGE = Type((1, 3, 4, 2), INT8)


def padded(
    b: Small, widths: Sequence[tuple[int, int]], value: int, layout: str = "NHWC", **window: Any
) -> tuple[str, str]:
    """A border of ``value`` and the 1×1 convolution, at zero point -5, that reads it."""
    pad = b.add(Pad(tuple(widths), value), [b.input(IMAGE)], (), ("pad",))
    channels = IMAGE.shape["NHWC".index("C")] if layout == "NHWC" else IMAGE.shape[1]
    weight = b.constant(np.arange(2 * channels, dtype=np.int8).reshape(2, 1, 1, channels))
    op = Conv2d(Window((1, 1), **window), 1, layout, -5)
    return pad, b.add(op, [pad, weight], (), ("conv",))


@pytest.mark.parametrize(
    ("layout", "widths"),
    [
        ("NHWC", [(0, 0), (1, 2), (3, 4), (0, 0)]),
        ("NCHW", [(0, 0), (0, 0), (1, 2), (3, 4)]),
    ],
)
def test_a_border_of_zero_points_becomes_padding_of_the_convolution(
    layout: str, widths: list[tuple[int, int]]
) -> None:
    b = Small()
    before = b.graph([padded(b, widths, -5, layout, padding=(5, 6, 7, 8))[1]])
    after = verify(fold_pads(verify(before)))
    (node,) = after.nodes
    assert isinstance(node.op, Conv2d)
    assert node.op.window.padding == (6, 9, 9, 12)
    assert node.op.zero_point == -5
    assert node.inputs[0] == before.inputs[0]
    assert node.sources == ("pad", "conv")
    assert_same_meaning(before, after)


@pytest.mark.parametrize(
    ("widths", "value", "window"),
    [
        ([(0, 0), (1, 1), (1, 1), (0, 0)], 0, {}),  # another value
        ([(1, 0), (1, 1), (1, 1), (0, 0)], -5, {}),  # of the batch
        ([(0, 0), (1, 1), (1, 1), (0, 1)], -5, {}),  # of channels
        ([(0, 0), (1, 1), (1, 1), (0, 0)], -5, {"upsample": (2, 2)}),  # in front of spread data
    ],
)
def test_any_other_border_stays(
    widths: list[tuple[int, int]], value: int, window: dict[str, Any]
) -> None:
    b = Small()
    pad = b.add(Pad(tuple(widths), value), [b.input(IMAGE)])
    channels = b.type(pad).shape[3]
    weight = b.constant(np.ones((2, 1, 1, channels), np.int8))
    op = Conv2d(Window((1, 1), **window), zero_point=-5)
    graph = verify(b.graph([b.add(op, [pad, weight])]))
    assert str(fold_pads(graph)) == str(graph)


def test_a_border_that_something_else_reads_stays() -> None:
    b = Small()
    pad, y = padded(b, [(0, 0), (1, 1), (1, 1), (0, 0)], -5)
    graph = b.graph([y, b.step(pad, Relu())])
    assert str(fold_pads(graph)) == str(graph)


# --- drop_copies -------------------------------------------------------------------------------


def test_readers_of_a_copy_read_what_was_copied() -> None:
    b = Small()
    x, y = b.input(Type((3,), INT32)), b.input(Type((3,), INT32))
    copy = b.step(b.step(x))
    assert_becomes(
        drop_copies,
        b.graph([b.step(copy, Relu()), b.step(y, add(y, add(copy)))]),
        """
        %t4: int32[3] = elementwise(shape=(3,)) [%in0] >> relu()
        %t5: int32[3] = elementwise(shape=(3,)) [%in1] >> add(%in1 >> add(%in0))
        """,
    )


def test_a_copy_that_broadcasts_or_makes_an_output_stays() -> None:
    b = Small()
    x = b.input(Type((2,), INT32))
    graph = b.graph([b.step(b.spread(x, SHAPE), Relu()), b.step(x)])
    assert str(drop_copies(graph)) == str(graph)


# --- drop_idle_steps ---------------------------------------------------------------------------


def test_steps_that_change_no_value_go_away() -> None:
    b = Small()
    x, y = b.input(Type((3,), DType.UINT8)), b.input(Type((3,), DType.UINT8))
    zero = b.constant(np.zeros((), np.int32))
    assert_becomes(
        drop_idle_steps,
        b.graph(
            [
                b.step(
                    x,
                    Cast(INT32),
                    Subtract(operand=Operand(zero)),
                    add(y, Cast(INT32), Cast(INT32), add(zero), Relu()),
                    Clip(0, 255),
                    Cast(DType.UINT8),
                    Clip(0, 255),
                )
            ]
        ),
        """
        %t3: uint8[3] = elementwise(shape=(3,)) [%in0] >> cast(int32) >> \
add(%in1 >> cast(int32) >> relu()) >> clip(0, 255) >> cast(uint8)
        """,
    )


def test_steps_that_change_a_value_or_a_float_stay() -> None:
    b = Small()
    x, f = b.input(Type((3,), INT32)), b.input(Type((3,), FLOAT32))
    row = b.constant(np.array([0, 0, 1], np.int32))
    nothing = b.constant(np.zeros((), np.float32))
    graph = b.graph(
        [
            b.step(x, add(row), Clip(0, 255), Cast(DType.UINT8), Clip(0, 254)),
            b.step(f, add(nothing), Clip(-1e30, 1e30)),
        ]
    )
    assert str(drop_idle_steps(graph)) == str(graph)


# --- make_tables -------------------------------------------------------------------------------

TO_FLOAT = (Cast(INT32), Cast(FLOAT32))
NARROWED = (Clip(-128, 127), Cast(INT8))


def table_of(function: Callable[[Any], Any], start: DType = INT8) -> tuple[int, ...]:
    low, high = start.range
    return tuple(int(function(value)) for value in range(low, high + 1))


def lookups(graph: Graph) -> list[tuple[int, ...]]:
    steps = [step for node in graph.nodes for step in node.epilogue]
    return [step.table for step in steps if isinstance(step, Lookup)]


def test_a_function_in_float_of_one_8_bit_value_becomes_a_table() -> None:
    b = Small()
    half = b.constant(np.array(0.5, np.float32))
    by_half = Multiply(operand=Operand(half))
    y = b.conv(
        b.input(Type(SHAPE, INT8)), *NARROWED, *TO_FLOAT, by_half, Round(), *NARROWED, Relu()
    )
    after = assert_becomes(
        make_tables,
        b.graph([y]),
        f"%t3: int8[1,2,2,2] = {CONV} [%in1, %c2] >> clip(-128, 127) >> cast(int8)"
        " >> lookup(256 values of int8)",
    )
    halves_away = table_of(lambda value: max(np.sign(value) * ((abs(value) + 1) // 2), 0))
    assert lookups(after) == [halves_away]


def test_a_product_of_a_value_and_a_function_of_it_becomes_a_table() -> None:
    b = Small()
    x = b.input(Type((4,), DType.UINT8))
    square = Multiply(operand=Operand(x, TO_FLOAT))
    y = b.step(x, *TO_FLOAT, square, Round(), Clip(0, 255), Cast(DType.UINT8))
    after = assert_becomes(
        make_tables,
        b.graph([y]),
        "%t1: uint8[4] = elementwise(shape=(4,)) [%in0] >> lookup(256 values of uint8)",
    )
    assert lookups(after) == [table_of(lambda v: min(v * v, 255), DType.UINT8)]


def test_a_table_takes_the_short_steps_around_it() -> None:
    b = Small()
    table = Lookup(tuple(range(127, -129, -1)), INT8)
    x = b.input(Type((4,), INT8))
    after = verify(make_tables(verify(b.graph([b.step(x, Relu(), table, Clip(-9, 9))]))))
    assert lookups(after) == [table_of(lambda v: max(-9, min(9, -1 - max(v, 0))))]


def test_an_operands_product_a_channel_makes_no_table() -> None:
    b = Small()
    each = FixedPointMultiply((2**30 + 1, 2**30 + 7), (0, -3), 0)
    x = b.input(Type((2,), INT8))
    plus = Add(operand=Operand(x, (Cast(INT32), each)))
    graph = verify(b.graph([b.step(x, Cast(INT32), plus, *NARROWED)]))
    after = verify(make_tables(graph))
    assert lookups(after) == []
    assert_same_meaning(graph, after)


def test_integer_steps_become_a_table_from_four_on() -> None:
    shorter = (Cast(INT32), LeftShift(operand=Operand("c0")), Cast(INT8))
    longer = (*shorter[:2], *NARROWED)
    for chain, tables in ((shorter, 0), (longer, 1)):
        b = Small()
        b.number(1)
        graph = b.graph([b.step(b.input(Type((4,), INT8)), *chain)])
        after = verify(make_tables(verify(graph)))
        assert len(lookups(after)) == tables
        assert_same_meaning(graph, after)


@pytest.mark.parametrize("what", ["another tensor", "a constant a channel", "int16"])
def test_what_does_not_depend_on_one_8_bit_value_alone_is_no_table(what: str) -> None:
    b = Small()
    x = b.input(Type((4,), DType.INT16 if what == "int16" else INT8))
    other = {
        "another tensor": b.input(Type((4,), FLOAT32)),
        "a constant a channel": b.constant(np.arange(4, dtype=np.float32)),
        "int16": b.constant(np.array(0.5, np.float32)),
    }[what]
    graph = b.graph([b.step(x, *TO_FLOAT, add(other), Clip(-9, 9), Cast(INT8))])
    assert str(make_tables(graph)) == str(graph)


def test_a_value_that_has_changed_is_no_longer_the_nodes_input() -> None:
    b = Small()
    x = b.input(Type((4,), INT8))
    plus = b.step(x, Relu(), Clip(0, 5), *TO_FLOAT, *NARROWED, add(x))
    graph = verify(b.graph([plus]))
    after = verify(make_tables(graph))
    assert_same_meaning(graph, after)


def test_a_fixed_point_product_a_channel_is_no_table() -> None:
    each = FixedPointMultiply((2**30 + 1, 2**30 + 7), (0, -3), 0)
    one = FixedPointMultiply((2**30 + 1,), (0,))
    for step, tables in ((each, 0), (one, 1)):
        b = Small()
        graph = b.graph([b.step(b.input(Type((2,), INT8)), Cast(INT32), step, *NARROWED)])
        after = verify(make_tables(verify(graph)))
        assert len(lookups(after)) == tables
        assert_same_meaning(graph, after)


# --- tabulate_functions ------------------------------------------------------------------------


def sigmoid_nodes(b: Small, x: str, *behind: Step, product: bool = False) -> str:
    """What builders make of dequantize, sigmoid or swish, and quantize."""
    y = b.step(x, *TO_FLOAT, Multiply(operand=Operand(b.constant(np.array(1 / 16, np.float32)))))
    z = b.step(y, Function("sigmoid"))
    z = b.step(y, Multiply(operand=Operand(z))) if product else z
    by = Multiply(operand=Operand(b.constant(np.array(16, np.float32))))
    return b.step(z, *behind, by, Round(), *NARROWED)


def functions(graph: Graph) -> list[Step]:
    steps = [step for node in graph.nodes for step in every_step(node.epilogue)]
    return [step for step in steps if isinstance(step, Function)]


@pytest.mark.parametrize("product", [False, True])
def test_a_function_of_an_operand_becomes_a_table(product: bool) -> None:
    """The second side of a sum, or a gate."""
    b = Small()
    x, y = b.input(Type((1, 4), INT8)), b.input(Type((3, 4), INT32))
    gate = sigmoid_nodes(b, x, product=product)
    graph = verify(b.graph([b.step(y, Add(operand=Operand(gate, (Cast(INT32),))))]))
    after = optimize(graph)
    (node,) = after.nodes
    assert node.inputs == (y,)
    assert "lookup(256 values of int8) >> cast(int32)" in str(after)
    assert functions(after) == []
    assert_same_meaning(graph, after)


@pytest.mark.parametrize("products", [(True, True), (False, True), (False, False)])
def test_a_function_whose_float_two_results_share_becomes_two_tables(
    products: tuple[bool, bool],
) -> None:
    """Equal nodes have become one by then; their readers quantize to different scales."""
    b = Small()
    x = b.conv(b.input(Type(SHAPE, INT8)), *NARROWED)
    found = [
        sigmoid_nodes(b, x, *behind, product=product)
        for product, behind in zip(products, ((), (Relu(), Clip(0, 0.4))), strict=True)
    ]
    graph = verify(b.graph(found))
    after = optimize(graph)
    assert functions(after) == []
    assert len(lookups(after)) == 2
    assert_same_meaning(graph, after)


def test_a_function_behind_numbers_a_channel_stays() -> None:
    b = Small()
    x = b.input(Type((4,), INT8))
    each = b.constant(np.arange(4, dtype=np.float32))
    y = b.step(b.step(x, *TO_FLOAT, add(each)), Function("tanh"), Round(), *NARROWED)
    graph = verify(b.graph([y]))
    assert str(tabulate_functions(graph)) == str(graph)


# --- The pipeline ------------------------------------------------------------------------------


def test_a_residual_fork_is_stored_once_as_int8() -> None:
    """As ``tvm.relay.quantize`` leaves it: one int32 clip, cast once for each of its users."""
    b = Small()
    x = b.input(Type(SHAPE, INT8))
    fork = b.step(b.step(b.conv(x), Relu()), Clip(-127, 127))
    main = b.conv(b.step(fork, Cast(INT8)))
    shortcut = b.step(b.step(b.step(fork, Cast(INT8)), Cast(INT32)), add(b.number(5)))
    out = b.step(b.step(b.step(shortcut, add(main)), Clip(-127, 127)), Cast(INT8))
    after = assert_becomes(
        optimize,
        b.graph([out]),
        f"""
        %t5: int8[1,2,2,2] = {CONV} [%in0, %c1] >> relu() >> clip(-127, 127) >> cast(int8)
        %t14: int8[1,2,2,2] = {CONV} [%t5, %c1] >> add(%t5 >> cast(int32) >> add(%c10))\
 >> clip(-127, 127) >> cast(int8)
        """,
    )
    assert all(after.type(node.output).dtype is INT8 for node in after.nodes)


def test_the_entry_of_a_quantized_network_becomes_one_node() -> None:
    b = Small()
    x = b.input(Type(SHAPE, FLOAT32))
    scale = b.constant(np.array(16, np.float32))
    y = b.step(x, Multiply(operand=Operand(scale)))
    y = b.step(b.step(b.step(y, Round()), Clip(-127, 127)), Cast(INT8))
    assert_becomes(
        optimize,
        b.graph([y]),
        "%t5: int8[1,2,2,2] = elementwise [%in0]"
        " >> multiply(%c1) >> round() >> clip(-127, 127) >> cast(int8)",
    )


def test_optimize_refuses_a_graph_that_breaks_a_rule() -> None:
    b = Small()
    graph = b.graph([b.step(b.input(Type((3,), INT32)), Relu())])
    with pytest.raises(GraphError, match="is read"):
        optimize(replace(graph, inputs=()))


def test_optimize_tells_a_pass_that_breaks_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(graph: Graph) -> Graph:
        return replace(graph, nodes=())

    b = Small()
    graph = b.graph([b.step(b.input(Type((3,), INT32)), Relu())])
    monkeypatch.setattr(tinyai.passes, "PIPELINE", (breaks, *PIPELINE))
    with pytest.raises(GraphError, match="output %t1 of graph g"):
        optimize(graph)


# --- make_unsigned -----------------------------------------------------------------------------


def requantized(builder: Builder, low: int = -128, zero_point: int = -5) -> tuple[Step, ...]:
    number = builder.constant(np.array(zero_point, np.int32))
    scale = FixedPointMultiply((2**30,), (-7,))
    return (scale, Add(operand=Operand(number)), Clip(low, 127), Cast(INT8))


def two_convolutions(**options: int) -> Builder:
    builder = Builder("region")
    x = builder.input(Type(SHAPE, INT8))
    weight = builder.constant(np.arange(4, dtype=np.int8).reshape(2, 1, 1, 2))
    first = builder.add(Conv2d(Window((1, 1))), [x, weight], requantized(builder, **options))
    builder.add(Conv2d(Window((1, 1)), zero_point=-5), [first, weight], requantized(builder))
    return builder


def test_an_image_between_two_convolutions_becomes_unsigned() -> None:
    before = two_convolutions().graph(["t5"])
    after = verify(make_unsigned(before))
    first, second = after.nodes
    assert after.type(first.output).dtype is DType.UINT8
    assert [step.text(str) for step in first.epilogue[-3:]] == [
        "add(number_123_)",
        "clip(0, 255)",
        "cast(uint8)",
    ]
    assert second.op == Conv2d(Window((1, 1)), zero_point=123)
    assert after.type(after.outputs[0]).dtype is INT8
    assert_same_meaning(before, after)


def test_both_branches_of_a_sum_become_unsigned() -> None:
    builder = two_convolutions()
    x, y = "t3", "t5"
    five = builder.constant(np.array(-5, np.int32))
    centred = (Cast(INT32), Subtract(operand=Operand(five)))
    chain = (*centred, Add(operand=Operand(y, centred)), *requantized(builder))
    total = builder.add(Elementwise(SHAPE), [x], chain)
    before = builder.graph([total])
    after = verify(make_unsigned(before))
    assert [after.type(node.output).dtype for node in after.nodes] == ["uint8", "uint8", "int8"]
    assert_same_meaning(before, after)


def test_an_image_that_somebody_else_reads_or_that_is_returned_stays_signed() -> None:
    builder = two_convolutions()
    before = builder.graph(["t3", "t5"])
    assert str(make_unsigned(before)) == str(before)
    builder.add(Elementwise(SHAPE), ["t3"], (Relu(),))
    before = builder.graph(["t5", "t6"])
    assert str(make_unsigned(before)) == str(before)


def test_an_image_without_a_zero_point_gets_one_that_its_readers_take_off() -> None:
    builder = Builder("region")
    x = builder.input(Type(SHAPE, INT8))
    weight = builder.constant(np.arange(4, dtype=np.int8).reshape(2, 1, 1, 2))
    seven = Operand(builder.constant(np.array(7, np.int32)))
    shift = (RightShift(operand=seven), Clip(-127, 127), Cast(INT8))
    image = builder.add(Conv2d(Window((1, 1))), [x, weight], shift)
    behind = builder.add(Conv2d(Window((1, 1))), [image, weight], shift)
    total = (Cast(INT32), Add(operand=Operand(image, (Cast(INT32),))), Clip(-127, 127), Cast(INT8))
    before = builder.graph([builder.add(Elementwise(SHAPE), [behind], total)])
    after = verify(make_unsigned(before))
    first, second, last = after.nodes
    assert [step.text(str) for step in first.epilogue[1:]] == [
        "add(number_128_)",
        "clip(1, 255)",
        "cast(uint8)",
    ]
    assert second.op == Conv2d(Window((1, 1)), zero_point=128)
    assert [after.type(node.output).dtype for node in after.nodes] == ["uint8", "uint8", "int8"]
    assert [type(step) for step in last.epilogue[:3]] == [Cast, Subtract, Add]
    assert_same_meaning(before, after)


def test_an_image_whose_larger_zero_point_could_wrap_stays_signed() -> None:
    builder = Builder("region")
    x = builder.input(Type(SHAPE, INT32))
    number = Operand(builder.constant(np.array(-5, np.int32)))
    steps = (Add(operand=number), Clip(-128, 127), Cast(INT8))
    image = builder.add(Elementwise(SHAPE), [x], steps)
    weight = builder.constant(np.arange(4, dtype=np.int8).reshape(2, 1, 1, 2))
    before = builder.graph([builder.add(Conv2d(Window((1, 1))), [image, weight])])
    assert str(make_unsigned(before)) == str(before)
