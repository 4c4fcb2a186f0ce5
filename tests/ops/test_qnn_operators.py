"""Every operator of QNN, and what stands between scales with them, equals TVM's CPU result bit for
bit: in numpy, and as compiled C."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import relay

import tinyai
from tests.support.cases import Case, const, function_of, graph_of, nchw_or_nhwc, random
from tests.support.families.qnn import (
    PORTABLE,
    SUITE,
    convolution,
    dequantize,
    number,
    padded_convolution,
    pair,
    qnn,
    quantize,
    requantize,
    table_family,
)
from tinyai.frontends.relay import partition_for_tinyai
from tinyai.frontends.relay.source import Source
from tinyai.ir import Node
from tinyai.lowering import refusal_of_composite
from tinyai.ops import Conv2d, Pad, Transpose
from tinyai.ops.steps import Function, Lookup, Prelu
from tinyai.passes import optimize
from tinyai.patterns import PATTERNS

test_reference_and_compiled_code_equal_tvm = pytest.mark.long(SUITE.test())
test_portable_c_of_16_bits_equals_tvm = pytest.mark.long(PORTABLE.test())


def dense_of_16(x: relay.Expr, zero_point: int = 0, out: str = "int64") -> relay.Expr:
    weight = relay.const(random("dense of 16", (3, 128)))
    zeros = const(zero_point), const(0)
    flat = relay.reshape(x, (1, 128))
    return qnn.dense(flat, weight, *zeros, number(0.1), number(0.2), 3, out_dtype=out)


SIXTEEN_BITS: dict[str, Callable[[relay.Expr], relay.Expr]] = {
    "qnn.conv2d": lambda x: convolution(
        x,
        random("convolution of 16", (4, 8, 1, 1)),
        "NHWC",
        "HWIO",
        kernel_size=(1, 1),
        channels=4,
        out_dtype="int64",
    ),
    "qnn.dense": dense_of_16,
    "qnn.requantize": lambda x: requantize(x, (0.1, 0), (0.2, 0), "int16"),
    "qnn.add": lambda x: qnn.add(x, x, *pair((0.1, 0)), *pair((0.2, 0)), *pair((0.3, 0))),
    "qnn.mul": lambda x: qnn.mul(x, x, *pair((0.1, 0)), *pair((0.2, 0)), *pair((0.3, 0))),
    "qnn.dequantize": lambda x: dequantize(x, (0.1, 0)),
    "qnn.concatenate": lambda x: qnn.concatenate(
        relay.Tuple([x, x]),
        relay.Tuple([number(0.1)] * 2),
        relay.Tuple([const(0)] * 2),
        *pair((0.2, 0)),
        1,
    ),
}


@pytest.mark.parametrize("operator", SIXTEEN_BITS)
@pytest.mark.parametrize(("mode", "whose"), [("tflite", "TFLite's"), ("onnx", "ONNX Runtime's")])
def test_frameworks_arithmetic_of_16_bits_is_refused(mode: str, whose: str, operator: str) -> None:
    x = relay.var("x", shape=(1, 4, 4, 8), dtype="int16")
    mod = tvm.IRModule.from_expr(relay.Function([x], SIXTEEN_BITS[operator](x)))
    (row,) = tinyai.explain(mod, rounding=mode).computing
    reason = row.reason
    assert (row.operator, reason.clause, reason.found, reason.allowed) == (
        operator,
        f"{whose} arithmetic of",
        "int16, not compared",
        "int8, uint8",
    )
    assert "upward" in row.hint
    assert not tinyai.explain(mod).host


@pytest.mark.parametrize(
    ("dtype", "zero_point", "out", "clause", "allowed"),
    [
        ("int16", 5, "int64", "zero point of the data", "0 for int16"),
        ("int8", 5, "int64", "dtype of the result", "int32"),
    ],
)
def test_sums_of_16_bits_that_are_others_than_tvms_are_refused(
    dtype: str, zero_point: int, out: str, clause: str, allowed: str
) -> None:
    """TVM takes a zero point off in the 16 bits of the data."""
    x = relay.var("x", shape=(1, 4, 4, 8), dtype=dtype)
    mod = tvm.IRModule.from_expr(relay.Function([x], dense_of_16(x, zero_point, out)))
    (row,) = tinyai.explain(mod).computing
    assert (row.operator, row.reason.clause, row.reason.allowed) == ("qnn.dense", clause, allowed)


def test_a_product_of_16_bits_that_may_overflow_is_refused() -> None:
    x = relay.var("x", shape=(4, 8), dtype="int16")
    of = *pair((0.1, -32768)), *pair((0.2, 32767)), *pair((0.3, 0))
    mod = tvm.IRModule.from_expr(relay.Function([x], qnn.mul(x, x, *of)))
    (row,) = tinyai.explain(mod).host
    assert row.reason.clause == "zero points of a product"
    assert row.reason.found == "-32768 and 32767"


@pytest.mark.parametrize(("layout", "kernel"), [("NCHW", "OIHW"), ("NHWC", "HWIO")])
@pytest.mark.parametrize(("value", "pads"), [(-5, 0), (7, 1)])
def test_a_border_of_zero_points_goes_into_the_convolution_and_another_does_not(
    layout: str, kernel: str, value: int, pads: int
) -> None:
    x = relay.var("x", shape=nchw_or_nhwc(layout, 2, 3, 7, 6), dtype="int8")
    func = relay.Function([x], padded_convolution(x, layout, kernel, value, -5))
    graph = optimize(graph_of(func, "region"))
    nodes = [node for node in graph.nodes if not isinstance(node.op, Transpose)]
    assert [type(node.op) for node in nodes] == [Pad] * pads + [Conv2d]
    window = nodes[-1].op.window
    assert window.padding == ((0, 0, 0, 0) if pads else (0, 1, 1, 2))


def test_functions_of_8_bits_become_tables_and_leave_no_float() -> None:
    cases = [case for case in table_family().cases if "int16" not in case.name]
    left = no_look_ups(cases)
    # One slope a channel: no function of the value alone.
    assert [type(step) for node in left for step in node.epilogue].count(Prelu) == len(left) == 2


def test_functions_of_16_bits_become_tables_where_they_have_no_c() -> None:
    cases = [case for case in table_family().cases if "int16" in case.name]
    left = no_look_ups(cases)
    assert 0 < len(left) < len(cases) / 2
    assert not any(isinstance(step, Function) for node in left for step in node.epilogue)


def no_look_ups(cases: Sequence[Case]) -> list[Node]:
    """The nodes of these cases that do anything but look their results up."""
    graph = optimize(graph_of(function_of(cases, for_tvm=False), "region"))
    return [
        node for node in graph.nodes if not all(isinstance(step, Lookup) for step in node.epilogue)
    ]


VALUES = relay.var("x", shape=(2, 5, 4), dtype="int8")
SUMS = relay.var("s", shape=(2, 5, 4), dtype="int32")
EACH = np.linspace(0.1, 1, 5)
BEYOND_A_TABLE: dict[str, relay.Expr] = {
    "dequantized per channel": relay.sigmoid(dequantize(VALUES, (EACH, 3), 1)),
    "of int32": relay.sigmoid(dequantize(SUMS, (0.001, 0))),
    "of two tensors": relay.multiply(
        dequantize(relay.var("y", shape=(2, 5, 4), dtype="int8"), (0.1, 3)),
        relay.sigmoid(dequantize(VALUES, (0.1, 3))),
    ),
    "behind a slope a channel": relay.tanh(
        relay.nn.prelu(dequantize(VALUES, (0.1, 3)), number(EACH), 1)
    ),
    "behind a constant a channel": relay.tanh(
        relay.add(dequantize(VALUES, (0.1, 3)), number(EACH.reshape(5, 1)))
    ),
}


@pytest.mark.parametrize("name", BEYOND_A_TABLE)
def test_a_function_that_is_no_table_stays_on_the_host(name: str) -> None:
    body = quantize(BEYOND_A_TABLE[name], (0.01, 3))
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    mod = relay.transform.InferType()(mod)
    (table,) = (row for row in PATTERNS if row.name == "table")
    refusal = refusal_of_composite(table, Source()(mod["main"].body))
    assert refusal is not None
    assert (refusal.clause, refusal.found) == ("function", "of more than one value of 8 bits")
    left = partition_for_tinyai(mod)["main"]
    seen: list[str] = []
    relay.analysis.post_order_visit(
        left, lambda e: seen.append(e.name) if isinstance(e, tvm.ir.Op) else None
    )
    assert {"sigmoid", "tanh"} & set(seen)
