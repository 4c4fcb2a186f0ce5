"""The pattern language on source expressions written by hand, and the reasons of the checks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyai.frontends.relay.spelling import UNSPELLED, read, supported
from tinyai.ir import Array
from tinyai.lowering import refusal_of_composite, refusal_of_operator
from tinyai.match import (
    COMMUTATIVE,
    AnyConstant,
    Anything,
    AnyTuple,
    Chain,
    OneOf,
    Operator,
    match,
    narrowed,
    op,
)
from tinyai.ops import functions
from tinyai.patterns import (
    LONGEST_CHAIN,
    PATTERNS,
    PatternRow,
    chain,
    pattern_rows,
)
from tinyai.source import Call, Constant, Expr, Refusal, Rounding, SourceType, Tuple

OPERATORS = supported()
ANY, CONSTANT = Anything(), AnyConstant()


def of(text: str) -> SourceType:
    """``int8[1,?]`` as a type."""
    dtype, dims = re.fullmatch(r"(\w+)\[(.*)\]", text).groups()  # type: ignore[union-attr]
    shape = tuple(None if dim == "?" else int(dim) for dim in dims.split(",") if dim)
    return SourceType(shape, dtype)


def var(text: str = "int32[2]") -> Expr:
    return Expr((of(text),))


def const(value: Any, dtype: str = "int32") -> Constant:
    array: Array = np.array(value, dtype)
    return Constant((SourceType(array.shape, dtype),), load=lambda: array)


def call(name: str, *args: Expr, to: str = "int32[2]", **attrs: Any) -> Call:
    """A call of Relay's, as its front end reads it."""
    return read(name, (of(to),), lambda: attrs, lambda: args)


def relu(x: Expr) -> Call:
    return call("nn.relu", x)


# --- Matching ----------------------------------------------------------------------------------


def test_the_leaves_match_what_they_name_and_cover_nothing() -> None:
    pair = Tuple((of("int8[2]"),) * 2, load=lambda: (var(), var()))
    found = {
        kind: [match(pattern, expr) is not None for expr in (var(), const(1), pair, relu(var()))]
        for kind, pattern in (("any", ANY), ("constant", CONSTANT), ("tuple", AnyTuple()))
    }
    assert found == {
        "any": [True, True, True, True],
        "constant": [False, True, False, False],
        "tuple": [False, False, True, False],
    }
    assert match(ANY, relu(var())) == ()


def test_an_operator_matches_by_name_number_of_arguments_and_arguments() -> None:
    pattern = op("relu", op("clip", ANY))
    inner = call("clip", var())
    outer = relu(inner)
    assert match(pattern, outer) == (inner, outer)
    assert match(pattern, relu(relu(var()))) is None
    assert match(pattern, inner) is None
    assert match(pattern, var()) is None
    assert match(op("relu", ANY, ANY), outer) is None
    assert match(op("relu"), outer) is None


def test_arguments_come_before_their_users_and_each_once() -> None:
    shared = call("clip", var())
    left, right = relu(shared), call("cast", shared)
    root = call("subtract", left, right)
    pattern = op("subtract", op("relu", op("clip", ANY)), op("cast", op("clip", ANY)))
    assert match(pattern, root) == (shared, left, right, root)


def test_attributes_have_to_be_equal_and_those_not_named_are_free() -> None:
    node = call("cast", var(), dtype="float32", other=1)
    assert match(op("cast", ANY, dtype="float32"), node) == (node,)
    assert match(op("cast", ANY), node) == (node,)
    assert match(op("cast", ANY, dtype="int8"), node) is None
    assert match(op("cast", ANY, missing=None), node) == (node,)
    assert match(op("cast", ANY, missing=0), node) is None


@pytest.mark.parametrize("name", sorted(COMMUTATIVE))
def test_a_commutative_operator_matches_in_both_orders(name: str) -> None:
    pattern = op(name, op("relu", ANY), CONSTANT)
    inner = relu(var())
    for args in ((inner, const(1)), (const(1), inner)):
        root = call(name, *args)
        assert match(pattern, root) == (inner, root)


@pytest.mark.parametrize("name", ["subtract", "right_shift", "maximum"])
def test_any_other_operator_matches_in_its_order_only(name: str) -> None:
    pattern = op(name, ANY, CONSTANT)
    assert match(pattern, call(name, var(), const(1))) is not None
    assert match(pattern, call(name, const(1), var())) is None


def test_the_first_option_that_matches_wins() -> None:
    inner = call("clip", var())
    root = relu(inner)
    deep, flat = op("relu", op("clip", ANY)), op("relu", ANY)
    assert match(OneOf((deep, flat)), root) == (inner, root)
    assert match(OneOf((flat, deep)), root) == (root,)
    assert match(OneOf((ANY, deep)), root) == ()
    assert match(OneOf((deep, CONSTANT)), relu(var())) is None
    assert match(OneOf(()), root) is None


def test_an_option_that_fails_halfway_leaves_no_trace() -> None:
    first = relu(var())
    root = call("subtract", first, var())
    half = op("subtract", op("relu", ANY), op("clip", ANY))
    assert match(OneOf((half, op("subtract", ANY, ANY))), root) == (root,)


def test_an_order_that_fails_halfway_leaves_no_trace() -> None:
    inner = call("clip", var())
    clipped, plain = relu(inner), relu(var())
    pattern = op("add", op("relu", ANY), op("relu", op("clip", ANY)))
    root = call("add", clipped, plain)
    assert match(pattern, root) == (inner, clipped, plain, root)
    # The first order matches the relu, then meets a constant where it needs a clip.
    root = call("add", relu(var()), const(1))
    pattern = OneOf((op("add", op("relu", ANY), op("clip", ANY)), op("add", ANY, CONSTANT)))
    assert match(pattern, root) == (root,)


STEPS = tuple(lambda below, name=name: op(name, below) for name in ("relu", "clip", "cast"))


def test_a_chain_takes_all_of_its_steps() -> None:
    conv = call("nn.conv2d", var())
    first = relu(conv)
    second = call("clip", first)
    third = relu(second)
    assert match(Chain(op("conv2d", ANY), STEPS, 5), third) == (conv, first, second, third)
    assert match(Chain(op("conv2d", ANY), STEPS, 5), conv) == (conv,)


