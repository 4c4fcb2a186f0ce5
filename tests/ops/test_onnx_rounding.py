"""Each operator under ``rounding="onnx"`` gives ONNX Runtime's integers.

The graph runs by its numpy references here; that compiled C equals them is proven elsewhere.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from tvm import relay

import tinyai
from tests.support.onnx_models import Array, quantized
from tests.support.qdq_cases import BRANCHES, INTEGERS, TABLES
from tinyai.checking.onnxruntime import exact_session
from tinyai.frontends.relay import partition_for_tinyai, regions
from tinyai.frontends.relay.source import graph_from_region
from tinyai.passes import optimize
from tinyai.reference import run_graph

pytestmark = pytest.mark.filterwarnings(
    r"ignore:.mapping\.\w+. is now deprecated:DeprecationWarning"
)
MODELS = INTEGERS | TABLES | BRANCHES
# What tinyai leaves on the host, or TVM's importer computes before it gets there.
NOT_ONE_REGION = {
    "reshape_same_scale",  # moves values only: not worth a region
    *("two_sums_of_the_same", "two_functions_of_one_value"),  # nothing joins them
}


def onnx_runtime(proto, inputs: dict[str, Array]) -> list[Array]:
    return list(exact_session(proto.SerializeToString()).run(None, inputs))


@pytest.mark.parametrize("dtype", ["uint8", pytest.param("int8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name for name in MODELS if name not in NOT_ONE_REGION])
def test_an_operator_equals_onnx_runtime(name: str, dtype: str) -> None:
    proto, inputs = quantized(MODELS[name], dtype)
    mod = relay.frontend.from_onnx(proto, freeze_params=True)[0]
    mod = partition_for_tinyai(mod, strict=True, rounding="onnx")
    (region,) = regions(mod).values()
    graph = optimize(graph_from_region(region))
    call = mod["main"].body
    call = call.fields[0].tuple_value if isinstance(call, relay.Tuple) else call
    found = run_graph(graph, [inputs[argument.name_hint] for argument in call.args])
    expected = onnx_runtime(proto, inputs)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def between(
    nodes: list[NodeProto],
    shape: tuple[int, ...],
    scales: tuple[float, float],
    zeros: tuple[int, int],
    *dtypes: str,
) -> ModelProto:
    """dequantize, float ``nodes`` from a to b, quantize; ``dtypes`` of input and output, or one."""
    first, last = (dtypes * 2)[:2]
    constants = {
        "xs": np.float32(scales[0]),
        "ys": np.float32(scales[1]),
        "xz": np.array(zeros[0], first),
        "yz": np.array(zeros[1], last),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["a"]),
        *nodes,
        helper.make_node("QuantizeLinear", ["b", "ys", "yz"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    ends = [
        [helper.make_tensor_value_info(name, getattr(TensorProto, dtype.upper()), dims)]
        for name, dtype, dims in (("x", first, shape), ("y", last, [None] * len(shape)))
    ]
    graph = helper.make_graph(nodes, "between", *ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def assert_equal_to_onnx_runtime(proto: ModelProto, x: Array) -> None:
    mod = relay.frontend.from_onnx(proto, freeze_params=True)[0]
    mod = partition_for_tinyai(mod, strict=True, rounding="onnx")
    (region,) = regions(mod).values()
    (found,) = run_graph(optimize(graph_from_region(region)), [x])
    np.testing.assert_array_equal(found, onnx_runtime(proto, {"x": x})[0])


def softmax_model(
    dtype: str, shape: tuple[int, ...], scales: tuple[float, float], zeros: tuple[int, int]
) -> ModelProto:
    node = helper.make_node("Softmax", ["a"], ["b"], axis=1)
    return between([node], shape, scales, zeros, dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("shape", [(3, 2), (3, 10), (2, 100, 3), (2, 1000)])
def test_softmax_equals_onnx_runtime_at_any_scale(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(shape[1])
    info = np.iinfo(dtype)
    for output in (1 / 256, 1 / 255, 1 / 100, 0.3):
        scales = float(np.exp(rng.uniform(-7, 0.5))), output
        zeros = tuple(map(int, rng.integers(info.min, info.max + 1, 2)))
        proto = softmax_model(dtype, shape, scales, zeros)
        x = rng.integers(info.min, info.max + 1, shape).astype(dtype)
        assert_equal_to_onnx_runtime(proto, x)


def test_a_softmax_that_overflows_in_onnx_runtime_stays_on_the_host() -> None:
    """Of one value, at 1/256: the kernel's float32 is infinite, and its integer undefined."""
    proto = softmax_model("uint8", (3, 1), (0.1, 1 / 256), (0, 0))
    mod = relay.frontend.from_onnx(proto, freeze_params=True)[0]
    report = tinyai.explain(mod, rounding="onnx")
    assert "scale of a softmax" in {row.reason.clause for row in report.computing}


