"""Integers from dequantize and quantize pairs, against ONNX Runtime on the same quantized models.

One step apart is allowed: TVM requantizes in int64 where ONNX Runtime does in float32,
and ``qnn.add`` rounds each operand before the sum.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from tvm import relay

import tinyai
from tests.support.onnx_models import Array, Model, quantized, run_onnx
from tests.support.oracle import REQUANTIZE, runner
from tests.support.qdq_cases import BRANCHES, INTEGERS, TABLES, node, normal
from tinyai.frontends.relay import partition_for_tinyai, regions
from tinyai.frontends.relay.qdq import float_operators, integers_from_qdq
from tinyai.frontends.relay.source import post_order, span_name

# What is tried with int8 values, and (if it has weights) with uint8 weights as well.
BOTH = (
    *("conv_clip_dilated", "conv_transpose", "gemm_plain", "constant_subtract"),
    *("concat_constant", "avg_pool_pads_counted", "pad"),
)


def imported(proto: onnx.ModelProto) -> tvm.IRModule:
    return relay.frontend.from_onnx(proto, freeze_params=True)[0]


def computed(mod: tvm.IRModule, inputs: Mapping[str, Array]) -> list[Array]:
    """On TVM's CPU. Level 2 folds constants; level 3 takes twice the time to build."""
    with (
        tvm.transform.PassContext(opt_level=2),
        relay.qnn.op.qnn.requantize_config(**REQUANTIZE),
    ):
        return runner(relay.build(mod, target="llvm"))(inputs)


def is_call(expr: relay.Expr, name: str) -> bool:
    return isinstance(expr, relay.Call) and expr.op.name == name


def calls(mod: tvm.IRModule) -> list[relay.Call]:
    return [e for e in post_order(mod["main"].body) if isinstance(e, relay.Call)]


def operators(mod: tvm.IRModule) -> list[str]:
    return [call.op.name for call in calls(mod)]


def floats(mod: tvm.IRModule) -> list[str]:
    """Operators with a float result."""

    def types(kind: relay.Type) -> Iterator[str]:
        for field in kind.fields if isinstance(kind, relay.TupleType) else [kind]:
            yield field.dtype

    typed = relay.transform.InferType()(mod)
    return [c.op.name for c in calls(typed) if "float32" in types(c.checked_type)]


def steps_apart(mod: tvm.IRModule, proto: onnx.ModelProto, inputs: Mapping[str, Array]) -> int:
    pairs = zip(computed(mod, inputs), run_onnx(proto, inputs), strict=True)
    return max(int(np.abs(a.astype(int) - b.astype(int)).max()) for a, b in pairs)


MODELS = INTEGERS | TABLES | BRANCHES


@functools.cache
def prepared(name: str, dtype: str, weight_dtype: str) -> tuple[Any, dict[str, Array], Any]:
    """A model, inputs for it, and what TVM imports."""
    proto, inputs = quantized(MODELS[name], dtype, weight_dtype=weight_dtype)
    return proto, inputs, imported(proto)


def check(name: str, dtype: str, weight_dtype: str = "int8") -> tvm.IRModule:
    """The model as integers: near ONNX Runtime's result, nothing left, and nothing more to do."""
    proto, inputs, before = prepared(name, dtype, weight_dtype)
    mod = integers_from_qdq(before)
    assert float_operators(mod) == ()
    assert integers_from_qdq(mod).same_as(mod)
    edges = {f"{value}_{word}" for value in "vxyzpq" for word in ("quantize", "dequantize")}
    found = {part for call in calls(mod) for part in span_name(call).split("/")}
    assert found <= {each.name for each in MODELS[name].nodes} | edges
    if not mod.same_as(before):
        assert steps_apart(mod, proto, inputs) <= 1
    return mod


@pytest.mark.long
@pytest.mark.parametrize("name", INTEGERS)
def test_operators_become_integers(name: str) -> None:
    assert floats(check(name, "uint8")) == []