def test_a_chain_on_anything_takes_as_many_steps_as_it_may() -> None:
    x: Expr = call("nn.dense", var())
    steps = [x := relu(x) for _ in range(5)]
    for most in range(7):
        assert match(Chain(ANY, STEPS, most), x) == tuple(steps[max(0, 5 - most) :])


def test_a_chain_that_is_too_long_for_its_base_does_not_match() -> None:
    x: Expr = call("nn.conv2d", var())
    for _ in range(4):
        x = relu(x)
    assert match(Chain(op("conv2d", ANY), STEPS, 4), x) is not None
    assert match(Chain(op("conv2d", ANY), STEPS, 3), x) is None


def test_a_chain_stops_where_a_step_is_missing() -> None:
    conv = call("nn.conv2d", var())
    last = relu(call("round", conv))
    assert match(Chain(op("conv2d", ANY), STEPS, 5), last) is None
    assert match(Chain(ANY, STEPS, 5), last) == (last,)


DTYPES = ("int8", "int32", "float32")
EXPRESSIONS = st.recursive(
    st.builds(var) | st.builds(const, st.integers(0, 3)),
    lambda below: st.one_of(
        st.builds(call, st.sampled_from(("nn.relu", "clip", "nn.conv2d")), below),
        st.builds(call, st.sampled_from(("add", "subtract")), below, below),
        st.builds(lambda x, dtype: call("cast", x, dtype=dtype), below, st.sampled_from(DTYPES)),
    ),
    max_leaves=6,
)


@settings(deadline=None, derandomize=True)
@given(EXPRESSIONS, st.integers(0, 4))
def test_a_chain_matches_what_its_unrolled_form_matches(expr: Expr, most: int) -> None:
    steps = (*STEPS, lambda below: op("add", below, CONSTANT))
    for base in (ANY, op("conv2d", ANY), op("add", ANY, ANY)):
        repeated = Chain(base, steps, most)
        assert match(repeated, expr) == match(repeated.unroll(), expr)


def calls_below(expr: Expr) -> list[Call]:
    if not isinstance(expr, Call):
        return []
    return [expr, *(inner for arg in expr.args for inner in calls_below(arg))]


@settings(deadline=None, derandomize=True)
@given(EXPRESSIONS)
def test_a_narrowed_pattern_matches_the_same(expr: Expr) -> None:
    """Patterns without what the expression has no operators for, each at every call."""
    calls = calls_below(expr)

    def occurs(pattern: Operator) -> bool:
        same = (call for call in calls if call.op == pattern.op)
        return any(pattern.attrs.items() <= call.attrs.items() for call in same)

    casts = (lambda below, dtype=dtype: op("cast", below, dtype=dtype) for dtype in DTYPES[:2])
    sums = (lambda below: op("add", below, CONSTANT), lambda below: op("add", CONSTANT, below))
    steps = (*STEPS[:2], *sums, *casts)
    for base in (ANY, op("conv2d", ANY), op("add", Chain(ANY, steps, 2), ANY)):
        pattern = OneOf((op("subtract", ANY, Chain(base, steps, 3)), Chain(base, steps, 3)))
        less = narrowed(pattern, occurs)
        for call in calls:
            assert (less and match(less, call)) == match(pattern, call)


def test_a_narrowed_pattern_is_none_where_it_cannot_match() -> None:
    def only(*names: str) -> Callable[[Operator], bool]:
        return lambda pattern: pattern.op in names

    pattern = Chain(OneOf((op("dense", ANY), op("conv2d", op("pad", ANY)))), STEPS, 3)
    assert narrowed(pattern, only("conv2d", "clip")) is None
    assert narrowed(pattern, only("conv2d", "pad", "clip")) == Chain(
        OneOf((op("conv2d", op("pad", ANY)),)), STEPS[1:2], 3
    )


def test_a_thing_that_is_no_pattern_is_an_error() -> None:
    with pytest.raises(TypeError, match="no pattern: 5"):
        match(5, var())  # type: ignore[arg-type]


# --- Examples of every row ---------------------------------------------------------------------

CONV = {
    "data_layout": "NHWC",
    "kernel_layout": "HWIO",
    "out_layout": "",
    "groups": 1,
    "strides": (1, 1),
    "padding": (1, 1, 1, 1),
    "dilation": (1, 1),
}
POOL = {
    "layout": "NHWC",
    "out_layout": "",
    "pool_size": (2, 2),
    "strides": (2, 2),
    "padding": (0, 0, 0, 0),
    "dilation": (1, 1),
    "ceil_mode": False,
    "count_include_pad": False,
}
INT8_IMAGE, INT32_IMAGE = "int8[1,4,4,2]", "int32[1,4,4,2]"
WEIGHTS = np.ones((3, 3, 2, 5), np.int8)


def conv2d(data: Expr | None = None, weight: Expr | None = None, **attrs: Any) -> Call:
    args = data or var(INT8_IMAGE), weight or const(WEIGHTS, "int8")
    return call("nn.conv2d", *args, to="int32[1,4,4,5]", **{**CONV, **attrs})


def dense() -> Call:
    weights = const(np.ones((4, 3), np.int8), "int8")
    return call("nn.dense", var("int8[2,3]"), weights, to="int32[2,4]")


def adaptive(name: str, size: str, **attrs: Any) -> Call:
    return call(name, var(INT32_IMAGE), to=size, layout="NHWC", out_layout="", **attrs)


def concatenate(*parts: Expr, to: str = "int8[2,5]") -> Call:
    types = tuple(part.type for part in parts)
    return call("concatenate", Tuple(types, load=lambda: parts), to=to, axis=-1)


SCALE = (const(0.25, "float32"), const(3))


def accumulator(name: str) -> Call:
    """qnn.conv2d, its transposed form or qnn.dense, with zero points."""
    zeros_and_scales = (const(5), const(0), const(0.5, "float32"), const(0.25, "float32"))
    if name == "qnn.batch_matmul":
        other = var("int8[1,4,3]")
        return call(name, var("uint8[2,2,3]"), other, *zeros_and_scales, to="int32[2,2,4]")
    if name == "qnn.dense":
        weights = const(np.ones((4, 3), np.int8), "int8")
        return call(name, var("uint8[2,3]"), weights, *zeros_and_scales, to="int32[2,4]")
    attrs = {**CONV, "output_padding": (0, 0)}
    if name == "qnn.conv2d_transpose":
        attrs["kernel_layout"] = "HWIO"
    weights = const(WEIGHTS, "int8")
    return call(name, var(INT8_IMAGE), weights, *zeros_and_scales, to="int32[1,4,4,5]", **attrs)


