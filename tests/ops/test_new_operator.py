"""How to add an operator, by example: a file with all that tinyai has to know of a running sum.

The class, the builder and its row of ``OPERATORS`` would be a file in ``tinyai/ops``, the kernel
one in ``tinyai/codegen/kernels``. Nothing else in tinyai names the operator, and yet all passes
know what they may do with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import tvm
from tvm import relay

import tinyai
from tests.support.cases import assert_same, const, random
from tests.support.oracle import oracle
from tinyai.backend import compile_graph, prepare
from tinyai.builders import Lowering, OperatorRow
from tinyai.codegen import kernels
from tinyai.codegen.ctree import Assign, Code, Declare, For, nest
from tinyai.codegen.index import Axis
from tinyai.codegen.lowered import Kernel, Lowered, written
from tinyai.codegen.steps import Epilogue
from tinyai.frontends.relay import regions, register_operators
from tinyai.frontends.relay.source import graph_from_region
from tinyai.ir import Array, DType, Example, Graph, Node, Op, Type
from tinyai.ops import OPERATORS, Transpose
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.source import Call, require, sources
from tinyai.target import Target
from tinyai.traits import ChannelMap, Dims, Range

# --- The operator: its type rule, its meaning, its examples --------------------------------------


@dataclass(frozen=True)
class CumulativeSum(Op):
    """Element i along ``axis`` is the sum of the elements up to i. in, out: int32, which wraps."""

    name: ClassVar[str] = "cumulative_sum"
    takes_epilogue: ClassVar[bool] = True
    dims: ClassVar[Dims] = Dims.ALIGNED
    axis: int

    def infer(self, *inputs: Type) -> Type:
        (data,) = inputs
        if data.dtype is not DType.INT32 or not 0 <= self.axis < len(data.shape):
            raise ValueError(f"running sum of {data} along axis {self.axis}: int32, an axis of it")
        return data

    def reference(self, *inputs: Array) -> Array:
        return np.cumsum(inputs[0], self.axis, dtype=np.int32)

    @staticmethod
    def examples() -> Iterator[Example]:
        yield CumulativeSum(1), (Type((2, 5, 3), DType.INT32),)
        yield CumulativeSum(0), (Type((4,), DType.INT32),)

    # --- Its traits: each is a line that a pass would have to know otherwise ---------------------

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op:
        return replace(self, axis=dims.index(self.axis))

    def bound_dims(self) -> tuple[int, ...]:
        return (self.axis,)

    def channel_map(self, *inputs: Type) -> ChannelMap | None:
        (data,) = inputs
        apart = self.axis < len(data.shape) - 1
        return ChannelMap((np.arange(data.channels),)) if apart else None

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range | None:
        if self.channel_map(*types) is None:
            return None
        count = types[0].shape[self.axis]
        low, high = data[0].low, data[0].high
        return Range(np.minimum(low, low * count), np.maximum(high, high * count))


# --- Its builder: a source operator in, nodes out, or a reason why not ---------------------------


def lower_cumsum(call: Call, lowering: Lowering) -> str:
    data = lowering.type(call["data"])
    require(data.dtype is DType.INT32, "dtype of cumsum", data.dtype, "int32")
    require(not call.attrs["exclusive"], "exclusive", call.attrs["exclusive"], "false")
    axis = call.attrs["axis"]
    require(axis is not None, "axis", axis, "one axis")
    op = CumulativeSum(int(axis) % len(data.shape))
    return lowering.builder.add(op, [lowering.tensor(call["data"])], sources=sources(call))


# --- Its kernel: a row of the kernel table, and its code ----------------------------------------


def code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    op = node.op
    assert isinstance(op, CumulativeSum)
    shape, axis = graph.type(node.output).shape, op.axis
    outer, along, inner = (
        Axis("o", shape[:axis]),
        Axis("i", (shape[axis],)),
        Axis("n", shape[axis + 1 :]),
    )
    taken = f"(o * {along.count} + i) * {inner.count} + n"
    return nest(
        [outer, inner],
        Declare("uint32_t", "total", 0),
        For(
            *("i", 0, along.count),
            Assign("total", f"(uint32_t)in0[{taken}]", "+="),
            Declare("const int32_t", "acc", "(int32_t)total"),
            epilogue.write("acc", DType.INT32, (outer, along, inner)),
        ),
    )


KERNEL = Kernel(name="cumulative_sum_scalar", op=CumulativeSum, prepare=written(code))


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the two files would do by being there."""
    monkeypatch.setitem(OPERATORS, "cumsum", OperatorRow(lower_cumsum, "data", "axis exclusive"))
    monkeypatch.setattr(kernels, "KERNELS", (*kernels.KERNELS, KERNEL))
    register_operators()