@pytest.mark.parametrize("name", TABLES)
def test_functions_of_single_values_stay(name: str) -> None:
    found = operators(check(name, "uint8"))
    first, last = found.index("qnn.dequantize"), found.index("qnn.quantize")
    assert not {"reshape", "strided_slice", "broadcast_to_like"} & set(found[first:last])
    assert (found.count("qnn.dequantize"), found.count("qnn.quantize")) == (1, 1)


@pytest.mark.parametrize("name", BRANCHES)
def test_functions_of_several_values_stay_each_with_its_own_dequantizes(name: str) -> None:
    mod = check(name, "uint8")
    floats = [
        {each for each in post_order(call) if is_call(each, "qnn.dequantize")}
        for call in calls(mod)
        if is_call(call, "qnn.quantize")
    ]
    assert sum(map(len, floats)) == len(set().union(*floats))
    assert tinyai.explain(mod).computing == ()


@pytest.mark.parametrize("name", BOTH)
def test_int8_values(name: str) -> None:
    check(name, "int8")


@pytest.mark.parametrize("name", [name for name in BOTH if MODELS[name].weights])
def test_uint8_weights(name: str) -> None:
    check(name, "uint8", "uint8")


# --- How a rewritten operator looks ---


def rewritten(model: Model) -> tvm.IRModule:
    return integers_from_qdq(imported(quantized(model, "uint8")[0]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("conv_relu_pads", ["qnn.conv2d", "nn.bias_add", "qnn.requantize"]),
        ("conv_clip_dilated", ["qnn.conv2d", "nn.bias_add", "qnn.requantize", "clip"]),
        ("conv_add_bias", ["qnn.conv2d", "nn.bias_add", "qnn.requantize"]),
        ("conv_auto_pad", ["nn.pad", "qnn.conv2d", "nn.bias_add", "qnn.requantize"]),
        ("gemm_plain", ["qnn.dense", "nn.bias_add", "qnn.requantize"]),
        ("matmul_3d_bias", ["reshape", "qnn.dense", "reshape", "nn.bias_add", "qnn.requantize"]),
        ("add_constant", ["qnn.add"]),
        ("mean", ["cast", "sum", "qnn.requantize"]),
        ("avg_pool_pads", ["cast", "multiply", "nn.avg_pool2d", "qnn.requantize"]),
        ("relu_same_scale", ["clip"]),
        ("reshape_same_scale", ["reshape"]),
        ("conv_max_pool", ["qnn.conv2d", "qnn.requantize", "nn.max_pool2d", "nn.batch_flatten"]),
    ],
)
def test_the_integer_operators(name: str, expected: list[str]) -> None:
    assert operators(integers_from_qdq(prepared(name, "uint8", "int8")[2])) == expected


def test_source_names_go_along() -> None:
    found = [(c.op.name, span_name(c)) for c in calls(rewritten(INTEGERS["conv_clip_dilated"]))]
    assert found == [
        ("qnn.conv2d", "conv_c"),
        ("nn.bias_add", "conv_c"),
        ("qnn.requantize", "conv_c"),
        ("clip", "clip_y"),
    ]


# --- What has to stay ---

X = {"x": (1, 4, 5, 3)}


def left(model: Model) -> dict[str, str]:
    """Reasons by source name; nothing else may be float but what quantizes and dequantizes."""
    mod = rewritten(model)
    found = float_operators(mod)
    assert set(floats(mod)) <= {each.operator for each in found} | {"qnn.dequantize"}
    return {each.name: each.reason for each in found}


def test_an_operator_without_a_rule_is_named() -> None:
    found = left(Model((node("CumSum", "x axis"),), X, plain={"axis": np.array(1)}))
    assert list(found) == ["cumsum_y"]
    assert found["cumsum_y"].startswith("operator: found cumsum, allowed")