def requantize(data: Expr, to: str = "int8[1,4,4,2]") -> Call:
    says_nothing = {"rounding": "None", "compute_dtype": "None", "axis": -1}
    return call("qnn.requantize", data, *SCALE, *SCALE, to=to, **says_nothing)


def qnn_concatenate(*parts: Expr) -> Call:
    scales, zero_points = zip(*(SCALE for _ in parts), strict=True)
    tuples = [
        Tuple(tuple(e.type for e in each), load=lambda each=each: each)
        for each in (parts, scales, zero_points)
    ]
    return call("qnn.concatenate", *tuples, *SCALE, to="int8[2,5]", axis=-1)


def stack(*parts: Expr) -> Call:
    types = tuple(part.type for part in parts)
    return call("stack", Tuple(types, load=lambda: parts), to="int8[2,2,3]", axis=0)


RESIZE = {
    "layout": "NHWC",
    "method": "nearest_neighbor",
    "coordinate_transformation_mode": "half_pixel",
    "rounding_method": "",
}
ROWS = const([[1, 2]])
FUNCTIONS = [name for name in functions.FUNCTIONS if name not in UNSPELLED]
EXAMPLES: dict[str, Call] = {
    "nn.conv2d": conv2d(),
    "nn.dense": dense(),
    **{
        name: accumulator(name)
        for name in ("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense", "qnn.batch_matmul")
    },
    "qnn.requantize": requantize(var(INT32_IMAGE)),
    "qnn.quantize": call(
        "qnn.quantize", var("float32[2]"), *SCALE, to="int8[2]", out_dtype="int8", axis=-1
    ),
    "qnn.dequantize": call("qnn.dequantize", var("int8[2]"), *SCALE, to="float32[2]", axis=-1),
    **{
        name: call(name, var("int8[2]"), var("int8[2]"), *SCALE * 3, to="int8[2]")
        for name in ("qnn.add", "qnn.subtract", "qnn.mul")
    },
    "qnn.concatenate": qnn_concatenate(var("int8[2,3]"), var("int8[2,2]")),
    "sum": call("sum", var("int32[2,3]"), to="int32[2]", axis=(1,), keepdims=False, exclude=False),
    "mean": call(
        "mean", var("int32[2,3]"), to="int32[2,1]", axis=(1,), keepdims=True, exclude=False
    ),
    **{
        name: call(name, var("int8[2,3]"), to="int8[2]", axis=(1,), keepdims=False, exclude=False)
        for name in ("max", "min")
    },
    **{
        name: call(
            *(name, var("int8[2,3]")),
            to="int32[2]",
            axis=(1,),
            keepdims=False,
            exclude=False,
            select_last_index=False,
        )
        for name in ("argmax", "argmin")
    },
    **{
        name: call(name, var("float32[2,3]"), to="float32[2,3]", axis=-1)
        for name in ("nn.softmax", "nn.log_softmax")
    },
    "nn.prelu": call(
        "nn.prelu",
        var("float32[2,3]"),
        const([0.1, 0.2, 0.3], "float32"),
        to="float32[2,3]",
        axis=1,
    ),
    "divide": call("divide", var("float32[2]"), const(3.0, "float32"), to="float32[2]"),
    **{name: call(name, var("float32[2]"), to="float32[2]") for name in FUNCTIONS},
    "nn.max_pool2d": call("nn.max_pool2d", var(INT8_IMAGE), to="int8[1,2,2,2]", **POOL),
    "nn.avg_pool2d": call("nn.avg_pool2d", var(INT32_IMAGE), to="int32[1,2,2,2]", **POOL),
    "nn.global_max_pool2d": adaptive("nn.global_max_pool2d", "int32[1,1,1,2]"),
    "nn.global_avg_pool2d": adaptive("nn.global_avg_pool2d", "int32[1,1,1,2]"),
    "nn.adaptive_max_pool2d": adaptive(
        "nn.adaptive_max_pool2d", "int32[1,3,2,2]", output_size=(3, 2)
    ),
    "nn.adaptive_avg_pool2d": adaptive(
        "nn.adaptive_avg_pool2d", "int32[1,2,2,2]", output_size=(2,)
    ),
    **{
        name: call(name, var("int32[3,2]"), ROWS, to="int32[3,2]")
        for name in ("add", "subtract", "multiply", "maximum", "minimum")
    },
    **{
        name: call(name, var("int32[3,2]"), ROWS, to="bool[3,2]")
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    },
    **{
        name: call(name, var("bool[3,2]"), var("bool[2]"), to="bool[3,2]")
        for name in ("logical_and", "logical_or", "logical_xor")
    },
    "logical_not": call("logical_not", var("bool[3,2]"), to="bool[3,2]"),
    "where": call("where", var("bool[3,2]"), var("int32[3,2]"), const(7), to="int32[3,2]"),
    **{name: call(name, var(), const(7)) for name in ("right_shift", "left_shift")},
    "fixed_point_multiply": call("fixed_point_multiply", var(), multiplier=2**30 + 1, shift=-2),
    "nn.bias_add": call("nn.bias_add", var("int32[3,2]"), const([1, 2]), to="int32[3,2]", axis=-1),
    "nn.relu": call("nn.relu", var()),
    "nn.leaky_relu": call("nn.leaky_relu", var(), alpha=0.1),
    "clip": call("clip", var(), a_min=-127.0, a_max=127.0),
    "round": call("round", var("float32[2]"), to="float32[2]"),
    "cast": call("cast", var(), to="int8[2]", dtype="int8"),
    "annotation.stop_fusion": call("annotation.stop_fusion", var()),
    "nn.pad": call(
        "nn.pad", var(), const(-3), to="int32[5]", pad_mode="constant", pad_width=((1, 2),)
    ),
    "concatenate": concatenate(var("int8[2,3]"), var("int8[2,2]")),
    "strided_slice": call(
        "strided_slice",
        var("int32[4]"),
        begin=(1,),
        end=(4,),
        strides=(2,),
        axes=None,
        slice_mode="end",
    ),
    "take": call(
        "take", var("int8[2]"), const([1, 0]), to="int8[2]", axis=0, batch_dims=0, mode="clip"
    ),
    "split": call("split", var("int8[2]"), to="int8[2]", indices_or_sections=1, axis=0),
    "stack": stack(var("int8[2,3]"), var("int8[2,3]")),
    "reverse": call("reverse", var("int8[2]"), to="int8[2]", axis=0),
    "broadcast_to": call("broadcast_to", var("int8[3]"), to="int8[2,3]", shape=(2, 3)),
    "tile": call("tile", var("int8[3]"), to="int8[6]", reps=(2,)),
    "repeat": call("repeat", var("int8[3]"), to="int8[6]", repeats=2, axis=0),
    "image.resize2d": call("image.resize2d", var(INT8_IMAGE), to="int8[1,8,2,2]", **RESIZE),
    "nn.upsampling": call(
        "nn.upsampling",
        var(INT8_IMAGE),
        to="int8[1,8,8,2]",
        layout="NHWC",
        method="nearest_neighbor",
        align_corners=False,
    ),
    "nn.depth_to_space": call(
        "nn.depth_to_space",
        var("int8[1,2,2,4]"),
        to="int8[1,4,4,1]",
        layout="NHWC",
        block_size=2,
        mode="DCR",
    ),
    "nn.space_to_depth": call(
        "nn.space_to_depth", var(INT8_IMAGE), to="int8[1,2,2,8]", layout="NHWC", block_size=2
    ),
    "copy": call("copy", var("int8[2]"), to="int8[2]"),
    "transpose": call("transpose", var("int8[2,3]"), to="int8[3,2]", axes=None),
    "layout_transform": call(
        "layout_transform",
        var(INT8_IMAGE),
        to="int8[1,2,4,4]",
        src_layout="NHWC",
        dst_layout="NCHW",
    ),
    "reshape": call("reshape", var("int8[2,3]"), to="int8[6]", newshape=(-1,)),
    "nn.batch_flatten": call("nn.batch_flatten", var(INT8_IMAGE), to="int8[1,32]"),
    "squeeze": call("squeeze", var("int8[1,3]"), to="int8[3]", axis=None),
    "expand_dims": call("expand_dims", var("int8[3]"), to="int8[1,3]", axis=0),
}
# Parts of composites that begin or end in integers; alone they stay on the host.
OF_TUPLES = ("concatenate", "qnn.concatenate", "stack")
FLOAT_ONLY = {
    "round",
    "qnn.dequantize",
    "nn.softmax",
    "nn.log_softmax",
    "nn.prelu",
    "divide",
    *FUNCTIONS,
}


