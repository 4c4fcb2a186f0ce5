"""Concatenations whose inputs are made in their places: equal to the reference, and not copied."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.c_checks import assert_warning_free, run_sanitized
from tests.support.example_graphs import Network, Qnn, orders_as_given, random_inputs
from tests.support.machines import require_isa
from tinyai.backend import Compiled, compile_graph
from tinyai.codegen import concatenate_in_place
from tinyai.codegen.isa import variants_of
from tinyai.codegen.plan import Location, Space
from tinyai.ir import Builder, DType, Graph, Operand, Type
from tinyai.ops import Concatenate, Elementwise, MaxPool2d, Reshape, Resize, Softmax, Sum, Transpose
from tinyai.ops.steps import Add, Cast, Clip, Multiply, Relu
from tinyai.ops.window import Window
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target

FREE = "/* The same memory: nothing to do. */"
IMAGE = Type((1, 7, 5, 16), DType.INT8)
HALVES = Window((3, 3), (2, 2), padding=(1, 1, 1, 1))


def fire(net: Network, x: str, squeeze: int, expand: int) -> str:
    """A module of SqueezeNet."""
    x = net.conv(x, squeeze, 1, "squeeze")
    parts = [net.conv(x, expand, size, f"expand {size}") for size in (1, 3)]
    return net.builder.add(Concatenate(3), parts)


def fire_modules(kind: type[Network] = Qnn) -> Graph:
    b = Builder("fire_modules")
    net = kind(b, "NHWC", np.random.default_rng(1))
    x = fire(net, b.input(IMAGE), 8, 24)
    x = fire(net, x, 12, 40)
    return b.graph([net.conv(x, 9, 1, "last")])


def raw_fire_modules() -> Graph:
    return fire_modules(Network)


def batches() -> Graph:
    b = Builder("batches")
    net = Qnn(b, "NHWC", np.random.default_rng(1))
    x = fire(net, b.input(Type((2, 6, 5, 8), DType.INT8)), 8, 24)
    return b.graph([net.conv(x, 8, 3, "last")])


def inception_module() -> Graph:
    """Branches that end in a convolution, a depthwise one, a pooling and a resize, and one whose
    pixels are wider than a byte."""
    b = Builder("inception_module")
    net = Qnn(b, "NHWC", np.random.default_rng(2))
    x = net.conv(b.input(IMAGE), 80, 1, "stem")
    small = b.add(MaxPool2d(HALVES), [x])
    parts = [
        net.conv(x, 20, 3, "convolution", stride=2),
        net.conv(x, 80, 3, "depthwise", groups=80, stride=2),
        b.add(MaxPool2d(HALVES), [net.conv(x, 33, 1, "point")]),
        b.add(Resize((3, 2, 1, 0), (2, 2, 0)), [small]),
        net.conv(net.conv(x, 24, 1, "point"), 24, 3, "grouped", groups=2, stride=2),
        net.conv(net.conv(x, 16, 3, "few", stride=2), 16, 3, "flat", groups=16),
    ]
    joined = b.add(Concatenate(3), parts)
    wide = b.add(Elementwise(b.type(joined).shape), [joined], (Cast(DType.INT32),))
    halves = [
        b.add(Elementwise(b.type(wide).shape), [wide], (step,)) for step in (Relu(), Clip(-9, 9))
    ]
    return b.graph([joined, b.add(Concatenate(2), halves)])


def dense_block() -> Graph:
    """What is joined is read again and joined with more."""
    b = Builder("dense_block")
    net = Qnn(b, "NHWC", np.random.default_rng(3))
    x = net.conv(b.input(IMAGE), 16, 3, "stem")
    for layer in range(3):
        narrow = net.conv(x, 12, 1, f"bottleneck {layer}")
        x = b.add(Concatenate(3), [x, net.conv(narrow, 8, 3, f"layer {layer}")])
    return b.graph([net.conv(x, 8, 1, "transition")])


def shortcut(kind: type[Network] = Qnn, batch: int = 1) -> Graph:
    """A level of a U-Net: the shortcut is read by a pooling and a sum as well, the result by a
    window that reaches over the edge."""
    b = Builder("shortcut")
    net = kind(b, "NHWC", np.random.default_rng(9))
    x = net.conv(b.input(Type((batch, 8, 6, 16), DType.INT8)), 24, 3, "down")
    y = net.conv(b.add(MaxPool2d(Window((2, 2), (2, 2))), [x]), 40, 1, "deep")
    y = b.add(Resize((0, 0, 1, 1, 2, 2, 3, 3), (0, 0, 1, 1, 2, 2)), [y])
    z = net.conv(b.add(Concatenate(3), [y, x]), 16, 3, "up")
    wide = b.add(Elementwise(b.type(x).shape), [x], (Cast(DType.INT32), Relu()))
    total = b.add(Sum((1, 2), keepdims=False), [wide])
    return b.graph([net.conv(z, 8, 1, "last"), total])


def raw_shortcut() -> Graph:
    return shortcut(Network, 2)


def nested() -> Graph:
    """Concatenations of concatenations, along one axis and along two."""
    b = Builder("nested")
    net = Qnn(b, "NHWC", np.random.default_rng(4))
    image = b.input(IMAGE)
    first, second, third, fourth, fifth = (
        net.conv(image, n, size, f"{n}") for n, size in ((8, 1), (24, 3), (32, 1), (32, 3), (32, 1))
    )
    channels = b.add(Concatenate(3), [first, second])
    rows = b.add(Concatenate(1), [channels, third])
    columns = b.add(Concatenate(1), [b.add(Concatenate(1), [fourth]), fifth])
    both = b.add(Concatenate(2), [rows, columns])
    return b.graph([net.conv(both, 8, 1, "last")])


def planes() -> Graph:
    """NCHW at batch 1: the channels of each input follow each other. Layers keep the order."""
    b = Builder("planes")
    net = Network(b, "NCHW", np.random.default_rng(5))
    image = b.input(Type((1, 8, 6, 5), DType.INT8))
    parts = [net.conv(image, 3, 1, "point"), net.conv(image, 8, 3, "depthwise", groups=8)]
    parts.append(b.add(MaxPool2d(Window((3, 3), padding=(1, 1, 1, 1)), "NCHW"), [parts[1]]))
    return b.graph([net.conv(b.add(Concatenate(1), parts), 4, 1, "last")])


def boxes() -> Graph:
    """What detectors end with: maps of several sizes as one list, after a reshape each."""
    b = Builder("boxes")
    net = Qnn(b, "NHWC", np.random.default_rng(6))
    x = net.conv(b.input(IMAGE), 16, 3, "stem")
    small = net.conv(x, 16, 3, "half", stride=2)
    flat = [
        b.add(Reshape((1, b.type(map_).elements // 4, 4)), [map_])
        for map_ in (net.conv(x, 12, 3, "head"), net.conv(small, 24, 3, "small head"))
    ]
    joined = b.add(Concatenate(1), flat)
    floats = b.add(Elementwise(b.type(joined).shape), [joined], (Cast(DType.FLOAT32),))
    return b.graph([b.add(Softmax(2), [floats])])


def mixed() -> Graph:
    """Inputs that have another place: the region's input, a constant, one of its outputs, one that
    is there already, one that a window reads, one that is added to another; and one that nobody
    else wants."""
    b = Builder("mixed")
    net = Qnn(b, "NHWC", np.random.default_rng(7))
    image = b.input(IMAGE)
    constant = b.constant(net.rng.integers(-128, 128, (1, 7, 5, 3), np.int8))
    once, twice, read, out = (
        net.conv(image, 16, 3, name) for name in ("once", "twice", "read", "out")
    )
    more = net.residual(net.conv(read, 16, 3, "more"), twice)
    joined = b.add(Concatenate(3), [image, twice, constant, once, twice, read, out, once])
    again = b.add(Concatenate(3), [twice, more])
    return b.graph([net.conv(joined, 8, 3, "last"), out, net.conv(again, 8, 1, "again")])


def outputs() -> Graph:
    """A concatenation that is an output, and one whose reshape is."""
    b = Builder("outputs")
    net = Qnn(b, "NHWC", np.random.default_rng(8))
    image = b.input(IMAGE)
    channels = b.add(Concatenate(3), [net.conv(image, n, 3, f"{n}") for n in (8, 24)])
    rows = b.add(Concatenate(1), [net.conv(image, 8, n, f"{n}") for n in (1, 3)])
    return b.graph([channels, b.add(Reshape((14, 40)), [rows])])


def stretches() -> Graph:
    """Parts that are stretches of bytes may be read by others, in other shapes, and returned."""
    b = Builder("stretches")
    given = b.input(Type((4, 6), DType.INT32))
    steps = Add(operand=net_number(b, 3)), Multiply(operand=net_number(b, 5)), Relu()
    first, second, third = (b.add(Elementwise((4, 6)), [given], (step,)) for step in steps)
    joined = b.add(Concatenate(0), [first, second, third])
    turned = b.add(Reshape((6, 4)), [second])
    later = b.add(Elementwise((4, 6)), [first], (Relu(),))
    total = b.add(Elementwise((12, 6)), [joined], (Relu(),))
    kept = b.add(Elementwise((6, 4)), [turned], (Clip(-5, 5),))
    total = b.add(Concatenate(1), [total])
    return b.graph([later, b.add(Reshape((24,)), [first]), kept, b.add(Reshape((72,)), [total])])


def turned() -> Graph:
    """Transpositions whose squares would be too narrow in their places."""
    b = Builder("turned")
    parts = [
        b.add(Transpose((0, 2, 3, 1)), [b.input(Type((1, 32, 4, columns), DType.INT8))])
        for columns in (8, 4, 20)
    ]
    joined = b.add(Concatenate(2), parts)
    return b.graph([b.add(MaxPool2d(Window((2, 2))), [joined])])


def net_number(b: Builder, value: int) -> Operand:
    return Operand(b.constant(np.array(value, np.int32)))


GRAPHS: tuple[Callable[[], Graph], ...] = (
    fire_modules,
    raw_fire_modules,
    batches,
    inception_module,
    dense_block,
    shortcut,
    raw_shortcut,
    nested,
    planes,
    boxes,
    mixed,
    outputs,
    stretches,
    turned,
)


def assert_equals_reference(graph: Graph, target: Target) -> None:
    runner = Runner(graph, target)
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        for found, expected in zip(runner(*inputs), run_graph(graph, inputs), strict=True):
            assert found.tobytes() == expected.tobytes()


@pytest.fixture
def at_any_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs are made in their places even where that makes the arena larger."""
    monkeypatch.setattr(concatenate_in_place, "least_arena", lambda graph, scratch_bytes: 2**60)


