"""Channels that need not be computed go away, and no result changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.support.pass_graphs import INT8, NARROWED, Small, add, assert_same_meaning
from tests.support.planted_channels import ARITHMETICS, planted
from tests.support.random_graphs import random_inputs
from tinyai.backend import compile_graph
from tinyai.dropped import Dropped
from tinyai.ir import Array, DType, Graph, Stored, Type, verify
from tinyai.ops import (
    AdaptivePool2d,
    AvgPool2d,
    Concatenate,
    Conv2d,
    Dense,
    Elementwise,
    MaxPool2d,
    Reshape,
    Slice,
    Transpose,
)
from tinyai.ops.steps import Cast, FixedPointMultiply, Relu, RightShift
from tinyai.ops.window import Window
from tinyai.passes import drop_channels, remove_unused
from tinyai.passes.drop_channels import WIDTHS
from tinyai.reference import run_graph, run_node
from tinyai.runtime.runner import Runner
from tinyai.target import Target

EVERY = 1, 1  # widths that leave out all that can be left out
NATIVE = Target(isa="native")  # what others leave out is the same
IMAGE = Type((1, 5, 6, 3), INT8)
ONE = Window((1, 1))
PADDED = Window((3, 3), padding=(1, 1, 1, 1))


def values(graph: Graph, inputs: list[Array]) -> Mapping[str, Array]:
    found = dict(graph.constants) | dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        found[node.output] = run_node(node, found)
    return found


def assert_stores_what_its_source_has(before: Graph, after: Graph, seed: int = 1) -> None:
    """Outputs are whole, and every tensor that is left, with its channels that went, equals the
    same one of ``before``."""
    assert after.types(after.outputs) == before.types(before.outputs)
    inputs = random_inputs(before, seed)
    expected, found = values(before, inputs), values(after, inputs)
    for node in after.nodes:
        want, got = expected[node.output], found[node.output]
        stored = after.tensors[node.output].stored
        known = np.ones(want.shape[-1:], bool)
        if stored:
            got, known = stored.restored(got)
            assert known.sum() == stored.whole - stored.unread
        np.testing.assert_array_equal(got[..., known], want[..., known], str(node))


# --- Any network ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_what_is_stored_or_restored_is_the_same_in_any_network_and_arithmetic(
    arithmetic: str,
) -> None:
    total = Dropped()
    for seed in range(60):
        before = planted(seed, arithmetic)
        after = verify(drop_channels(before, EVERY))
        assert_stores_what_its_source_has(before, after, seed)
        assert remove_unused(before).macs() - after.macs() == after.dropped.macs
        total += after.dropped
    assert min(total.constant, total.equal, total.unread) > 40


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_c_without_channels_equals_the_whole_network(arithmetic: str) -> None:
    for seed in range(3):
        before = planted(1000 + seed, arithmetic)
        run = Runner(drop_channels(before, EVERY), NATIVE)
        for inputs in (random_inputs(before, n) for n in range(3)):
            for want, got in zip(run_graph(before, inputs), run(*inputs), strict=True):
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_wide_networks_drop_channels_on_the_way_to_c(arithmetic: str) -> None:
    before = next(
        graph
        for graph in (planted(seed, arithmetic, most=70, layers=7) for seed in range(9, 99))
        if compile_graph(graph, Target(isa="scalar")).graph.dropped.channels
    )
    run = Runner(before, NATIVE)
    assert "the source model has more" in run.source.text
    for inputs in (random_inputs(before, n) for n in range(3)):
        for want, got in zip(run_graph(before, inputs), run(*inputs), strict=True):
            np.testing.assert_array_equal(got, want)


# --- Each reason, each border --------------------------------------------------------------------


class Layers(Small):
    """Layers of eight channels; ``rows`` are weights by channel of the result."""

    def summed(self, x: str, op: Conv2d | Dense, rows: Any, bias: Any = 0) -> str:
        weights = np.array(rows, np.int8)
        if isinstance(op, Conv2d):
            kernel = op.window.kernel
            taps = np.broadcast_to(
                weights[:, None, None, :], (len(rows), *kernel, weights.shape[1])
            )
            weights = np.ascontiguousarray(taps)
        numbers = np.broadcast_to(np.array(bias, np.int32), (len(rows),)).copy()
        narrow = (add(self.number(numbers.tolist())), *NARROWED)
        return self.add(op, [x, self.constant(weights)], narrow)

    def conv(self, x: str, rows: Any, bias: Any = 0, window: Window = ONE, **more: Any) -> str:  # type: ignore[override]
        return self.summed(x, Conv2d(window, **more), rows, bias)


VARIED = [[1, 2, -3], [0, 0, 0], [2, -1, 1], [-1, 3, 2]]  # the second channel is its bias


def first(b: Layers, constant: int = 9) -> str:
    return b.conv(b.input(IMAGE), VARIED, [1, constant, -4, 2])


def kept(graph: Graph) -> list[str]:
    return [str(graph.tensors[node.output].stored) for node in graph.nodes]


MIX = [[3, 5, -2, 1], [1, -7, 2, 2]]


@pytest.mark.parametrize(
    ("window", "zero", "goes"),
    [
        (Window((1, 1)), 0, True),
        (Window((3, 3), strides=(2, 1), dilation=(1, 2)), 0, True),
        (Window((3, 3)), 9, True),
        (PADDED, 9, True),
        (Window((3, 2), (2, 2), padding=(0, 0, 1, 1)), 9, True),
        (Window((2, 2), padding=(1, 1, 1, 1), upsample=(2, 2)), 9, True),
        (PADDED, 0, False),
        (Window((1, 1), padding=(0, 0, 0, 1)), 8, False),
        (Window((3, 3), dilation=(2, 2), padding=(0, 1, 0, 0)), 0, False),
        (Window((2, 2), upsample=(2, 2)), 0, False),
    ],
    ids=str,
)
def test_a_constant_channel_goes_into_the_bias_unless_a_border_has_another_value(
    window: Window, zero: int, goes: bool
) -> None:
    b = Layers()
    y = b.conv(first(b), MIX, [5, 6], window, zero_point=zero)
    before = verify(b.graph([y]))
    after = verify(drop_channels(before, EVERY))
    assert kept(after)[0] == ("channels 0 2-3 of 4" if goes else "None")
    assert after.dropped.constant == goes
    assert_stores_what_its_source_has(before, after)


def test_a_bias_that_wraps_is_the_same_number() -> None:
    b = Layers()
    y = b.add(
        Conv2d(Window((1, 1))),
        [first(b, 127), b.constant(np.array(MIX, np.int8).reshape(2, 1, 1, 4))],
        (add(b.number([2**31 - 3, -(2**31)])),),
    )
    before = verify(b.graph([y]))
    after = verify(drop_channels(before, EVERY))
    assert kept(after)[0] == "channels 0 2-3 of 4"
    assert_same_meaning(before, after)


def test_a_channel_is_constant_where_its_bounds_are_one_number() -> None:
    b = Layers()
    x = b.conv(b.input(IMAGE), VARIED, [1, 9, 70000, -70000])
    after = drop_channels(verify(b.graph([b.conv(x, MIX)])), EVERY)
    stored = after.tensors[x].stored
    assert stored == Stored(4, (0,), ((1, 9), (2, 127), (3, -128)))


def test_channels_that_nobody_reads_go_and_what_they_read_goes_with_them() -> None:
    b = Layers()
    x = b.conv(b.input(IMAGE), [[1, 2, -3], [4, 4, 1], [2, -1, 1], [-1, 3, 2]])
    y = b.conv(x, [[3], [5], [7], [1]], window=PADDED, groups=4)
    before = verify(b.graph([b.conv(y, [[3, 0, -2, 1], [1, 0, 2, 2]])]))
    after = verify(drop_channels(before, EVERY))
    assert kept(after) == ["channels 0 2-3 of 4"] * 2 + ["None"]
    assert after.dropped.unread == 2
    assert_stores_what_its_source_has(before, after)


@pytest.mark.parametrize(("weight", "goes"), [(60, True), (70, False)])
def test_equal_channels_are_read_once_where_the_sum_of_weights_fits(
    weight: int, goes: bool
) -> None:
    b = Layers()
    x = b.conv(b.input(IMAGE), [[1, 2, -3], [4, 4, 1], [1, 2, -3], [-1, 3, 2]])
    x = b.conv(x, [[3], [5], [3], [1]], window=PADDED, groups=4, zero_point=7)
    y = b.conv(x, [[60, 1, weight, 4]], window=PADDED)
    before = verify(b.graph([y]))
    after = verify(drop_channels(before, EVERY))
    assert kept(after)[:2] == ["channels 0-1 3 of 4" if goes else "None"] * 2
    assert after.dropped.equal == 2 * goes
    if goes:
        assert after.tensors[x].stored == Stored(4, (0, 1, 3), equal=((2, 0),))
    assert_stores_what_its_source_has(before, after)


def test_channels_are_equal_only_if_their_epilogues_are() -> None:
    b = Layers()
    weights = b.constant(np.ones((4, 1, 1, 3), np.int8))
    chain = (
        add(b.number([5, 5, 6, 5])),
        FixedPointMultiply((2**30, 2**30, 2**30, 2**30 + 9), (-2, -2, -2, -2), 3),
        *NARROWED,
    )
    x = b.add(Conv2d(Window((1, 1))), [b.input(IMAGE), weights], chain)
    after = drop_channels(verify(b.graph([b.conv(x, MIX)])), EVERY)
    assert after.tensors[x].stored == Stored(4, (0, 2, 3), equal=((1, 0),))


def test_the_outputs_of_a_graph_stay_whole() -> None:
    b = Layers()
    x = first(b)
    before = verify(b.graph([x, b.conv(x, MIX)]))
    assert drop_channels(before, EVERY).nodes == before.nodes


def test_a_layer_whose_data_is_constant_keeps_one_channel_of_it() -> None:
    b = Layers()
    x = b.conv(b.input(IMAGE), [[0, 0, 0], [0, 0, 0]], [4, 5])
    before = verify(b.graph([b.conv(x, [[1, 2], [3, 4]], window=PADDED, zero_point=3)]))
    after = verify(drop_channels(before, EVERY))
    assert_stores_what_its_source_has(before, after)


# --- On the way ----------------------------------------------------------------------------------

THREE = [0, 2, 3]
WAYS: dict[str, Any] = {
    "relu": lambda b, x: b.step(x, Relu()),
    "max pool": lambda b, x: b.add(MaxPool2d(Window((2, 2), (2, 2))), [x]),
    "average": lambda b, x: b.add(AvgPool2d(Window((2, 2), (2, 2))), [x], NARROWED),
    "global": lambda b, x: b.add(AdaptivePool2d("avg", (1, 1)), [x], NARROWED),
    "slice": lambda b, x: b.add(Slice((0, 1, 1, 0), (1, 2, 1, 1), (1, 2, 5, 4)), [x]),
    "turned": lambda b, x: b.add(Transpose((0, 2, 1, 3)), [x]),
    "numbers": lambda b, x: b.step(x, Cast(DType.INT32), add(b.number([1, 2, 3, 4])), *NARROWED),
    "with itself": lambda b, x: b.step(x, Cast(DType.INT32), add(x, Cast(DType.INT32)), *NARROWED),
    "two rows": lambda b, x: b.add(Concatenate(1), [x, x]),
    "spread": lambda b, x: b.add(
        Elementwise((1, 5, 6, 4)),
        [b.add(AdaptivePool2d("max", (1, 1)), [x])],
        (Cast(DType.INT32), add(x, Cast(DType.INT32)), *NARROWED),
    ),
    "depthwise": lambda b, x: b.conv(
        x, [[3], [5], [3], [1]], window=Window((3, 3)), groups=4, zero_point=9
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_constant_channel_goes_out_of_all_that_keeps_channels_apart(way: str) -> None:
    b = Layers()
    x = WAYS[way](b, first(b))
    before = verify(b.graph([b.conv(x, MIX)]))
    after = verify(drop_channels(before, EVERY))
    assert set(kept(after)) == {"channels 0 2-3 of 4", "None"}
    assert str(after.tensors[x].stored) == "channels 0 2-3 of 4"
    assert_stores_what_its_source_has(before, after)


def test_a_constant_channel_goes_out_of_a_concatenation_and_its_slices() -> None:
    b = Layers()
    whole = b.add(Concatenate(3), [first(b), first(b, 100)])
    part = b.add(Slice((0, 0, 0, 3), (1, 1, 1, 1), (1, 5, 6, 3)), [whole])
    rows = b.add(
        Concatenate(1), [b.conv(whole, [[1, 2, 3, 4, 5, 6, 7, 8]]), b.conv(part, [[1, 2, 3]])]
    )
    before = verify(b.graph([rows]))
    after = verify(drop_channels(before, EVERY))
    assert str(after.tensors[whole].stored) == "channels 0 2-4 6-7 of 8"
    assert str(after.tensors[part].stored) == "channels 0-1 of 3"
    assert_stores_what_its_source_has(before, after)


def test_a_constant_channel_goes_out_of_a_flattened_image() -> None:
    b = Layers()
    flat = b.add(Reshape((1, 120)), [first(b)])
    rng = np.random.default_rng(0)
    y = b.summed(flat, Dense(3), rng.integers(-9, 9, (2, 120)))
    before = verify(b.graph([y]))
    after = verify(drop_channels(before, EVERY))
    assert after.type(flat).shape == (1, 90)
    assert after.weight_bytes() < before.weight_bytes()
    assert_stores_what_its_source_has(before, after)


@pytest.mark.parametrize(
    "mixing",
    [
        lambda b, x: b.add(Slice((0, 0, 0, 0), (1, 1, 1, 3), (1, 5, 6, 2)), [x]),
        lambda b, x: b.add(Transpose((0, 3, 1, 2)), [x]),
        lambda b, x: b.add(Reshape((1, 10, 6, 2)), [x]),
        lambda b, x: b.conv(x, [[1, 2], [3, 4]], groups=2),
    ],
)
def test_channels_stay_in_front_of_what_mixes_them(mixing: Any) -> None:
    b = Layers()
    before = verify(b.graph([mixing(b, first(b))]))
    assert drop_channels(before, EVERY).nodes == before.nodes


def test_an_input_keeps_its_channels_and_with_it_what_reads_them_one_by_one() -> None:
    b = Layers()
    x = b.conv(b.input(IMAGE), [[0], [3], [1]], [4, 0, 0], window=PADDED, groups=3)
    before = verify(b.graph([b.conv(x, [[1, 2, 3]])]))
    assert drop_channels(before, EVERY).nodes == before.nodes


# --- How many ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "live", "stay"), [(32, 31, 32), (32, 17, 32), (32, 16, 16), (64, 33, 40), (16, 1, 16)]
)
def test_channels_go_in_eights_where_a_block_of_16_is_saved(
    count: int, live: int, stay: int
) -> None:
    assert WIDTHS == (8, 16)
    rng = np.random.default_rng(0)
    b = Layers()
    rows = rng.integers(-99, 99, (count, 3))
    rows[rng.permutation(count)[live:]] = 0
    x = b.conv(b.input(IMAGE), rows, rng.integers(-128, 128, count))
    before = verify(b.graph([b.conv(x, rng.integers(-9, 9, (4, count)))]))
    after = verify(drop_channels(before))
    assert after.type(x).shape[-1] == stay
    assert after.dropped.channels == count - stay
    assert_stores_what_its_source_has(before, after)


def test_dropping_twice_changes_nothing_more_and_records_are_of_the_source() -> None:
    for seed in range(20):
        before = planted(seed, "upward", most=40)
        once = drop_channels(before)
        twice = drop_channels(once, EVERY)
        assert drop_channels(once).nodes == once.nodes
        assert_stores_what_its_source_has(before, verify(twice), seed)


def test_a_right_shift_is_looked_through() -> None:
    b = Layers()
    weights = b.constant(np.array(VARIED, np.int8).reshape(4, 1, 1, 3))
    shift = RightShift(operand=add(b.number([2, 30, 2, 2])).operand)
    chain = (add(b.number([1, 9, 2**30, 3])), shift, *NARROWED)
    x = b.add(Conv2d(Window((1, 1))), [b.input(IMAGE), weights], chain)
    after = drop_channels(verify(b.graph([b.conv(x, MIX)])), EVERY)
    assert after.tensors[x].stored == Stored(4, (0, 3), ((1, 0), (2, 127)))