def with_args(node: Call, *args: Expr) -> Call:
    return replace(node, load=lambda: args)


def with_result(node: Call, to: str) -> Call:
    return replace(node, types=(of(to),))


def shown(node: Call, **changes: str) -> str:
    """The type of the result with its dtype, or with a dynamic first dimension."""
    text = str(node.type)
    if "dtype" in changes:
        return text.replace(node.type.dtype, changes["dtype"], 1)
    return re.sub(r"\[\d+", "[?", text)


def test_every_operator_has_an_example() -> None:
    assert set(EXAMPLES) == set(OPERATORS)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_example_of_each_operator_is_taken(name: str) -> None:
    refusal = refusal_of_operator(EXAMPLES[name])
    assert (refusal is not None) == (name in FLOAT_ONLY), refusal


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_operator_with_a_float_result_is_refused_with_a_reason(name: str, dtype: str) -> None:
    node = with_result(EXAMPLES[name], shown(EXAMPLES[name], dtype=dtype))
    refusal = refusal_of_operator(node)
    assert isinstance(refusal, Refusal)
    assert (refusal.clause, refusal.found) == (f"dtype of {name}", dtype)
    assert "float32 only where a region begins or ends" in refusal.allowed


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["int4", "uint32", "uint16", "int8x4"])
def test_an_operator_with_a_result_of_an_unknown_dtype_is_refused(name: str, dtype: str) -> None:
    node = with_result(EXAMPLES[name], shown(EXAMPLES[name], dtype=dtype))
    refusal = refusal_of_operator(node)
    assert isinstance(refusal, Refusal)
    assert (refusal.clause, refusal.found) == ("result: dtype", dtype)
    assert "int8" in refusal.allowed


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_with_a_dynamic_result_is_refused(name: str) -> None:
    node = with_result(EXAMPLES[name], shown(EXAMPLES[name]).replace("float32", "int32"))
    refusal = refusal_of_operator(node)
    assert isinstance(refusal, Refusal)
    assert (refusal.clause, refusal.allowed) == ("result: shape", "fixed dimensions")
    assert "?" in refusal.found


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("changed", ["int8[?,4,4,2]", "int4[1,4,4,2]", "int8[1,0,4,2]"])
def test_an_operator_with_an_argument_that_the_graph_cannot_hold_is_refused(
    name: str, changed: str
) -> None:
    node = with_result(EXAMPLES[name], str(EXAMPLES[name].type).replace("float32", "int32"))
    _, *others = node.args
    first = var(changed)
    if name in OF_TUPLES:
        first = Tuple((of(changed),) * 2, load=lambda: (var(changed),) * 2)
    refusal = refusal_of_operator(with_args(node, first, *others))
    assert isinstance(refusal, Refusal)
    assert refusal.clause in ("argument: shape", "argument: dtype")
    assert refusal.found in (changed, "int4")


@pytest.mark.parametrize("name", [name for name in OPERATORS if name not in OF_TUPLES])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float32"])
def test_an_operator_on_any_dtype_is_taken_or_refused_and_never_an_error(
    name: str, dtype: str
) -> None:
    node = EXAMPLES[name]
    first, *others = node.args
    changed = str(first.type).replace(first.type.dtype, dtype)
    refusal = refusal_of_operator(with_args(node, var(changed), *others))
    assert refusal is None or isinstance(refusal, Refusal)


def refused(node: Call) -> tuple[str, str, str]:
    refusal = refusal_of_operator(node)
    assert isinstance(refusal, Refusal), node
    return refusal.clause, refusal.found, refusal.allowed


def example(name: str, **attrs: Any) -> Call:
    node = EXAMPLES[name]
    changed = read(node.spelled, node.types, lambda: attrs, node.load).attrs
    return replace(node, load_attrs=lambda: {**node.attrs, **changed})