def test_weights_that_are_not_quantized() -> None:
    found = left(Model((node("Conv", "x w"),), X, plain={"w": normal(2, 4, 3, 3)}))
    assert found == {"conv_y": "input: found a constant, allowed a quantized value"}


def test_transposed_groups_with_scales_per_channel() -> None:
    model = Model(
        (node("ConvTranspose", "x w", group=2),), X, weights={"w": (normal(4, 3, 3, 1), 1)}
    )
    assert left(model) == {"convtranspose_y": "scales of the weights: found 3, allowed 6"}


def test_a_chain_without_quantization_between() -> None:
    nodes = node("Conv", "x w", "c"), node("Conv", "c v")
    weights = {"w": (normal(3, 4, 3, 1), 0), "v": (normal(2, 3, 1, 1), 0)}
    assert left(Model(nodes, X, weights=weights)) == {
        "conv_c": "its result is used as float32",
        "conv_y": "input: found nn.conv2d, allowed a quantized value",
    }


def test_functions_of_two_values_stay() -> None:
    nodes = node("Sigmoid", "z", "s"), node("Mul", "x s")
    assert left(Model(nodes, X | {"z": (1, 4, 5, 3)})) == {
        "sigmoid_s": "its result is used as float32",
        "mul_y": "input: found sigmoid, allowed a quantized value",
    }


def test_a_float_that_others_read_keeps_its_operators() -> None:
    """The convolution would be computed twice: as integers, and as floats for the softmax."""
    nodes = (
        node("Conv", "x w", "c"),
        node("Relu", "c"),
        node("Erf", "c", "e"),
        node("Mul", "e c", "q"),
    )
    model = Model(nodes, X, ("y", "q"), weights={"w": (normal(3, 4, 3, 1), 0)})
    mod = imported(quantized(model, "uint8")[0])
    assert integers_from_qdq(mod).same_as(mod)
    reasons = {each.name: each.reason for each in float_operators(mod)}
    assert "users of the float32 result of nn.conv2d: found" in reasons["relu_y"]


def test_a_part_of_a_split_that_is_used_as_float() -> None:
    """Taking the other part as integers would split twice."""
    scale, zero = relay.const(0.5), relay.const(3)
    x = relay.var("x", relay.TensorType((2, 4), "uint8"))
    parts = relay.split(relay.qnn.op.dequantize(x, scale, zero), 2, 1)
    rounded = relay.qnn.op.quantize(parts[0], scale, zero, out_dtype="uint8")
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([rounded, parts[1]])))
    assert integers_from_qdq(mod).same_as(mod)


def test_quantizations_to_one_scale_are_one_user() -> None:
    """quantize_static writes a pair for each user with DedicatedQDQPair."""
    scale, zero = relay.const(0.5), relay.const(3)
    x, z = (relay.var(name, relay.TensorType((2, 4), "uint8")) for name in "xz")
    total = relay.qnn.op.dequantize(x, scale, zero) + relay.qnn.op.dequantize(z, scale, zero)
    both = [relay.qnn.op.quantize(total, scale, zero, out_dtype="uint8") for _ in range(2)]
    pair = relay.Function([x, z], relay.Tuple(both))
    assert operators(integers_from_qdq(tvm.IRModule.from_expr(pair))) == ["qnn.add"]