@pytest.mark.long
@orders_as_given()
@pytest.mark.parametrize("isa", ["scalar", "generic", "avx2", "avxvnni", "avx512vnni", "amx"])
@pytest.mark.parametrize("build", GRAPHS)
def test_a_graph_with_every_input_in_its_place_equals_the_reference(
    build: Callable[[], Graph], isa: str, at_any_cost: None
) -> None:
    require_isa(isa)
    assert_equals_reference(build(), Target(isa=isa))


@pytest.mark.parametrize("build", [inception_module, raw_shortcut, mixed, outputs])
def test_a_graph_on_two_threads_equals_the_reference(build: Callable[[], Graph]) -> None:
    assert_equals_reference(build(), Target(threads=2))


@pytest.mark.parametrize("build", [raw_shortcut, mixed, stretches])
def test_a_graph_compiles_without_a_warning_and_is_clean_under_the_sanitizers(
    build: Callable[[], Graph], at_any_cost: None
) -> None:
    for isa in ("auto", "scalar"):
        assert_warning_free(compiled(build(), isa).source.text)
    inputs = random_inputs(build(), 0)
    found = run_sanitized(compiled(build(), "generic"), inputs, optimize="-O0")
    for array, expected in zip(found, run_graph(build(), inputs), strict=True):
        np.testing.assert_array_equal(array, expected)