def with_arg(name: str, index: int, arg: Expr) -> Call:
    """The example of an operator with another argument."""
    args = list(EXAMPLES[name].args)
    args[index] = arg
    return with_args(EXAMPLES[name], *args)


REASONS: list[tuple[Call, str, str, str]] = [
    (call("einsum", var()), "operator", "einsum", "an operator of tinyai/patterns.py"),
    (
        call("nn.lrn", var()),
        "equality of the result",
        "a power of a sum of squares over channels, which each C library rounds in its own way",
        "results that are proven equal for every value of the inputs",
    ),
    (conv2d(weight=var("int8[3,3,2,5]")), "weights", "computed at run time", "a constant"),
    (
        conv2d(weight=const(WEIGHTS, "uint8")),
        "dtypes of data and weights",
        "int8 and uint8",
        "int8 and int8, int16 and int8",
    ),
    (
        conv2d(data=var("uint8[1,4,4,2]")),
        "dtypes of data and weights",
        "uint8 and int8",
        "int8 and int8, int16 and int8",
    ),
    (conv2d(data_layout="NCHW4c"), "data layout", "NCHW4c", "NHWC, NCHW"),
    (conv2d(out_layout="NCHW"), "output layout", "NCHW", "NHWC"),
    (conv2d(kernel_layout="OIHW4i"), "kernel layout", "OIHW4i", "OIHW"),
    (with_result(conv2d(), "int16[1,4,4,5]"), "dtype of the result", "int16", "int32"),
    (
        with_args(dense(), var("int8[2,3]"), var("int8[4,3]")),
        "weights",
        "computed at run time",
        "a constant",
    ),
    (
        example("nn.max_pool2d", layout="NCHW8c"),
        "layout",
        "NCHW8c",
        "NHWC, NCHW",
    ),
    (
        with_args(example("nn.avg_pool2d"), var(INT8_IMAGE)),
        "dtype of an average",
        "int8",
        "int32",
    ),
    (
        example("nn.avg_pool2d", dilation=(2, 2)),
        "dilation of an average",
        "(2, 2)",
        "(1, 1)",
    ),
    (
        call("add", var(), var("int8[2]")),
        "dtypes",
        "int32[2] and int8[2]",
        "two of one dtype",
    ),
    (
        call("right_shift", var(), var()),
        "shift amount",
        "computed at run time",
        "a constant",
    ),
    (call("right_shift", var(), const([3, 32])), "shift amount", "int32 3 .. 32", "int32 0 .. 31"),
    (call("left_shift", var(), const(-1)), "shift amount", "int32 -1 .. -1", "int32 0 .. 31"),
    (
        with_args(example("nn.bias_add"), var("int32[3,2]"), const([1, 2], "int8")),
        "dtype of the bias",
        "int8",
        "int32",
    ),
    (example("clip", a_min=0.5), "bounds of clip", "0.5 .. 127.0", "whole numbers of int32"),
    (example("clip", a_min=5.0, a_max=4.0), "bounds of clip", "5.0 .. 4.0", "low <= high"),
    (
        example("clip", a_max=float("inf")),
        "bounds of clip",
        "-127.0 .. inf",
        "whole numbers of int32",
    ),
    (
        call("cast", var("float32[2]"), to="int8[2]", dtype="int8"),
        "cast of a float",
        "no clip, to int8",
        "a clip to the range of the integer in front of it, at most 16 bits",
    ),
    (
        call("cast", var(), to="int8[2]", dtype="int4"),
        "dtype of cast",
        "int4",
        "int8, uint8, int16, int32, int64, float32",
    ),
    (example("nn.leaky_relu", alpha=200.0), "alpha", "200.0", "-128 < alpha < 128"),
    (example("fixed_point_multiply", shift=31), "shift", "31", "-31 .. 30"),
    (
        example("fixed_point_multiply", multiplier=2**30, shift=1),
        "shift of the multiplier 2**30",
        "1",
        "any but 1",
    ),
    (example("nn.pad", pad_mode="edge"), "mode", "edge", "constant"),
    (example("nn.pad", pad_width=((-1, 2),)), "pad width", "((-1, 2),)", ">= 0"),
    (
        with_args(example("nn.pad"), var(), const([1, 2])),
        "pad value",
        "(2,)",
        "one number",
    ),
    (
        with_args(example("nn.pad"), var("int8[2]"), const(200)),
        "pad value",
        "200.0",
        "a value of int8",
    ),
    (
        with_args(example("concatenate"), Expr((of("int8[2,3]"), of("int8[2,2]")))),
        "argument",
        "a tuple made elsewhere",
        "a tuple made here",
    ),
    (
        with_args(example("stack"), Expr((of("int8[2,3]"), of("int8[2,3]")))),
        "argument",
        "a tuple made elsewhere",
        "a tuple made here",
    ),
    (
        example("image.resize2d", method="linear"),
        "method",
        "linear",
        "nearest_neighbor",
    ),
    (
        example("image.resize2d", coordinate_transformation_mode="tf_crop_and_resize"),
        "coordinates",
        "tf_crop_and_resize",
        "half_pixel, asymmetric, align_corners",
    ),
    (
        example("image.resize2d", rounding_method="up"),
        "nearest_mode",
        "up",
        "round, round_prefer_floor",
    ),
    (example("image.resize2d", layout="NCHW4c"), "layout", "NCHW4c", "NHWC, NCHW"),
    (
        with_result(
            example("image.resize2d", coordinate_transformation_mode="align_corners"),
            "int8[1,1,2,2]",
        ),
        "size",
        "one row or column between aligned corners",
        "two at least",
    ),
    (
        with_args(example("image.resize2d"), var(INT32_IMAGE)),
        "dtype of image.resize2d",
        "int32",
        "at most 16 bits",
    ),
    (example("nn.upsampling", method="bilinear"), "method", "bilinear", "nearest_neighbor"),
    (example("nn.depth_to_space", layout="CHWN"), "layout", "CHWN", "NCHW, NHWC"),
    (
        with_args(example("nn.space_to_depth"), var("int8[1,4,5,2]")),
        "height and width",
        "(1, 4, 5, 2)",
        "multiples of 2",
    ),
    (
        example("layout_transform", dst_layout="NCHW2c"),
        "layouts",
        "NHWC to NCHW2c",
        "the same plain axes in another order",
    ),
    (
        with_arg("qnn.conv2d", 1, var("int8[3,3,2,5]")),
        "weights",
        "computed at run time",
        "a constant",
    ),
    (
        with_arg("qnn.conv2d", 1, const(WEIGHTS, "int16")),
        "dtype of weights",
        "int16",
        "int8, uint8",
    ),
    (with_arg("qnn.conv2d", 0, var(INT32_IMAGE)), "dtype of the data", "int32", "int8, uint8"),
    (
        with_arg("qnn.conv2d", 2, const(128)),
        "zero point of the data",
        "128",
        "-128 .. 127",
    ),
    (
        with_arg("qnn.conv2d", 2, const([1, 2])),
        "zero point of the data",
        "2 numbers",
        "one number",
    ),
    (
        with_arg("qnn.conv2d", 2, var("int32[]")),
        "zero point of the data",
        "computed at run time",
        "a constant",
    ),
    (
        with_arg("qnn.conv2d", 3, const([1, 2])),
        "zero points of the weights",
        "2",
        "1 or 5",
    ),
    (example("qnn.conv2d", data_layout="NCHW4c"), "data layout", "NCHW4c", "NHWC, NCHW"),
    (example("qnn.conv2d", out_layout="NCHW"), "output layout", "NCHW", "NHWC"),
    (example("qnn.conv2d", kernel_layout="HWI"), "kernel layout", "HWI", "OIHW"),
    (
        with_result(example("qnn.conv2d"), "int16[1,4,4,5]"),
        "dtype of the result",
        "int16",
        "int32",
    ),
    (
        example("qnn.conv2d_transpose", kernel_layout="OIHW2i"),
        "kernel layout",
        "OIHW2i",
        "IOHW",
    ),
    (
        example("qnn.conv2d_transpose", padding=(3, 0, 0, 0)),
        "padding",
        "(3, 0, 0, 0)",
        "at most the kernel's extent - 1",
    ),
    (
        with_arg("qnn.batch_matmul", 1, var("int16[1,4,3]")),
        "dtype of the other matrix",
        "int16",
        "int8, uint8",
    ),
    (
        with_arg("qnn.batch_matmul", 3, const(-129)),
        "zero point of the other matrix",
        "-129",
        "-128 .. 127",
    ),
    (with_arg("qnn.dense", 2, const(-1)), "zero point of the data", "-1", "0 .. 255"),
    (with_arg("qnn.dense", 3, const([1, 2, 3])), "zero points of the weights", "3", "1 or 4"),
    (with_result(example("qnn.dense"), "int16[2,4]"), "dtype of the result", "int16", "int32"),
    (
        with_arg("qnn.requantize", 0, var("float32[1,4,4,2]")),
        "dtype",
        "float32",
        "int8, uint8, int16, int32, int64",
    ),
    (
        with_result(example("qnn.requantize"), "int64[1,4,4,2]"),
        "dtype of the result",
        "int64",
        "int8, uint8, int16, int32",
    ),
    (
        with_args(
            example("qnn.requantize", compute_dtype="float32"),
            var("int64[1,4,4,2]"),
            *EXAMPLES["qnn.requantize"].args[1:],
        ),
        "compute_dtype",
        "float32",
        "int64",
    ),
    (example("qnn.requantize", rounding="DOWNWARD"), "rounding", "DOWNWARD", "UPWARD, TONEAREST"),
    (
        example("qnn.requantize", compute_dtype="int32"),
        "compute_dtype",
        "int32",
        "int64, float32, float64",
    ),
    (
        with_result(example("qnn.requantize", compute_dtype="float32"), INT32_IMAGE),
        "dtype of a float32 requantization",
        "int32",
        "int8, uint8, int16",
    ),
    (
        with_arg("qnn.requantize", 1, const(0.0, "float32")),
        "scale of the input",
        "0.0",
        "a positive number",
    ),
    (
        with_arg("qnn.requantize", 1, const([0.5, -1.0], "float32")),
        "scale of the input",
        "-1.0",
        "positive numbers",
    ),
    (
        with_arg("qnn.requantize", 1, const([[0.5, 1.0]], "float32")),
        "scale of the input",
        "shape (1, 2)",
        "one or a vector",
    ),
    (
        with_arg("qnn.requantize", 1, var("float32[]")),
        "scale of the input",
        "computed at run time",
        "a constant",
    ),
    (
        with_args(
            example("qnn.requantize"),
            var(INT32_IMAGE),
            const([0.5, 1.0], "float32"),
            const([3, 4, 5]),
            *SCALE,
        ),
        "zero points of the input",
        "3",
        "1 or 2",
    ),
    (
        with_arg("qnn.requantize", 3, const([0.5, 1.0], "float32")),
        "scale of the output",
        "2 numbers",
        "one number",
    ),
    (
        with_arg("qnn.requantize", 1, const(2.0**30, "float32")),
        "shift",
        "33",
        "-31 .. 30",
    ),
    (
        with_arg("qnn.requantize", 1, const([3.0 * 2**30, 1.0], "float32")),
        "ratio of the scales",
        "2**34",
        "at most 2**30",
    ),
    (with_arg("qnn.quantize", 0, var("int32[2]")), "dtype", "int32", "float32"),
    (
        with_result(example("qnn.quantize"), "int32[2]"),
        "dtype of the result",
        "int32",
        "int8, uint8, int16",
    ),
    (
        with_arg("qnn.quantize", 1, const(-0.5, "float32")),
        "scale of the output",
        "-0.5",
        "a positive number",
    ),
    (with_arg("qnn.add", 1, var("int32[2]")), "dtype", "int32", "int8, uint8, int16"),
    (with_arg("qnn.mul", 0, var("int64[2]")), "dtype", "int64", "int8, uint8, int16"),
    (
        with_arg("qnn.subtract", 4, const(np.inf, "float32")),
        "scale of the right side",
        "inf",
        "a positive number",
    ),
    (
        with_arg("qnn.add", 6, var("float32[]")),
        "scale of the output",
        "computed at run time",
        "a constant",
    ),
    (
        with_arg("qnn.concatenate", 0, Expr((of("int8[2,3]"), of("int8[2,2]")))),
        "argument",
        "a tuple made elsewhere",
        "a tuple made here",
    ),
    (
        with_arg("qnn.concatenate", 1, Expr((of("float32[]"), of("float32[]")))),
        "scales of the parts",
        "0 constants of 1",
        "a constant of one number for each part",
    ),
    (
        qnn_concatenate(var("int32[2,3]"), var("int32[2,2]")),
        "dtype",
        "int32",
        "int8, uint8, int16",
    ),
    (with_arg("sum", 0, var("int8[2,3]")), "dtype of sum", "int8", "int32"),
    (with_arg("mean", 0, var("int8[2,3]")), "dtype of mean", "int8", "int32"),
    (example("sum", axis=()), "axes", "none", "at least one"),
    (with_arg("take", 1, var("int8[2]")), "dtype of indices", "int8", "int32 or int64"),
    (example("take", batch_dims=1), "batch_dims", "1", "0"),
    (example("mean", axis=(0, 1), exclude=True), "axes", "none", "at least one"),
]