def test_moves_of_a_float_input_run_on_integers() -> None:
    """Exporters of NHWC models transpose the input first."""
    x = relay.var("x", shape=(2, 4, 3))
    value = relay.nn.relu(relay.transpose(x, (2, 0, 1)))
    rounded = relay.qnn.op.quantize(value, relay.const(0.5), relay.const(3), 0, "uint8")
    mod = tvm.IRModule.from_expr(relay.Function([x], rounded))
    assert operators(integers_from_qdq(mod)) == ["qnn.quantize", "transpose", "clip"]
    inputs = {"x": normal(2, 4, 3)}
    for a, b in zip(computed(mod, inputs), computed(integers_from_qdq(mod), inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_parameters_that_are_not_bound() -> None:
    proto, _ = quantized(INTEGERS["conv"], "uint8")
    mod, params = relay.frontend.from_onnx(proto, freeze_params=False)
    assert integers_from_qdq(mod).same_as(mod)
    assert "scale: found a parameter, allowed constants" in str(float_operators(mod)[-1])
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    assert operators(integers_from_qdq(mod)) == ["qnn.conv2d", "nn.bias_add", "qnn.requantize"]


def test_int8_and_uint8_operands_of_a_sum() -> None:
    """qnn.add takes one dtype: the other operand moves by 128, with its zero point."""
    x = relay.var("x", relay.TensorType((2, 4), "uint8"))
    z = relay.var("z", relay.TensorType((2, 4), "int8"))
    total = relay.add(
        relay.qnn.op.dequantize(x, relay.const(0.5), relay.const(130)),
        relay.qnn.op.dequantize(z, relay.const(0.25), relay.const(-7)),
    )
    rounded = relay.qnn.op.quantize(total, relay.const(0.5), relay.const(3), 1, "int8")
    mod = tvm.IRModule.from_expr(relay.Function([x, z], rounded))
    new = integers_from_qdq(mod)
    assert operators(new) == ["qnn.requantize", "qnn.add"]
    inputs = {"x": np.arange(8, dtype="uint8").reshape(2, 4) * 31}
    inputs["z"] = np.arange(8, dtype="int8").reshape(2, 4) * 30 - 100
    (want,), (got,) = computed(mod, inputs), computed(new, inputs)
    assert np.abs(want.astype(int) - got.astype(int)).max() <= 1


def test_a_scale_per_channel_of_values_stays() -> None:
    x = relay.var("x", relay.TensorType((2, 4), "uint8"))
    scales, zero = relay.const(np.full(4, 0.5, "float32")), relay.const(np.zeros(4, "int32"))
    value = relay.nn.relu(relay.qnn.op.dequantize(x, scales, zero, axis=1))
    mod = tvm.IRModule.from_expr(relay.qnn.op.quantize(value, scales, zero, 1, "uint8"))
    assert integers_from_qdq(mod).same_as(mod)
    (found,) = float_operators(mod)
    assert str(found) == "nn.relu '': scales: found 4, allowed one for the whole tensor"


def test_modules_without_pairs_are_returned_as_they_are() -> None:
    x = relay.var("x", shape=(2, 4))
    for body in (relay.nn.relu(x), relay.Let(relay.var("a"), x, x)):
        mod = tvm.IRModule.from_expr(relay.Function([x], body))
        assert integers_from_qdq(mod).same_as(mod)


def test_a_function_with_let_is_named() -> None:
    x = relay.var("x", shape=(2, 4))
    a = relay.var("a", shape=(2, 4))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.Let(a, relay.nn.relu(x), a)))
    assert [str(each) for each in float_operators(mod)] == [
        "function 'main': it holds let, if or inner functions"
    ]


# --- Networks as onnxruntime.quantization writes them ---


class Samples(CalibrationDataReader):
    def __init__(self) -> None:
        self.left = [{"x": normal(1, 4, 8, 8, seed=seed)} for seed in range(4)]

    def get_next(self) -> dict[str, Array] | None:
        return self.left.pop() if self.left else None


def network() -> onnx.ModelProto:
    """A residual block with edges of float32, as an exporter writes it."""
    weights = {
        "w": normal(6, 4, 3, 3),
        "b": normal(6, seed=2),
        "v": normal(6, 6, 3, 3, seed=3) / 4,
        "d": normal(6, 1, 3, 3, seed=4),
        "f": normal(10, 6, seed=5),
        "g": normal(10, seed=6),
    }
    same = {"pads": [1, 1, 1, 1]}
    nodes = (
        node("Conv", "x w b", "c", **same),
        node("Relu", "c", "r"),
        node("Conv", "r v", "k", **same),
        node("Add", "k r", "a"),
        node("Relu", "a", "s"),
        node("Conv", "s d", "e", group=6, **same),
        node("Sigmoid", "e", "t"),
        node("Mul", "e t", "m"),
        node("GlobalAveragePool", "m", "p"),
        node("Flatten", "p", "l"),
        node("Gemm", "l f g", "y", transB=1),
    )
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