WINDOWS = {
    "2x2": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "4x4": {"kernel_shape": [4, 4], "strides": [1, 2]},
    "6x6": {"kernel_shape": [6, 6], "strides": [2, 2]},
    "3x3 padded": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    "3x3 padded, counted": {"kernel_shape": [3, 3], "pads": [1, 0, 2, 1], "count_include_pad": 1},
    "2x3 padded, counted": {"kernel_shape": [2, 3], "pads": [0, 1, 1, 0], "count_include_pad": 1},
    "5x5 padded": {"kernel_shape": [5, 5], "strides": [2, 2], "pads": [2, 2, 2, 2]},
    "7x7 padded": {"kernel_shape": [7, 7], "pads": [3, 3, 3, 3]},
    "7x7": {"kernel_shape": [7, 7], "strides": [7, 7]},
    "3x2 ceil": {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 0, 0], "ceil_mode": 1},
}
# Where ONNX Runtime has one operator for all three, and where it computes with floats.
PLACES = {
    "uint8": (("uint8",), ()),
    "int8": (("int8",), ()),
    "of two types": (("uint8", "int8"), ()),
    "in front of a ReLU": (("uint8",), ("Relu",)),
}


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("window", WINDOWS)
def test_an_average_pooling_equals_onnx_runtime_at_ties(window: str, place: str) -> None:
    """Equal scales, and one that is half of the other, put many averages half way between steps."""
    dtypes, behind = PLACES[place]
    rng = np.random.default_rng(len(window))
    names = ["a", *(f"a{i}" for i in range(len(behind))), "b"]
    nodes = [
        helper.make_node(kind, [before], [after], **(WINDOWS[window] if before == "a" else {}))
        for kind, before, after in zip(("AveragePool", *behind), names, names[1:], strict=False)
    ]
    nodes[-1].output[0] = "b"
    shape = (2, 9, 14, 15)
    for ratio in (1.0, 0.5, rng.uniform(0.5, 1)):
        scale = np.float32(rng.uniform(0.001, 0.1))
        zeros = tuple(
            int(rng.integers(np.iinfo(d).min, np.iinfo(d).max + 1)) for d in (dtypes * 2)[:2]
        )
        proto = between(nodes, shape, (scale, np.float32(scale * ratio)), zeros, *dtypes)
        info = np.iinfo(dtypes[0])
        x = rng.integers(info.min, info.max + 1, shape).astype(dtypes[0])
        assert_equal_to_onnx_runtime(proto, x)