# Operators between floats, whose result alone would be refused: each with what its builder says.
FLOAT_REASONS: list[tuple[Call, str, str, str]] = [
    (with_arg("qnn.dequantize", 0, var("int64[2]")), "dtype", "int64", "int8, uint8, int16, int32"),
    (with_arg("nn.softmax", 0, var("int32[2,3]")), "dtype of softmax", "int32", "float32"),
    (with_arg("nn.prelu", 0, var("int32[2,3]")), "dtype of prelu", "int32", "float32"),
    (with_arg("nn.prelu", 1, var("float32[3]")), "slope", "computed at run time", "a constant"),
    (with_arg("divide", 0, var("int32[2]")), "dtype of divide", "int32", "float32"),
    (with_arg("round", 0, var("int32[2]")), "dtype", "int32", "float32"),
    *(
        (with_arg(name, 0, var("int32[2]")), f"dtype of {name}", "int32", "float32")
        for name in FUNCTIONS
    ),
]


@pytest.mark.parametrize(
    ("node", "clause", "found", "allowed"), FLOAT_REASONS, ids=lambda value: str(value)[:24]
)
def test_an_operator_between_floats_names_what_it_cannot_read(
    node: Call, clause: str, found: str, allowed: str
) -> None:
    row = PatternRow("alone", op(node.op, *[ANY] * len(node.args)), floats=True)
    refusal = refusal_of_composite(row, node)
    assert isinstance(refusal, Refusal)
    assert (refusal.clause, refusal.found) == (clause, found)
    assert allowed in refusal.allowed