# --- What is emitted -----------------------------------------------------------------------------


def compiled(graph: Graph, isa: str = "auto") -> Compiled:
    return compile_graph(graph, Target(isa=isa), abi="plain")


def in_place(result: Compiled) -> list[str]:
    """For each concatenation a letter an input: p where it is made in its place, c where copied."""
    return [
        "".join("c" if n in left else "p" for n in range(len(node.inputs)))
        for node in result.graph.nodes
        if isinstance(node.op, Concatenate)
        for left in [result.graph.copied(node)]
    ]


def two_points(*, last: bool = True) -> Graph:
    """24 and 40 channels of 7 by 5 pixels, joined."""
    b = Builder("two_points")
    net = Qnn(b, "NHWC", np.random.default_rng(1))
    image = b.input(IMAGE)
    joined = b.add(Concatenate(3), [net.conv(image, n, 1, f"{n}") for n in (24, 40)])
    return b.graph([net.conv(joined, 8, 1, "last") if last else joined])


@pytest.mark.parametrize("isa", ["auto", "avx512vnni", "generic"])
def test_channels_are_joined_without_a_copy_and_without_memory_of_their_own(isa: str) -> None:
    result = compiled(two_points(), isa)
    assert in_place(result) == ["pp"]
    assert result.plan.arena_bytes == result.plan.lower_bound == 7 * 5 * (24 + 40)
    text = result.source.text
    assert text.count(FREE) == len(variants_of(Target(isa=isa)))
    assert "concatenate_scalar" not in text
    assert "written into its place in result 2" in text