def test_an_average_pooling_along_one_dimension_equals_onnx_runtime_at_ties() -> None:
    x = np.random.default_rng(0).integers(-128, 128, (2, 5, 40)).astype("int8")
    node = helper.make_node("AveragePool", ["a"], ["b"], kernel_shape=[4], pads=[1, 2])
    proto = between([node], x.shape, (0.0137, 0.0137), (3, 3), "int8")
    assert_equal_to_onnx_runtime(proto, x)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_scales_and_zero_points_for_each_channel_equal_onnx_runtime(dtype: str) -> None:
    kind, shape = getattr(TensorProto, dtype.upper()), (2, 3, 256)
    constants = {
        "xs": np.float32([0.1, 0.02, 1.7]),
        "xz": np.array([3, 0, 120], dtype),
        "ys": np.float32([0.07, 0.01, 2.5]),
        "yz": np.array([7, 90, 1], dtype),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["a"], axis=1),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "ys", "yz"], ["y"], axis=1),
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    ends = [[helper.make_tensor_value_info(name, kind, shape)] for name in "xy"]
    graph = helper.make_graph(nodes, "channels", *ends, tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    x = np.resize(np.arange(256, dtype=np.uint8).view(dtype), shape)
    mod = relay.frontend.from_onnx(proto, freeze_params=True)[0]
    (region,) = regions(partition_for_tinyai(mod, strict=True, rounding="onnx")).values()
    (found,) = run_graph(optimize(graph_from_region(region)), [x])
    np.testing.assert_array_equal(found, onnx_runtime(proto, {"x": x})[0])


def test_a_log_softmax_stays_on_the_host() -> None:
    """ONNX Runtime computes it in float, by exponentials of its own."""
    x = relay.var("x", shape=(2, 10), dtype="int8")
    scale, zero = relay.const(0.1), relay.const(3)
    value = relay.nn.log_softmax(relay.qnn.op.dequantize(x, scale, zero))
    mod = tvm.IRModule.from_expr(relay.qnn.op.quantize(value, scale, zero, out_dtype="int8"))
    (row,) = tinyai.explain(mod, rounding="onnx").computing
    assert row.reason.clause == "ONNX Runtime's arithmetic of"
    assert "upward" in row.hint
    assert tinyai.explain(mod).computing == ()


# --- Operators of two tensors, at ties -----------------------------------------------------------


def quantized_operator(
    kind: str, operands: dict[str, Array], constants: set[str], scales: tuple[float, float, float]
) -> tuple[ModelProto, dict[str, Array]]:
    """QLinearAdd, QLinearMul or QLinearMatMul of a and b, and the inputs that are no constants."""
    dtype = operands["a"].dtype
    zeros = (3, -5, 7) if dtype == np.int8 else (131, 120, 100)
    tensors = {name: operands[name] for name in constants}
    for side, scale, zero in zip("aby", scales, zeros, strict=True):
        tensors |= {f"{side}s": np.float32(scale), f"{side}z": np.array(zero, dtype)}
    domain = "" if kind == "QLinearMatMul" else "com.microsoft"
    names = ["a", "as", "az", "b", "bs", "bz", "ys", "yz"]
    node = helper.make_node(kind, names, ["y"], domain=domain)
    inputs = {name: value for name, value in operands.items() if name not in constants}
    kinds = helper.np_dtype_to_tensor_dtype(dtype)
    combined = np.matmul if kind == "QLinearMatMul" else np.add
    shape = combined(operands["a"], operands["b"]).shape
    graph = helper.make_graph(
        [node],
        "operator",
        [helper.make_tensor_value_info(n, kinds, v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info("y", kinds, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()],
    )
    domains = [helper.make_opsetid("", 15), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8), inputs


def assert_operator_equals_onnx_runtime(proto: ModelProto, inputs: dict[str, Array]) -> None:
    mod = relay.frontend.from_onnx(proto, freeze_params=True)[0]
    mod = partition_for_tinyai(mod, strict=True, rounding="onnx")
    (region,) = regions(mod).values()
    call = mod["main"].body
    values = [inputs[argument.name_hint] for argument in call.args]
    (found,) = run_graph(optimize(graph_from_region(region)), values)
    assert np.unique(found).size >= 20
    np.testing.assert_array_equal(found, onnx_runtime(proto, inputs)[0])


IMAGES = (2, 40, 9)
SHAPES = {
    "alike": (IMAGES, IMAGES),
    "rows first": ((9,), IMAGES),
    "channels first": ((1, 40, 1), IMAGES),
    "channels second": (IMAGES, (1, 40, 1)),
    "images first": ((40, 9), IMAGES),
    "one number first": ((1,), IMAGES),
    "one number second": (IMAGES, (1,)),
    "both of one row": ((2, 1, 1), (2, 40, 1)),
}


@pytest.mark.long
@pytest.mark.parametrize("constants", [set(), {"a"}, {"b"}], ids=["none", "first", "second"])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_sum_equals_onnx_runtime_at_ties_whichever_side_is_constant(
    dtype: str, shapes: str, constants: set[str]
) -> None:
    """Two fused multiply-adds: which side comes last decides ties."""
    info, rng = np.iinfo(dtype), np.random.default_rng(len(shapes))
    for scales in ((0.045, 0.0225, 0.03), (0.045, 0.0225, 0.09), (0.011, 0.027, 0.02)):
        operands = {
            side: rng.integers(info.min, info.max, shape, dtype, endpoint=True)
            for side, shape in zip("ab", SHAPES[shapes], strict=True)
        }
        if "a" in constants and operands["a"].size == 1:
            continue  # TVM's importer makes it a number
        proto, inputs = quantized_operator("QLinearAdd", operands, constants, scales)
        assert_operator_equals_onnx_runtime(proto, inputs)


@pytest.mark.parametrize(
    "shapes", [((6, 16), (16, 9)), ((2, 6, 16), (16, 9)), ((2, 3, 6, 16), (16, 9))]
)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_product_of_matrices_equals_onnx_runtime_at_ties(
    dtype: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    info, rng = np.iinfo(dtype), np.random.default_rng(7)
    for scales in ((0.1, 0.3, 6.0), (0.045, 0.0225, 0.045 * 0.0225 * 150), (0.011, 0.027, 0.05)):
        operands = {
            side: rng.integers(info.min, info.max, shape, dtype, endpoint=True)
            for side, shape in zip("ab", shapes, strict=True)
        }
        proto, inputs = quantized_operator("QLinearMatMul", operands, {"b"}, scales)
        assert_operator_equals_onnx_runtime(proto, inputs)