@pytest.mark.parametrize(
    ("node", "clause", "found", "allowed"), REASONS, ids=lambda value: str(value)[:24]
)
def test_a_refusal_names_the_clause_what_was_found_and_what_is_allowed(
    node: Call, clause: str, found: str, allowed: str
) -> None:
    name, what, instead = refused(node)
    assert (name, what) == (clause, found)
    assert allowed in instead


def test_a_call_that_returns_a_tuple_is_refused() -> None:
    node = replace(EXAMPLES["nn.relu"], types=(of("int8[2]"), of("int8[2]")))
    assert refused(node) == ("result", "a tuple of 2", "one tensor")


def test_a_call_that_returns_another_number_of_tensors_is_refused() -> None:
    node = replace(EXAMPLES["copy"], types=(of("int8[2]"), of("int8[2]")))
    assert refused(node) == ("result", "a tuple of 2", "one tensor")


def test_each_field_of_a_tuple_counts() -> None:
    def split(*fields: str) -> Call:
        whole = call("split", var("int8[3]"), indices_or_sections=(2,), axis=0)
        return replace(whole, types=tuple(map(of, fields)))

    assert refusal_of_operator(split("int8[2]", "int8[1]")) is None
    assert refused(split("int8[2]", "float32[1]"))[:2] == ("dtype of split", "float32")
    assert refused(split("int8[3]", "int8[0]"))[:2] == ("result: shape", "int8[0]")
    assert refused(split("int8[2]", "int16[1]"))[:2] == ("type of split", "int8[1]")


def test_a_constant_of_an_unknown_dtype_is_refused() -> None:
    node = call("cast", const([1, 2], "uint16"), to="int8[2]", dtype="int8")
    assert refused(node)[1] == "uint16"


# --- Composites --------------------------------------------------------------------------------


def requantized(x: Expr) -> Call:
    """The chain of ``tvm.relay.quantize`` after an accumulator."""
    text = str(x.type)
    shape = text[text.index("[") :]
    x = call("add", x, const(64), to=text)
    x = call("right_shift", x, const(7), to=text)
    x = call("clip", x, to=text, a_min=-127.0, a_max=127.0)
    x = call("cast", x, to=f"int8{shape}", dtype="int8")
    return call("annotation.stop_fusion", x, to=f"int8{shape}")


def quantize(dtype: str = "float32") -> Call:
    x = call("multiply", var(f"{dtype}[2]"), const(16, dtype), to=f"{dtype}[2]")
    x = call("round", x, to=f"{dtype}[2]")
    x = call("clip", x, to=f"{dtype}[2]", a_min=-127.0, a_max=127.0)
    return call("cast", x, to="int8[2]", dtype="int8")


def dequantize(dtype: str = "float32") -> Call:
    x = call("cast", var("int8[2]"), to=f"{dtype}[2]", dtype=dtype)
    return call("multiply", x, const(0.25, dtype), to=f"{dtype}[2]")


