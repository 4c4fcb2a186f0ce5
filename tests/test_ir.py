"""The graph: how it is built, printed and verified, and the rules of the elementwise steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyai.errors import GraphError
from tinyai.ir import (
    Builder,
    DType,
    Graph,
    Node,
    Operand,
    QParams,
    Step,
    Tensor,
    Type,
    broadcasts,
    format_node,
    operand_tensors,
    print_graph,
    rename_reads,
    rename_steps,
    verify,
)
from tinyai.ops import Concatenate, Conv2d, Dense, Elementwise, Reshape
from tinyai.ops.steps import (
    STEP_KINDS,
    Add,
    Cast,
    Clip,
    Compare,
    Fill,
    FixedPointMultiply,
    LeakyRelu,
    LeftShift,
    Logic,
    Multiply,
    Not,
    Relu,
    RightShift,
    Round,
    Subtract,
)
from tinyai.ops.window import Window

INT8, INT32, FLOAT32 = DType.INT8, DType.INT32, DType.FLOAT32
SETTINGS = settings(deadline=None, derandomize=True)


def layer() -> Graph:
    """A convolution with its requantization, and a sum of it with the input."""
    b = Builder("layer")
    x = b.input(Type((1, 4, 4, 2), INT8))
    weight = b.constant(np.ones((2, 1, 1, 2), np.int8))
    rounding = b.constant(np.array([64, 64], np.int32))
    shift = b.constant(np.array(7, np.int32))
    epilogue = (
        Add(operand=Operand(rounding)),
        RightShift(operand=Operand(shift)),
        Clip(-127, 127),
        Cast(INT8),
    )
    y = b.add(Conv2d(Window((1, 1))), [x, weight], epilogue, ("conv1", "relu1"))
    wide = Add(operand=Operand(x, (Cast(INT32), LeftShift(operand=Operand(shift)))))
    z = b.add(Elementwise((1, 4, 4, 2)), [y], (Cast(INT32), wide))
    return b.graph([z])


# --- Printer -----------------------------------------------------------------------------------


def test_a_graph_prints_one_line_a_tensor_and_node() -> None:
    assert str(layer()).splitlines() == [
        "graph layer {",
        "  input %in0: int8[1,4,4,2]",
        "  constant %c1: int8[2,1,1,2]",
        "  constant %c2: int32[2]",
        "  constant %c3: int32[]",
        "  %t4: int8[1,4,4,2] = conv2d(window=1x1) [%in0, %c1]"
        " >> add(%c2) >> right_shift(%c3) >> clip(-127, 127) >> cast(int8)  # conv1, relu1",
        "  %t5: int32[1,4,4,2] = elementwise(shape=(1, 4, 4, 2)) [%t4]"
        " >> cast(int32) >> add(%in0 >> cast(int32) >> left_shift(%c3))",
        "  return %t5",
        "}",
    ]
    assert str(layer()) == print_graph(layer())


def test_quantization_is_printed_behind_the_type() -> None:
    of = Type((2, 3), INT8)
    assert str(Tensor("x", of, QParams((0.5,), 3))) == ("%x: int8[2,3] <scale 0.5, zero point 3>")
    assert str(Tensor("x", of, QParams((0.5, 0.25), axis=0))) == (
        "%x: int8[2,3] <scale per-channel axis 0, zero point 0>"
    )


def test_a_node_whose_output_is_no_tensor_can_still_be_printed() -> None:
    graph = replace(layer(), tensors={})
    assert format_node(graph, graph.nodes[1]).startswith("%t5: ? = elementwise")


# --- Verifier ----------------------------------------------------------------------------------


def with_tensor(graph: Graph, name: str, **changes: object) -> Graph:
    tensor = replace(graph.tensors[name], **changes)
    return replace(graph, tensors={**graph.tensors, name: tensor})


def with_node(graph: Graph, index: int, **changes: object) -> Graph:
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return replace(graph, nodes=tuple(nodes))


def with_epilogue(graph: Graph, index: int, *steps: Step) -> Graph:
    return with_node(graph, index, epilogue=steps)


def with_order(graph: Graph, *order: int) -> Graph:
    return replace(graph, nodes=tuple(graph.nodes[n] for n in order))


# A way to break the graph, the number of the node at fault, and what the message says about it.
Broken = tuple[Callable[[Graph], Graph], int, str, str]
BROKEN_NODES: dict[str, Broken] = {
    "wrong dtype of an output": (
        lambda g: with_tensor(g, "t5", type=Type((1, 4, 4, 2), INT8)),
        1,
        "int8[1,4,4,2]",
        "int32[1,4,4,2]",
    ),
    "wrong shape of an output": (
        lambda g: with_tensor(g, "t4", type=Type((1, 4, 2, 4), INT8)),
        0,
        "int8[1,4,2,4]",
        "int8[1,4,4,2]",
    ),
    "wrong dtype of an input": (
        lambda g: with_tensor(g, "in0", type=Type((1, 4, 4, 2), INT32)),
        0,
        "products of int32 by int8",
        "tinyai/ops",
    ),
    "weights that do not fit": (
        lambda g: with_node(g, 0, op=Conv2d(Window((3, 3)))),
        0,
        "do not fit the window (3, 3)",
        "tinyai/ops",
    ),
    "one input too many": (
        lambda g: with_node(g, 1, inputs=("t4", "t4")),
        1,
        "too many values",
        "tinyai/ops",
    ),
    "use before definition": (
        lambda g: with_order(g, 1, 0),
        0,
        "not defined yet",
        "earlier outputs",
    ),
    "an operand that nobody defines": (
        lambda g: with_epilogue(g, 1, Add(operand=Operand("t9"))),
        1,
        "not defined yet",
        "earlier outputs",
    ),
    "a node that reads its own output": (
        lambda g: with_epilogue(g, 1, Cast(INT32), Add(operand=Operand("t5"))),
        1,
        "not defined yet",
        "earlier outputs",
    ),
    "a tensor defined twice": (
        lambda g: with_order(g, 0, 1, 1),
        1,
        "defined before",
        "a new name",
    ),
    "a node that writes an input": (
        lambda g: with_node(g, 0, output="in0"),
        0,
        "defined before",
        "a new name",
    ),
    "a node that writes a constant": (
        lambda g: with_node(g, 0, output="c2"),
        0,
        "defined before",
        "a new name",
    ),
    "an operand that does not broadcast": (
        lambda g: with_tensor(
            replace(g, constants={**g.constants, "c2": np.zeros(3, np.int32)}),
            "c2",
            type=Type((3,), INT32),
        ),
        0,
        "operand int32[3] does not broadcast to (1, 4, 4, 2)",
        "tinyai/ops",
    ),
    "an operand of another dtype": (
        lambda g: with_epilogue(g, 0, Add(operand=Operand("in0"))),
        0,
        "operand of add is int8, the value is int32",
        "tinyai/ops",
    ),
    "an operand whose own steps give another dtype": (
        lambda g: with_epilogue(g, 0, Add(operand=Operand("c2", (Cast(INT8),)))),
        0,
        "operand of add is int8, the value is int32",
        "tinyai/ops",
    ),
    "an operand inside of an operand that does not fit": (
        lambda g: with_epilogue(
            g, 0, Add(operand=Operand("c2", (Add(operand=Operand("c1")), Cast(INT32))))
        ),
        0,
        "does not broadcast",
        "tinyai/ops",
    ),
    "a step without the operand that it needs": (
        lambda g: with_epilogue(g, 0, Add()),
        0,
        "add has no operand",
        "tinyai/ops",
    ),
    "a step that its type does not have": (
        lambda g: with_epilogue(g, 0, Round()),
        0,
        "round of int32",
        "tinyai/ops",
    ),
}


@pytest.mark.parametrize("fault", BROKEN_NODES)
def test_a_broken_node_is_printed_with_what_was_found_and_what_is_allowed(fault: str) -> None:
    damage, index, found, allowed = BROKEN_NODES[fault]
    graph = damage(layer())
    node = graph.nodes[index]
    with pytest.raises(GraphError) as raised:
        verify(graph)
    message = str(raised.value)
    assert f"  at {format_node(graph, node)}" in message
    assert str(graph) in message
    assert found in str(raised.value.found)
    assert allowed in str(raised.value.allowed)


def test_an_epilogue_on_an_operator_that_takes_none_is_refused() -> None:
    b = Builder("g")
    b.add(Reshape((6,)), [b.input(Type((2, 3), INT8))], (Relu(),))
    graph = b.graph(["t1"])
    with pytest.raises(GraphError) as raised:
        verify(graph)
    assert format_node(graph, graph.nodes[0]) in str(raised.value)
    assert raised.value.found == "reshape"
    assert raised.value.allowed == "an operator that takes one"


BAD_QUANTIZATION = {
    "two scales for a tensor": (INT8, QParams((0.5, 0.25))),
    "no scale of a channel": (INT8, QParams((), axis=0)),
    "fewer scales than channels": (INT8, QParams((0.5,), axis=1)),
    "more scales than channels": (INT8, QParams((0.5,) * 4, axis=0)),
    "an axis that is not there": (INT8, QParams((0.5,) * 3, axis=2)),
    "a negative axis": (INT8, QParams((0.5,) * 3, axis=-1)),
    "a float tensor": (FLOAT32, QParams((0.5,))),
}


def quantized(dtype: DType, quant: QParams, where: str) -> Graph:
    """A graph with the parameters on its input, constant or output."""
    b = Builder("g")
    x, c = b.input(Type((2, 3), dtype)), b.constant(np.zeros((2, 3), dtype.numpy))
    y = b.add(Elementwise((2, 3)), [x], (Add(operand=Operand(c)),), ("add1",))
    return with_tensor(b.graph([y]), {"input": x, "constant": c, "output": y}[where], quant=quant)


@pytest.mark.parametrize("where", ["input", "constant", "output"])
@pytest.mark.parametrize("fault", BAD_QUANTIZATION)
def test_quantization_that_does_not_fit_its_tensor_is_refused(fault: str, where: str) -> None:
    dtype, quant = BAD_QUANTIZATION[fault]
    graph = quantized(dtype, quant, where)
    name = {"input": "in0", "constant": "c1", "output": "t2"}[where]
    with pytest.raises(GraphError) as raised:
        verify(graph)
    assert str(graph.tensors[name]) in str(raised.value)
    assert f"{len(quant.scale)} scale(s), axis {quant.axis}" in str(raised.value.found)
    assert "one scale or one a channel" in str(raised.value.allowed)


@pytest.mark.parametrize("where", ["input", "constant", "output"])
@pytest.mark.parametrize(
    "quant", [QParams((0.5,), -3), QParams((0.5, 1.0), axis=0), QParams((0.5,) * 3, axis=1)]
)
def test_quantization_that_fits_is_accepted(quant: QParams, where: str) -> None:
    graph = quantized(INT8, quant, where)
    assert verify(graph) is graph


def test_quantization_without_any_scale_is_refused() -> None:
    with pytest.raises(GraphError, match="quantization of %t2"):
        verify(quantized(INT8, QParams(()), "output"))


def test_a_wrong_quantization_of_a_result_prints_the_node() -> None:
    graph = quantized(INT8, QParams((0.5, 0.25)), "output")
    with pytest.raises(GraphError) as raised:
        verify(graph)
    assert format_node(graph, graph.nodes[0]) in str(raised.value)


@pytest.mark.parametrize("value", [np.zeros((3, 2), np.int8), np.zeros((2, 3), np.int16)])
def test_a_constant_that_is_not_of_its_type_is_refused(value: np.ndarray) -> None:
    graph = quantized(INT8, QParams((0.5,)), "constant")
    graph = replace(graph, constants={"c1": value})
    with pytest.raises(GraphError, match="constant %c1: int8") as raised:
        verify(graph)
    assert raised.value.found == f"{value.dtype}{list(value.shape)}"
    assert raised.value.allowed == "int8[2,3]"


@pytest.mark.parametrize("name", ["in0", "c2", "t9"])
def test_an_output_that_no_node_defines_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match=f"output %{name} of graph layer") as raised:
        verify(replace(layer(), outputs=("t5", name)))
    assert raised.value.found == "no node defines it"


def test_an_output_that_is_returned_twice_is_refused() -> None:
    with pytest.raises(GraphError, match="outputs of graph layer") as raised:
        verify(replace(layer(), outputs=("t5", "t4", "t5")))
    assert raised.value.found == "a tensor is returned twice"


def test_a_node_whose_output_has_no_type_is_refused() -> None:
    graph = layer()
    graph = replace(graph, tensors={n: t for n, t in graph.tensors.items() if n != "t5"})
    with pytest.raises(GraphError) as raised:
        verify(graph)
    assert format_node(graph, graph.nodes[1]) in str(raised.value)


def test_a_good_graph_is_returned_as_it_is() -> None:
    graph = layer()
    assert verify(graph) is graph


# --- Builder and Graph -------------------------------------------------------------------------


def test_the_builder_derives_each_type_from_the_operator_and_its_steps() -> None:
    b = Builder("g")
    x = b.input(Type((3, 4), INT8))
    y = b.add(Dense(), [x, b.constant(np.zeros((5, 4), np.int8))])
    z = b.add(Elementwise((3, 5)), [y], (Clip(-9, 9), Cast(INT8)))
    assert (b.type(y), b.type(z)) == (Type((3, 5), INT32), Type((3, 5), INT8))
    graph = verify(b.graph([z]))
    assert graph.types([x, z]) == [Type((3, 4), INT8), Type((3, 5), INT8)]
    assert graph.macs() == 60
    assert graph.weight_bytes() == 20


def test_the_builder_refuses_what_an_operator_or_step_refuses() -> None:
    b = Builder("g")
    x = b.input(Type((3, 4), INT8))
    with pytest.raises(ValueError, match=r"reshape of int8\[3,4\]"):
        b.add(Reshape((5,)), [x])
    with pytest.raises(ValueError, match="round of int8"):
        b.add(Elementwise((3, 4)), [x], (Round(),))
    assert b.nodes == []


def test_the_builder_tells_the_last_step_of_a_tensor() -> None:
    b = Builder("g")
    x = b.input(Type((2,), INT32))
    y = b.add(Elementwise((2,)), [x], (Relu(), Clip(0, 5)))
    z = b.add(Elementwise((2,)), [y])
    assert b.last_step(y) == Clip(0, 5)
    constant = b.constant(np.zeros(2, np.int8))
    assert [b.last_step(name) for name in (x, z, constant)] == [None] * 3


def test_a_constant_of_the_builder_is_dense_and_read_only() -> None:
    b = Builder("g")
    source = np.arange(6, dtype=np.int8).reshape(2, 3).T
    name = b.constant(source)
    stored = b.constants[name]
    assert stored.flags.c_contiguous
    assert stored.shape == (3, 2)
    np.testing.assert_array_equal(stored, source)
    with pytest.raises(ValueError, match="read-only"):
        stored[0, 0] = 1


def test_every_read_counts_as_a_use_and_so_does_every_output() -> None:
    b = Builder("g")
    x, c = b.input(Type((2,), INT8)), b.constant(np.zeros(2, np.int8))
    unused = b.constant(np.ones(2, np.int8))
    twice = Add(operand=Operand(x, (Add(operand=Operand(c)),)))
    y = b.add(Elementwise((2,)), [x], (twice, Add(operand=Operand(c))))
    z = b.add(Elementwise((2,)), [y])
    graph = b.graph([y, z])
    assert graph.uses == {x: 2, c: 2, unused: 0, y: 2, z: 1}


def test_a_graph_knows_who_makes_and_who_reads_each_tensor() -> None:
    b = Builder("g")
    x, c = b.input(Type((2,), INT8)), b.constant(np.zeros(2, np.int8))
    y = b.add(Elementwise((2,)), [x], (Add(operand=Operand(c, (Add(operand=Operand(x)),))),))
    z = b.add(Elementwise((2,)), [y], (Add(operand=Operand(x)),))
    graph = b.graph([z])
    first, second = graph.nodes
    assert graph.makers == {y: first, z: second}
    assert graph.readers == {x: (first, second), c: (first,), y: (second,), z: ()}
    for index in (graph.makers, graph.readers, graph.uses):
        with pytest.raises(TypeError):
            index[x] = 0  # type: ignore[index]


def test_renaming_reaches_the_operands_of_operands() -> None:
    inner = Add(operand=Operand("c"))
    node = Node(Elementwise((2,)), ("a",), "b", (Add(operand=Operand("a", (inner,))),))
    renamed = rename_reads(node, {"a": "x", "b": "y", "c": "z"}.__getitem__)
    assert (renamed.reads(), renamed.output) == (("x", "z"), "b")


def test_a_constant_operand_is_one_without_steps_of_its_own() -> None:
    b = Builder("g")
    x, one = b.input(Type((2,), INT8)), b.constant(np.full((1, 1), 7, np.int8))
    two = b.constant(np.zeros(2, np.int8))
    graph = b.graph([b.add(Elementwise((2,)), [x])])
    for operand, constant, number in (
        (Operand(one), True, True),
        (Operand(two), True, False),
        (Operand(one, (Add(operand=Operand(one)),)), False, False),
        (Operand(x), False, False),
        (None, False, False),
    ):
        step = Add(operand=operand)
        assert (graph.constant_operand(step) is not None) is constant
        assert (graph.number_operand(step) is not None) is number
    assert graph.constant_operand(None) is None


def test_a_node_reads_inputs_first_then_operands_each_once() -> None:
    inner = (Add(operand=Operand("c")), Multiply(operand=Operand("a")))
    node = Node(Elementwise((2,)), ("a",), "out", (Add(operand=Operand("b", inner)), Relu()))
    assert node.reads() == ("a", "b", "c")
    assert list(operand_tensors(node.epilogue)) == ["b", "c", "a"]


def test_renaming_reaches_operands_of_operands_and_nothing_else() -> None:
    steps = (Relu(), Add(operand=Operand("a", (Subtract(operand=Operand("b")), Cast(INT8)))))
    renamed = rename_steps(steps, str.upper)
    assert renamed == (
        Relu(),
        Add(operand=Operand("A", (Subtract(operand=Operand("B")), Cast(INT8)))),
    )
    assert list(operand_tensors(steps)) == ["a", "b"]


def test_a_graph_cannot_be_changed() -> None:
    graph = layer()
    with pytest.raises(FrozenInstanceError):
        graph.outputs = ()  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        graph.nodes[0].output = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        graph.tensors["x"] = graph.tensors["in0"]  # type: ignore[index]
    with pytest.raises(TypeError):
        graph.constants["x"] = np.zeros(1)  # type: ignore[index]
    with pytest.raises(ValueError, match="read-only"):
        graph.constants["c2"][0] = 1


def test_a_graph_does_not_change_with_the_dictionaries_that_it_was_made_of() -> None:
    tensors, constants = dict(layer().tensors), dict(layer().constants)
    graph = replace(layer(), tensors=tensors, constants=constants)
    tensors.clear()
    constants.clear()
    assert str(graph) == str(layer())


# --- Broadcasting ------------------------------------------------------------------------------

SHAPES = st.lists(st.integers(1, 3), max_size=4).map(tuple)


@SETTINGS
@given(SHAPES, SHAPES)
def test_broadcasts_agrees_with_numpy(shape: tuple[int, ...], to: tuple[int, ...]) -> None:
    try:
        numpy_does = np.broadcast_shapes(shape, to) == to
    except ValueError:
        numpy_does = False
    assert broadcasts(shape, to) == numpy_does


# --- Steps -------------------------------------------------------------------------------------

OPERAND = Operand("c")
WRONG_STEPS = [
    (Add(), INT32, "add has no operand"),
    (RightShift(), INT32, "right_shift has no operand"),
    (RightShift(operand=OPERAND), FLOAT32, "right_shift of float32: integers only"),
    (LeftShift(operand=OPERAND), FLOAT32, "left_shift of float32: integers only"),
    (Clip(-128, 128), INT8, "clip bound 128 is no int8"),
    (Clip(-129, 0), INT8, "clip bound -129 is no int8"),
    (Clip(-1, 5), DType.UINT8, "clip bound -1 is no uint8"),
    (Clip(0, 1.5), INT32, "clip bound 1.5 is no int32"),
    (Round(), INT32, "round of int32: float32 only"),
    (FixedPointMultiply((2**30,), (1,)), INT8, "fixed_point_multiply of int8"),
    (FixedPointMultiply((2**30,), (1,)), FLOAT32, "fixed_point_multiply of float32"),
    (FixedPointMultiply((2**31,), (1,)), INT32, "out of range"),
    (FixedPointMultiply((-(2**31) - 1,), (1,)), INT32, "out of range"),
    (FixedPointMultiply((1,), (31,)), INT32, "out of range"),
    (FixedPointMultiply((1,), (-32,)), INT32, "out of range"),
    (Add(operand=OPERAND), DType.BOOL, "add of bool: numbers only"),
    (LeakyRelu(0.5), DType.BOOL, "leaky_relu of bool: numbers only"),
    (Logic("and", operand=OPERAND), INT8, "logic of int8: bool only"),
    (Not(), INT8, "not of int8: bool only"),
    (Compare("<"), INT8, "compare has no operand"),
    (Fill(128, operand=OPERAND), INT8, "128 is no int8"),
    (Fill(0.5, operand=OPERAND), INT32, "0.5 is no int32"),
]


@pytest.mark.parametrize(("step", "dtype", "reason"), WRONG_STEPS)
def test_a_step_says_why_it_is_not_defined_on_a_type(step: Step, dtype: DType, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        step.result(dtype)


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype is not DType.BOOL])
def test_a_step_keeps_the_type_and_a_cast_changes_it(dtype: DType) -> None:
    assert Cast(INT8).result(dtype) is INT8
    for step in (Add(operand=OPERAND), Relu(), LeakyRelu(0.5), Clip(0, 100)):
        assert step.result(dtype) is dtype


def test_every_kind_of_step_is_known_by_its_name() -> None:
    assert all(kind.name == name for name, kind in STEP_KINDS.items())
    assert {"add", "subtract_from", "right_shift", "clip", "cast"} <= set(STEP_KINDS)


def test_fixed_point_multiplication_shifts_left_before_the_product_and_right_after_it() -> None:
    step = FixedPointMultiply((1, 1), (3, -3), axis=0)
    assert (step.left, step.right) == ((3, 0), (31, 34))
    half = FixedPointMultiply((2**30,), (0,))
    values = np.array([3, -3, 5, 2**31 - 1], np.int32)
    np.testing.assert_array_equal(half.reference(values, None), [2, -1, 3, 2**30])


def test_types_know_their_size_and_range() -> None:
    of = Type((2, 3), DType.INT16)
    assert (of.elements, of.bytes, str(of)) == (6, 12, "int16[2,3]")
    assert (Type((), INT32).elements, str(Type((), INT32))) == (1, "int32[]")
    assert DType.UINT8.range == (0, 255)
    assert INT8.range == (-128, 127)
    assert DType.INT64.bytes == 8
    assert FLOAT32.is_float
    assert not INT32.is_float


@pytest.mark.parametrize("other", [(2,), (2, 3, 1), (4, 3)])
def test_concatenate_says_which_shapes_do_not_fit(other: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"int8\[2,3\] and int8.* along axis 1"):
        Concatenate(1).infer(Type((2, 3), INT8), Type(other, INT8))