def test_a_concatenation_that_is_an_output_is_made_there() -> None:
    result = compiled(two_points(last=False))
    first, second = (result.plan.locations[node.output] for node in result.graph.nodes[:2])
    assert (first, second) == (Location(Space.OUTPUT, 0), Location(Space.OUTPUT, 0, 24))
    assert result.plan.arena_bytes == 0
    assert "out0 + 24)" in result.source.text


def test_inputs_with_another_place_are_copied_and_the_comment_says_which_are_not(
    at_any_cost: None,
) -> None:
    result = compiled(mixed())
    assert in_place(result) == ["cccpcccc", "cp"]
    assert "in their places: inputs 3" in result.source.text


def test_a_border_around_a_concatenation_is_written_by_it(at_any_cost: None) -> None:
    result = compiled(shortcut())
    (join,) = (node for node in result.graph.nodes if isinstance(node.op, Concatenate))
    assert in_place(result) == ["pp"]
    assert result.graph.stored(join.output).border is not None
    assert "concatenate_scalar" in result.source.text


def test_the_dense_layers_of_a_block_share_one_memory() -> None:
    assert in_place(compiled(dense_block()))[1:] == ["pp", "pp"]


def test_inputs_stay_apart_where_their_places_would_make_the_arena_larger() -> None:
    """The first branch is small; the second needs much memory on its way."""
    b = Builder("apart")
    net = Qnn(b, "NHWC", np.random.default_rng(1))
    image = b.input(IMAGE)
    small = net.conv(image, 4, 1, "small")
    wide = net.conv(net.conv(image, 200, 1, "wide"), 200, 1, "as wide")
    large = net.conv(wide, 60, 1, "narrow")
    graph = b.graph([net.conv(b.add(Concatenate(3), [small, large]), 8, 1, "last")])
    result = compiled(graph)
    assert in_place(result) == ["cp"]
    assert result.plan.arena_bytes == result.plan.lower_bound == 192 + 2 * 7040