@pytest.mark.parametrize(
    ("form", "activations"),
    [
        (QuantFormat.QDQ, QuantType.QInt8),
        (QuantFormat.QOperator, QuantType.QUInt8),
    ],
    ids=str,
)
def test_quantize_static(form: QuantFormat, activations: QuantType, tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "int8.onnx",
        Samples(),
        quant_format=form,
        activation_type=activations,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    proto = onnx.load(tmp_path / "int8.onnx")
    mod = integers_from_qdq(imported(proto))
    assert float_operators(mod) == ()
    assert re.sub(r"\W+", " ", " ".join(floats(mod))) == "qnn dequantize sigmoid qnn dequantize"
    inputs = {"x": normal(1, 4, 8, 8, seed=9)}
    (got,), (want,) = computed(mod, inputs), run_onnx(proto, inputs)
    scale = next(numpy_helper.to_array(t) for t in proto.graph.initializer if t.name == "y_scale")
    assert np.abs(got - want).max() <= 2.01 * scale


def of_image(weights: dict[str, Array], *nodes: NodeProto) -> onnx.ModelProto:
    """A float model from "x" of shape [1, 4, 8, 8] to "y"."""
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in (("x", (1, 4, 8, 8)), ("y", None))
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "network", *ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def squeeze_and_excite(gate: str) -> onnx.ModelProto:
    """Channels times a function of their means."""
    return of_image(
        {"w": normal(6, 4, 3, 3), "v": normal(6, 6, 1, 1), "u": normal(2, 6, 1, 1)},
        node("Conv", "x w", "c"),
        node("GlobalAveragePool", "c", "p"),
        node("Conv", "p v", "d"),
        node(gate, "d", "g"),
        node("Mul", "c g", "m"),
        node("Conv", "m u"),
    )


def along_time() -> onnx.ModelProto:
    """Convolutions and pooling along one dimension."""
    return of_image(
        {"s": np.array([1, 32, 8]), "w": normal(6, 32, 3), "b": normal(6), "v": normal(3, 6, 2)},
        node("Reshape", "x s", "r"),
        node("Conv", "r w b", "c", pads=[1, 1]),
        node("Relu", "c", "e"),
        node("MaxPool", "e", "p", kernel_shape=[2], strides=[2]),
        node("Conv", "p v", "d"),
        node("GlobalAveragePool", "d"),
    )


@pytest.mark.parametrize(
    ("proto", "form"),
    [
        (squeeze_and_excite("Sigmoid"), QuantFormat.QDQ),
        (squeeze_and_excite("HardSigmoid"), QuantFormat.QDQ),
        (squeeze_and_excite("Sigmoid"), QuantFormat.QOperator),
        (along_time(), QuantFormat.QDQ),  # TVM's importer takes no QLinearConv of one dimension
    ],
    ids=["sigmoid-qdq", "hard_sigmoid-qdq", "sigmoid-qoperator", "along_time-qdq"],
)
def test_a_quantized_file_is_one_region(
    proto: onnx.ModelProto, form: QuantFormat, tmp_path: Path
) -> None:
    """quantize_static quantizes each edge, also that between a gate and its product."""
    float_file, quantized_file = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    onnx.save(proto, float_file)
    quantize_static(float_file, quantized_file, Samples(), quant_format=form, per_channel=True)
    mod = partition_for_tinyai(imported(onnx.load(quantized_file)), strict=True)
    assert len(regions(mod)) == 1
