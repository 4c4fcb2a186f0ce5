"""Every row of the kernel table equals the numpy reference of its operator, bit for bit, on every
example of the operator and after every kind of epilogue."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.c_checks import WARNINGS, assert_warning_free
from tests.support.example_graphs import (
    EPILOGUES,
    NETWORKS,
    Qnn,
    Site,
    branches,
    examples_graph,
    orders_as_given,
    random_array,
    random_inputs,
    step_kinds,
)
from tests.support.kernel_shapes import ALONE, assert_equal, force_kernel, serves, tiling_of
from tests.support.machines import Emulated, is_foreign, require_isa, runner
from tinyai.backend import pipeline
from tinyai.codegen import borders
from tinyai.codegen.isa.portable.scalar import VARIANT as ISA_SCALAR
from tinyai.codegen.kernels import KERNELS, Kernel, choose, choose_kernels
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.plan import Space
from tinyai.errors import DefectError, UnsupportedError
from tinyai.ir import Builder, DType, Example, Graph, Op, Operand, Step, Type, verify
from tinyai.ops import OPS, BatchMatmul, Concatenate, Conv2d, Elementwise, Reshape, Transpose
from tinyai.ops.steps import (
    STEP_KINDS,
    Add,
    Cast,
    Clip,
    Compare,
    Fill,
    FixedPointMultiply,
    Logic,
    Lookup,
    Not,
    Relu,
    RightShift,
    Subtract,
)
from tinyai.ops.window import Window
from tinyai.passes import optimize
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target

BY_NAME = {kernel.name: kernel for kernel in KERNELS}


@functools.cache
def alone(op: type[Op], number: int, epilogue: str) -> tuple[Example, Graph]:
    """An example of an operator, and the graph of it alone that kernels see."""
    example = [*op.examples()][number]
    return example, optimize(examples_graph([example], epilogue))


def served_examples(kernel: Kernel, epilogue: str) -> Iterator[Example]:
    """Those examples of the kernel's operator that it serves with the epilogue."""
    for number, _ in enumerate(kernel.op.examples()):
        example, graph = alone(kernel.op, number, epilogue)
        if graph.nodes and serves(kernel, graph, graph.nodes[-1]):
            yield example


# Epilogues of every kernel in `make test` and in `make test-long`, one of each kind. The others are
# written by the same lines for all kernels of an instruction set, which take turns in the latter;
# portable C and what is emulated, whose shapes meet others as well, have one kernel for them.
QUICK = ("nothing", "qnn", "residual")
LONG = ("broadcast", "tables")


def rows() -> list[Any]:
    """Names of kernels and epilogues that go together."""
    return [
        pytest.param(kernel.name, each, marks=_marks(number + turn, kernel, each))
        for number, kernel in enumerate(ALONE)
        for turn, each in enumerate(
            [each for each in EPILOGUES if _fits(kernel, each)] or ["nothing"]
        )
    ]


def _marks(turn: int, kernel: Kernel, epilogue: str) -> tuple[pytest.MarkDecorator, ...]:
    if epilogue in QUICK or kernel.op is Elementwise:
        return ()
    has_turn = kernel.isa != "scalar" and turn % 2 == 0
    if is_foreign(kernel.isa):
        has_turn = kernel.name.startswith("conv2d_tile_") and epilogue in ("tflite", "onnx")
    return (pytest.mark.long if has_turn or epilogue in LONG else pytest.mark.slow,)


def _fits(kernel: Kernel, epilogue: str) -> bool:
    """Whether the epilogue works on a type that the kernel's operator computes, and the kernel
    has a form for it."""
    takes = epilogue == "nothing" or kernel.op.takes_epilogue
    return takes and any(served_examples(kernel, epilogue))


def assert_runs_as_reference(graph: Graph, run: Runner | Emulated, draws: int = 2) -> None:
    for seed in range(draws):
        inputs = random_inputs(graph, seed)
        results = zip(graph.nodes, run(*inputs), run_graph(graph, inputs), strict=True)
        for node, found, expected in results:
            assert_equal(found, expected, node)