COMPOSITES: dict[str, tuple[Call, int]] = {  # with the number of calls that it covers
    "sum": (
        call(
            "qnn.quantize",
            call("add", *(EXAMPLES["qnn.dequantize"],) * 2, to="float32[2]"),
            *SCALE,
            to="int8[2]",
            axis=-1,
        ),
        3,
    ),
    "table": (
        call(
            "qnn.quantize",
            call("tanh", EXAMPLES["qnn.dequantize"], to="float32[2]"),
            *SCALE,
            to="int8[2]",
            axis=-1,
        ),
        3,
    ),
    "softmax": (
        call(
            "qnn.quantize",
            call("nn.softmax", EXAMPLES["qnn.dequantize"], to="float32[2]", axis=0),
            *SCALE,
            to="int8[2]",
            axis=-1,
        ),
        3,
    ),
    "layer_norm": (
        call(
            "qnn.quantize",
            call(
                "layer_norm",
                EXAMPLES["qnn.dequantize"],
                const([1, 2], "float32"),
                const([0, 1], "float32"),
                to="float32[2]",
                axis=0,
                epsilon=1e-5,
            ),
            *SCALE,
            to="int8[2]",
            axis=-1,
        ),
        3,
    ),
    "numbers": (
        call(
            "qnn.quantize",
            call(
                "multiply",
                call("cast", var("int64[2]"), to="float32[2]", dtype="float32"),
                const(-1e4, "float32"),
                to="float32[2]",
            ),
            *SCALE,
            to="int8[2]",
            axis=-1,
        ),
        3,
    ),
    "quantize": (quantize(), 4),
    "dequantize": (dequantize(), 2),
    "conv2d": (requantized(conv2d()), 6),
    "conv2d_transpose": (requantized(EXAMPLES["qnn.conv2d_transpose"]), 6),
    "dense": (requantized(dense()), 6),
    "matmul": (requantized(EXAMPLES["qnn.batch_matmul"]), 6),
    "average": (
        call(
            "qnn.quantize",
            call(
                "nn.avg_pool2d",
                call("qnn.dequantize", var(INT8_IMAGE), *SCALE, to="float32[1,4,4,2]", axis=-1),
                to="float32[1,2,2,2]",
                **POOL,
            ),
            *SCALE,
            to="int8[1,2,2,2]",
            axis=-1,
        ),
        3,
    ),
    "pool2d": (requantized(EXAMPLES["nn.avg_pool2d"]), 6),
    "concatenate": (
        call(
            "clip",
            concatenate(var("int8[2,3]"), var("int8[2,2]")),
            to="int8[2,5]",
            a_min=0.0,
            a_max=5.0,
        ),
        2,
    ),
    "reduce": (requantized(EXAMPLES["mean"]), 6),
    "binary": (call("clip", EXAMPLES["qnn.add"], to="int8[2]", a_min=0.0, a_max=9.0), 2),
    "add": (requantized(call("add", call("cast", var("int8[2]"), dtype="int32"), var())), 7),
}
ROWS_BY_NAME = {row.name: row for row in PATTERNS}


def test_every_composite_has_an_example() -> None:
    assert sorted(COMPOSITES) == sorted(row.name for row in PATTERNS)


@pytest.mark.parametrize("row", PATTERNS, ids=lambda row: row.name)
def test_an_example_of_each_composite_is_matched_whole_and_taken(row: PatternRow) -> None:
    root, calls = COMPOSITES[row.name]
    covered = match(row.pattern, root)
    assert covered is not None
    assert len(covered) == calls
    rounding = Rounding("onnx" if row.name == "average" else "upward")
    assert refusal_of_composite(row, root, rounding) is None


@pytest.mark.parametrize("row", PATTERNS, ids=lambda row: row.name)
def test_a_composite_on_any_expression_gives_a_reason_or_none(row: PatternRow) -> None:
    for node in (*EXAMPLES.values(), *(root for root, _ in COMPOSITES.values()), var(), const(1)):
        refusal = refusal_of_composite(row, node)
        assert refusal is None or isinstance(refusal, Refusal)
    refusal = refusal_of_composite(row, var())
    assert isinstance(refusal, Refusal)
    assert (refusal.clause, refusal.allowed) == ("pattern", f"the pattern {row.name}")


def test_the_second_branch_of_an_add_is_covered_with_its_chain() -> None:
    left = call("right_shift", var(), const(2))
    right = call("left_shift", call("cast", var("int8[2]"), dtype="int32"), const(1))
    root = call("add", left, right)
    covered = match(ROWS_BY_NAME["add"].pattern, root)
    assert covered == (left, right.args[0], right, root)
    assert refusal_of_composite(ROWS_BY_NAME["add"], root) is None


def test_weights_that_are_not_constant_do_not_match() -> None:
    root = conv2d(weight=var("int8[3,3,2,5]"))
    refusal = refusal_of_composite(ROWS_BY_NAME["conv2d"], root)
    assert isinstance(refusal, Refusal)
    assert refusal.clause == "pattern"


def test_a_composite_is_refused_for_the_call_that_fails() -> None:
    inner = call("clip", conv2d(), to="int32[1,4,4,5]", a_min=0.5, a_max=3.0)
    refusal = refusal_of_composite(ROWS_BY_NAME["conv2d"], inner)
    assert isinstance(refusal, Refusal)
    assert (refusal.clause, refusal.found) == ("bounds of clip", "0.5 .. 3.0")


def test_a_float_inside_of_a_composite_is_refused_and_at_its_edges_taken() -> None:
    node = call("nn.relu", conv2d(), to="float32[1,4,4,5]")
    refusal = refusal_of_composite(ROWS_BY_NAME["conv2d"], node)
    assert isinstance(refusal, Refusal)
    assert (refusal.clause, refusal.found) == ("dtype of nn.relu", "float32")
    for name, root in (("quantize", quantize("float64")), ("dequantize", dequantize("float16"))):
        refusal = refusal_of_composite(ROWS_BY_NAME[name], root)
        assert isinstance(refusal, Refusal), name


def test_a_chain_ends_before_a_cast_to_float() -> None:
    for dtype, found in (("int16", True), ("float32", False)):
        node = call("cast", conv2d(), to=f"{dtype}[1,4,4,5]", dtype=dtype)
        assert (match(ROWS_BY_NAME["conv2d"].pattern, node) is not None) == found


def test_a_chain_longer_than_the_longest_is_cut_from_its_convolution() -> None:
    x = conv2d()
    for length in range(1, LONGEST_CHAIN + 2):
        x = call("nn.relu", x, to="int32[1,4,4,5]")
        covered = match(ROWS_BY_NAME["conv2d"].pattern, x)
        assert (covered is None) == (length > LONGEST_CHAIN)


def test_without_stop_fusion_no_pattern_reaches_over_it() -> None:
    rows = {row.name: row for row in pattern_rows(stop_fusion=False)}
    root, calls = COMPOSITES["conv2d"]
    assert match(rows["conv2d"].pattern, root) is None
    (below,) = root.args
    assert len(match(rows["conv2d"].pattern, below) or ()) == calls - 1
    assert match(chain(ANY, stop_fusion=False), root) == ()
    assert match(chain(ANY), root) is not None