# --- The whole way -------------------------------------------------------------------------------

SHAPE = (2, 3, 7, 6)


def requantized(value: relay.Expr, shift: int) -> relay.Expr:
    rounded = relay.right_shift(value + const(1 << (shift - 1)), const(shift))
    return relay.cast(relay.clip(rounded, -127, 127), "int8")


CHANNELS = 32


def convolved(value: relay.Expr, name: str, inputs: int, dead: int = 0) -> relay.Expr:
    """A convolution in NCHW, of whose results the last ``dead`` are the same for all inputs."""
    weight = random(name, (CHANNELS, inputs, 3, 3))
    weight[CHANNELS - dead :] = 0
    products = relay.nn.conv2d(
        value, const(weight, "int8"), padding=(1, 1), kernel_size=(3, 3), out_dtype="int32"
    )
    return requantized(products, 8)


def network(axis: int, dead: int = 0) -> tvm.IRModule:
    """Two convolutions with a running sum between them."""
    x = relay.var("x", shape=SHAPE, dtype="int8")
    wide = relay.cast(convolved(x, "first", 3, dead), "int32")
    summed = requantized(relay.cumsum(wide, axis=axis), 3)
    return tvm.IRModule.from_expr(relay.Function([x], convolved(summed, "second", CHANNELS)))


def graph_of(mod: tvm.IRModule) -> Graph:
    """The graph of its one region."""
    (func,) = regions(tinyai.partition_for_tinyai(mod)).values()
    return graph_from_region(func)


def data() -> Array:
    return random("data", SHAPE)


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize(
    ("axis", "isa"), [(0, "scalar"), (1, "scalar"), (2, "scalar"), (3, "scalar"), (2, "auto")]
)
def test_the_new_operator_runs_from_relay_to_c(axis: int, isa: str) -> None:
    mod = network(axis)
    (expected,) = oracle(mod, {"x": data()})
    graph = graph_of(mod)
    assert [node.op.name for node in graph.nodes].count("cumulative_sum") == 1
    (meant,) = run_graph(graph, [data()])
    assert_same(meant, expected, "the numpy reference, and TVM")
    target = Target(isa=isa)
    compiled = compile_graph(graph, target)
    assert "cumulative_sum_scalar" in compiled.source.text
    (found,) = Runner(graph, target)(data())
    assert_same(found, expected, "the compiled C, and TVM")


@pytest.mark.usefixtures("added")
def test_the_new_operator_works_in_the_order_of_its_neighbours() -> None:
    graph = prepare(graph_of(network(axis=2)), Target())
    (node,) = (node for node in graph.nodes if isinstance(node.op, CumulativeSum))
    assert node.op.axis == 1, "rows of NHWC, not of NCHW"
    assert [step.name for step in node.epilogue][-2:] == ["clip", "cast"], "requantized at once"
    turned = [node for node in graph.nodes if isinstance(node.op, Transpose)]
    assert len(turned) == 2, "at the region's ends alone"
    assert all(each.inputs[0] in graph.inputs or each.output in graph.outputs for each in turned)


@pytest.mark.usefixtures("added")
def test_the_new_operator_does_not_compute_channels_that_are_the_same_for_all_inputs() -> None:
    mod = network(axis=2, dead=16)
    graph = graph_of(mod)
    (node,) = (n for n in prepare(graph, Target()).nodes if isinstance(n.op, CumulativeSum))
    assert prepare(graph, Target()).type(node.output).channels == CHANNELS - 16
    (expected,) = oracle(mod, {"x": data()})
    assert_same(Runner(graph, Target())(data())[0], expected, "16 channels less")


@pytest.mark.usefixtures("added")
def test_what_the_new_operator_does_not_do_stays_on_the_host_with_the_reason() -> None:
    x = relay.var("x", shape=SHAPE, dtype="int8")
    summed = relay.cumsum(relay.cast(convolved(x, "first", 3), "int32"), axis=1, exclusive=True)
    mod = tvm.IRModule.from_expr(relay.Function([x], requantized(summed, 3)))
    report = str(tinyai.explain(mod))
    assert "cumsum" in report
    assert "exclusive" in report


def test_without_its_files_the_operator_stays_on_the_host() -> None:
    report = tinyai.explain(network(axis=2))
    (row,) = (row for row in report.host if row.operator == "cumsum")
    assert row.reason.clause == "operator"