@orders_as_given()
@pytest.mark.parametrize(("name", "epilogue"), rows())
def test_kernel_equals_reference(name: str, epilogue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = BY_NAME[name]
    graph = examples_graph(served_examples(kernel, epilogue), epilogue)
    assert graph.nodes, f"no example for {name}: add one to {kernel.op.__name__}.examples"
    require_isa(kernel.isa)
    target = Target(isa=kernel.isa)
    force_kernel(monkeypatch, kernel)
    run = runner(graph, target, *WARNINGS)
    assert f"tinyai_{name}_" in run.source.text
    assert_runs_as_reference(graph, run)


def test_a_bool_is_true_whatever_byte_but_0_it_is() -> None:
    b = Builder("bytes")
    x, y, number = (b.input(Type((16,), of)) for of in (DType.BOOL, DType.BOOL, DType.INT32))
    signs = ("==", "!=", "<", "<=", ">", ">=")
    chains = [
        *((x, Compare(sign, operand=Operand(y))) for sign in signs),
        *((x, Logic(word, operand=Operand(y))) for word in ("and", "or", "xor")),
        *((x, step) for step in (Not(), Cast(DType.INT32))),
        *((number, Fill(7, when, operand=Operand(x))) for when in (True, False)),
    ]
    graph = b.graph([b.add(Elementwise((16,)), [value], (step,)) for value, step in chains])
    some = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    inputs = [np.repeat(some, 4), np.tile(some, 4), np.arange(16, dtype=np.int32)]
    plain = [np.array(each.view(np.uint8) != 0) for each in inputs[:2]]
    expected = run_graph(graph, [*plain, inputs[2]])
    for found, wanted in zip(Runner(graph, Target())(*inputs), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("to", [DType.INT8, DType.UINT8])
@pytest.mark.parametrize("start", [DType.INT8, DType.UINT8])
@pytest.mark.parametrize(
    ("core", "behind"),
    [("tinyai_lookup_avx512vnni", ()), ("tinyai_lookup_16", (Cast(DType.INT16),))],
    ids=["alone", "among steps"],
)
def test_a_table_is_looked_up_in_registers(
    start: DType, to: DType, core: str, behind: tuple[Step, ...]
) -> None:
    b = Builder("table")
    lowest, size = to.range[0], 256
    table = tuple(lowest + 101 * i % size for i in range(size))
    x = b.input(Type((size,), start))
    graph = b.graph([b.add(Elementwise((size,)), [x], (Lookup(table, to), *behind))])
    target = Target(isa="avx512vnni")
    assert f"{core}(" in pipeline.compile_graph(graph, target).source.text
    require_isa("avx512vnni")
    values = np.arange(start.range[0], start.range[1] + 1).astype(start.numpy)
    (found,) = Runner(graph, target)(values)
    assert found.tolist() == list(table)


def test_a_look_up_of_one_element_is_free_of_warnings() -> None:
    b = Builder("one")
    x = b.input(Type((1, 1), DType.INT8))
    table = Lookup(tuple(range(-128, 128)), DType.INT8)
    graph = b.graph([b.add(Elementwise((1, 1)), [x], (table,))])
    text = pipeline.compile_graph(graph, Target(isa="avx512vnni")).source.text
    assert "tinyai_lookup_avx512vnni(" in text
    assert_warning_free(text, "gcc")


def test_every_operator_has_examples_and_a_scalar_kernel() -> None:
    assert {kernel.op for kernel in KERNELS if kernel.isa == "scalar"} == set(OPS)
    for op in OPS:
        for example, types in op.examples():
            assert type(example) is op
            example.infer(*types)


def test_kernel_names_are_unique() -> None:
    assert len(BY_NAME) == len(KERNELS)


def test_epilogues_cover_every_kind_of_step() -> None:
    examples = list(Elementwise.examples())
    found = {kind for each in EPILOGUES for kind in step_kinds(examples_graph(examples, each))}
    assert found == set(STEP_KINDS) - {"function"}  # it has no C: it becomes a lookup


def test_the_first_row_without_a_complaint_is_chosen() -> None:
    graph = examples_graph(Conv2d.examples(), "nothing")
    for node in graph.nodes:
        spread = node.op.window.upsample != (1, 1)
        depthwise = (
            not spread
            and node.op.groups == graph.type(node.inputs[0]).shape[node.op.layout.index("C")]
        )
        chosen = choose(Lowered.of(graph), node, ISA_SCALAR).kernel.name
        assert chosen == ("conv2d_depthwise_scalar" if depthwise else "conv2d_patches_scalar")


def test_a_node_without_a_kernel_is_an_error_that_names_the_layer_of_the_model() -> None:
    class Unknown(Reshape):
        name = "unknown"

    builder = Builder("region")
    x = builder.input(Type((2, 3), DType.INT8))
    builder.add(Unknown((6,)), [x], sources=("head/flatten",))
    graph = builder.graph(["t1"])
    with pytest.raises(UnsupportedError, match=r"at %t1: int8\[6\] = unknown") as error:
        choose_kernels(graph, Target())
    first = error.value.what.splitlines()[0]
    assert first == "no kernel for unknown of layer 'head/flatten'"
    assert error.value.found == "no row for unknown"


def test_a_fault_while_a_layer_gets_its_code_names_the_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder = Builder("region")
    x = builder.input(Type((2, 3), DType.INT8))
    builder.add(Transpose((1, 0)), [x], sources=("turned",))

    def rejection(*_: object) -> str:
        raise KeyError("nothing here")

    rows = tuple(replace(row, prepare=rejection) for row in KERNELS)
    monkeypatch.setattr("tinyai.codegen.kernels.KERNELS", rows)
    with pytest.raises(DefectError, match="the kernel for transpose of layer 'turned'"):
        choose_kernels(builder.graph(["t1"]), Target())


def test_a_node_that_no_row_takes_is_an_error_with_each_complaint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = examples_graph(list(Conv2d.examples())[:1], "nothing")
    rows = (
        replace(BY_NAME["conv2d_patches_scalar"], prepare=lambda graph, node: "too small"),
        BY_NAME["conv2d_depthwise_scalar"],
    )
    monkeypatch.setattr("tinyai.codegen.kernels.KERNELS", rows)
    with pytest.raises(UnsupportedError) as error:
        choose_kernels(graph, Target())
    assert error.value.found == (
        "conv2d_patches_scalar: too small; "
        "conv2d_depthwise_scalar: more than one input channel a group"
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_equal_the_reference(name: str) -> None:
    graph = NETWORKS[name]()
    runner = Runner(graph)
    for seed in range(5):
        inputs = random_inputs(graph, seed)
        for found, expected in zip(runner(*inputs), run_graph(graph, inputs), strict=True):
            assert_equal(found, expected, name)


# --- In place ------------------------------------------------------------------------------------

SHAPE = (2, 4, 5, 3)


def materialized(builder: Builder, dtype: DType, shape: tuple[int, ...] = SHAPE) -> str:
    """A tensor that lives in the arena: a transposed input."""
    turned = (shape[1], shape[0], *shape[2:])
    x = builder.input(Type(turned, dtype))
    return builder.add(Transpose((1, 0, *range(2, len(shape)))), [x])


def returned(builder: Builder, tensor: str) -> Graph:
    """The graph that returns ``tensor`` transposed, so that it lives in the arena itself."""
    return builder.graph([builder.add(Transpose((3, 2, 1, 0)), [tensor])])


def in_place_value() -> Graph:
    """An elementwise node over its input."""
    builder = Builder("region")
    x, y = materialized(builder, DType.INT32), materialized(builder, DType.INT32)
    step = Subtract(operand=Operand(y))
    return returned(builder, builder.add(Elementwise(SHAPE), [x], (step, Relu())))


def in_place_operand() -> Graph:
    """A convolution over the shortcut that is added to it."""
    builder = Builder("region")
    rng = np.random.default_rng(0)
    x, shortcut = materialized(builder, DType.INT8), materialized(builder, DType.INT8)
    weight = builder.constant(rng.integers(-128, 128, (3, 3, 3, 3), np.int8))
    places = Operand(builder.constant(np.array(8, np.int32)))
    steps = (
        RightShift(operand=places),
        Add(operand=Operand(shortcut, (Cast(DType.INT32),))),
        Clip(-127, 127),
        Cast(DType.INT8),
    )
    window = Window((3, 3), padding=(1, 1, 1, 1))
    return returned(builder, builder.add(Conv2d(window), [x, weight], steps))


def in_place_depthwise_operand() -> Graph:
    """A depthwise convolution, in NCHW, over an operand of the accumulator's type."""
    builder = Builder("region")
    rng = np.random.default_rng(0)
    x, other = materialized(builder, DType.INT8), materialized(builder, DType.INT32)
    weight = builder.constant(rng.integers(-128, 128, (4, 3, 3, 1), np.int8))
    window = Window((3, 3), padding=(1, 1, 1, 1))
    op = Conv2d(window, 4, "NCHW")
    return returned(builder, builder.add(op, [x, weight], (Add(operand=Operand(other)),)))


def in_place_of_a_branch_read_twice() -> Graph:
    """The operand is the value itself: both are read before the result is written."""
    builder = Builder("region")
    x = materialized(builder, DType.INT16)
    step = Subtract(operand=Operand(x, (RightShift(operand=half(builder)),)))
    return returned(builder, builder.add(Elementwise(SHAPE), [x], (step,)))


def half(builder: Builder) -> Operand:
    return Operand(builder.constant(np.array(1, np.int16)))


@orders_as_given()
@pytest.mark.parametrize(
    "build",
    [
        in_place_value,
        in_place_operand,
        in_place_depthwise_operand,
        in_place_of_a_branch_read_twice,
    ],
)
def test_results_that_take_an_operands_place_are_right(build: object) -> None:
    graph = build()  # type: ignore[operator]
    compiled = pipeline.compile_graph(graph, Target(), abi="plain")
    last = compiled.graph.nodes[-2]
    locations = compiled.plan.locations
    assert locations[last.output].space is Space.ARENA
    assert locations[last.output] in [
        locations[name] for name in last.reads() if name not in graph.constants
    ]
    runner = Runner(graph)
    for seed in range(3):
        inputs = random_inputs(graph, seed)
        assert_equal(runner(*inputs)[0], run_graph(graph, inputs)[0], build)


@orders_as_given()
def test_a_broadcast_operand_keeps_its_place() -> None:
    builder = Builder("region")
    x, y = materialized(builder, DType.INT32), materialized(builder, DType.INT32, (1, 4, 1, 3))
    graph = returned(builder, builder.add(Elementwise(SHAPE), [y], (Add(operand=Operand(x)),)))
    compiled = pipeline.compile_graph(graph, Target(), abi="plain")
    assert compiled.plan.locations["t4"] == compiled.plan.locations["t1"]
    inputs = random_inputs(graph, 0)
    assert_equal(Runner(graph)(*inputs)[0], run_graph(graph, inputs)[0], "broadcast")


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("isa", ["scalar", "generic", "avx2", "avxvnni", "avx512vnni", "amx"])
def test_distances_that_nothing_is_apart_by_may_be_any(isa: str, groups: int) -> None:
    """A single output has no neighbour, a kernel of one row no second one: broken files say such
    numbers."""
    require_isa(isa)
    b, rng = Builder("far"), np.random.default_rng(1)
    far = 1 << 62
    op = Conv2d(Window((1, 3), strides=(far, far), dilation=(far, 1)), groups)
    weight = b.constant(random_array(rng, Type((8, 1, 3, 8 // groups), DType.INT8)))
    graph = b.graph([b.add(op, [b.input(Type((1, 4, 5, 8), DType.INT8)), weight])])
    assert_warning_free(pipeline.compile_graph(graph, Target(isa=isa)).source.text)
    assert_runs_as_reference(graph, Runner(graph, Target(isa=isa)))


@pytest.mark.parametrize(
    "isa", ["scalar", "generic", "avx2", "avxvnni", "avx512vnni", "amx", "neon", "dotprod", "i8mm"]
)
def test_products_of_matrices_of_both_signs_are_right(isa: str) -> None:
    """Those of (uint8 - 128) and int8 are not with gcc 12, where it knows the 128 and the machine
    has dot products of both."""
    require_isa(isa)
    b, one, other = Builder("signs"), DType.UINT8, DType.INT8
    outputs = []
    for number, k in enumerate((16, 18, 33, 64, 72, 100)):
        left, right = (Type((1, 3, k), one), Type((2, 4, k), other))[:: 1 if number % 2 else -1]
        op = BatchMatmul(*(128 if of.dtype is one else 0 for of in (left, right)))
        outputs.append(b.add(op, [b.input(left), b.input(right)]))
    graph = b.graph(outputs)
    assert_runs_as_reference(graph, runner(graph, Target(isa=isa)))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kernel", [(1, 2), (3, 3), (2, 7)], ids=str)
def test_outputs_of_a_row_whose_windows_overlap_share_what_they_load(
    kernel: tuple[int, int], threads: int
) -> None:
    """Rows of every length around a tile's; requantized in registers, by steps, and by both."""
    require_isa("avx512vnni")
    builder, rng = Builder("overlap"), np.random.default_rng(4)
    written = (EPILOGUES["qnn"], branches, EPILOGUES["fixed point"], EPILOGUES["nothing"])
    outputs = []
    for number, width in enumerate((7, 8, 9, 15, 16, 17, 31, 33, 40)):
        dtype = (DType.INT8, DType.UINT8)[number % 2]
        data = Type((2, 8, width, 8), dtype)
        op = Conv2d(Window(kernel, padding=(0, 0, *(k - 1 for k in kernel))), zero_point=3)
        weight = Type(((16, 13)[number % 3 > 0], *kernel, 8), DType.INT8)
        site = Site(builder, op.infer(data, weight), "NHWC", rng)
        steps = tuple(written[number % 4](site))
        inputs = [builder.input(data), builder.constant(random_array(rng, weight))]
        outputs.append(builder.add(op, inputs, steps))
    graph = verify(builder.graph(outputs))
    runner = Runner(graph, Target(isa="avx512vnni", threads=threads))
    calls = [line for line in runner.source.text.splitlines() if line.endswith("(&p);")]
    assert calls
    assert [call for call in calls if f"_overlap_{kernel[1]}x8_" not in call] == []
    assert_runs_as_reference(graph, runner)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("isa", ["generic", "avx2", "avxvnni", "avx512vnni", "amx"])
def test_neighbours_of_few_channels_are_computed_as_one_output(isa: str, threads: int) -> None:
    """As many as divide the row and fit a block; beside one another in memory, with a border or
    without one, and not where other channels lie between them."""
    require_isa(isa)
    builder = Builder("together")
    net = Qnn(builder, "NHWC", np.random.default_rng(4))
    image = builder.input(Type((2, 9, 12, 3), DType.INT8))
    outputs = []
    for few, kernel, stride in ((8, 3, 2), (5, 3, 1), (1, 1, 1), (2, 5, 2)):
        x = net.conv(image, few, kernel, "few", stride=stride)
        outputs += [net.conv(x, 20, 3, "bordered"), net.conv(x, 3, 1, "plain")]
    sides = [net.conv(image, few, 3, "side") for few in (8, 4)]
    joined = builder.add(Concatenate(3), sides)
    outputs.append(net.conv(joined, 16, 1, "behind"))
    graph = verify(builder.graph(outputs))
    target = Target(isa=isa, threads=threads)
    compiled = pipeline.compile_graph(graph, target)
    channels: dict[str, list[int]] = {}
    for node in compiled.graph.nodes:
        if isinstance(node.op, Conv2d):
            channels.setdefault(node.sources[0], []).append(tiling_of(compiled.graph, node).g.oc)
    assert channels == {
        "few": [16, 15, 12, 12],
        "bordered": [20] * 4,
        "plain": [9, 12, 12, 9],
        "side": [8, 4],
        "behind": [16],
    }
    runner = Runner(graph, target)
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        for found, expected in zip(runner(*inputs), run_graph(graph, inputs), strict=True):
            np.testing.assert_array_equal(found, expected)


SIDES = {
    "top": (1, 0, 0, 0),
    "left": (0, 1, 0, 0),
    "bottom": (0, 0, 1, 0),
    "right": (0, 0, 0, 1),
    "all": (1, 2, 1, 1),
}


@pytest.mark.parametrize("isa", ["generic", "avx2", "avxvnni", "avx512vnni", "amx"])
@pytest.mark.parametrize("epilogue", ["qnn", "relu", "branches"])
def test_a_result_lies_inside_of_a_border_on_any_of_its_sides(epilogue: str, isa: str) -> None:
    """Its reader pads it there; requantized in registers, by steps, and by both."""
    require_isa(isa)
    builder, rng = Builder("borders"), np.random.default_rng(3)
    outputs = []
    for padding in SIDES.values():
        for groups in (1, 20):
            made = bordered(builder, rng, epilogue, groups)
            window = Window((3, 4), padding=padding)
            weight = builder.constant(random_array(rng, Type((2, 3, 4, 20), DType.INT8)))
            outputs.append(builder.add(Conv2d(window, zero_point=7), [made, weight]))
    graph = verify(builder.graph(outputs))
    target = Target(isa=isa)
    compiled = pipeline.compile_graph(graph, target)
    assert len(compiled.graph.storage) > 5
    runner = Runner(graph, target)
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        for found, expected in zip(runner(*inputs), run_graph(graph, inputs), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("isa", ["generic", "avx2", "avxvnni", "avx512vnni", "amx"])
@pytest.mark.parametrize("kind", ["of both", "of the convolution", "by steps"])
def test_a_sum_reads_and_makes_images_with_a_border(
    kind: str, isa: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A residual block between convolutions that pad, its sum a layer of its own or a
    convolution's last steps."""
    require_isa(isa)
    monkeypatch.setattr(borders, "least_arena", lambda *_: 0)  # at any cost
    builder = Builder("residual")
    net = Qnn(builder, "NHWC", np.random.default_rng(6))
    outputs = []
    for channels in (16, 20):
        x = net.conv(builder.input(Type((2, 6, 7, 3), DType.INT8)), channels, 3, "first")
        y = net.conv(x, channels, 3, "second")
        total = net.residual(y, x) if kind == "by steps" else summed(net, kind, x, y)
        outputs.append(net.conv(total, 8, 3, "padded"))
        outputs.append(net.conv(total, 8, 1, "strided", stride=2))
    graph = verify(builder.graph(outputs))
    target = Target(isa=isa, threads=threads)
    compiled = pipeline.compile_graph(graph, target)
    assert len(compiled.graph.storage) == 4
    runner = Runner(graph, target)
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        for found, expected in zip(runner(*inputs), run_graph(graph, inputs), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_border_does_not_keep_a_sum_from_the_memory_of_what_it_reads() -> None:
    """The sum lies where its second image was: with a border around either it would need more."""
    builder = Builder("in_place")
    net = Qnn(builder, "NHWC", np.random.default_rng(6))
    x = net.conv(builder.input(Type((1, 30, 30, 3), DType.INT8)), 16, 3, "first")
    y = net.conv(net.conv(x, 16, 3, "second"), 16, 3, "third")
    total = summed(net, "of the convolution", x, y)
    graph = verify(builder.graph([net.conv(total, 1, 3, "last")]))
    compiled = pipeline.compile_graph(graph, Target(isa="generic"))
    first, _, added, _ = (node.output for node in compiled.graph.nodes)
    stored = [compiled.graph.stored(node.output) for node in compiled.graph.nodes]
    assert [each.border is not None for each in stored] == [False, True, False, False]
    assert compiled.plan.locations[added] == compiled.plan.locations[first]


def summed(net: Qnn, kind: str, x: str, y: str) -> str:
    """What qnn.add makes of two images: the sum as a node, which fusion leaves alone where its
    first image, ``x``, has another reader."""

    def rescaled(by: int) -> tuple[Step, ...]:
        return Cast(DType.INT32), FixedPointMultiply((by,), (0,))

    first, second = (x, y) if kind == "of both" else (y, x)
    total = Add(operand=Operand(second, rescaled(1_700_000_000)))
    chain = (*rescaled(1_300_000_000), total, Clip(-128, 127), Cast(DType.INT8))
    return net.builder.add(Elementwise(net.builder.type(x).shape), [first], chain, ("sum",))


def bordered(builder: Builder, rng: np.random.Generator, epilogue: str, groups: int) -> str:
    """A convolution of 20 channels whose result is int8 or uint8."""
    op = Conv2d(Window((2, 2)), groups, zero_point=3)
    types = Type((1, 6, 7, 20), DType.INT8), Type((20, 2, 2, 20 // groups), DType.INT8)
    site = Site(builder, op.infer(*types), "NHWC", rng)
    steps = tuple(branches(site) if epilogue == "branches" else EPILOGUES["qnn"](site))
    steps = (Relu(), *steps) if epilogue == "relu" else steps
    weight = builder.constant(random_array(rng, types[1]))
    return builder.add(op, [builder.input(types[0]), weight], steps)
