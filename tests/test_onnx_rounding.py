"""Each operator under ``rounding="onnx"`` gives ONNX Runtime's integers.

The graph runs by its numpy references here; that compiled C equals them is proven elsewhere.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from tvm import relay

import tinyai
from tests.onnx_models import Array, quantized
from tests.qdq_cases import INTEGERS, TABLES
from tinyai.frontends.relay import partition_for_tinyai, regions
from tinyai.frontends.relay_source import graph_from_region
from tinyai.passes import optimize
from tinyai.reference import run_graph

pytestmark = pytest.mark.filterwarnings(
    r"ignore:.mapping\.\w+. is now deprecated:DeprecationWarning"
)
MODELS = INTEGERS | TABLES
# What tinyai leaves on the host, or TVM's importer computes before it gets there.
NOT_ONE_REGION = {
    *("matmul_scaled", "matmul_of_two", "matmul_batched_constant"),  # products of two values
    "reshape_same_scale",  # moves values only: not worth a region
}


def onnx_runtime(proto, inputs: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return list(session.run(None, inputs))


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


def softmax_model(
    dtype: str, shape: tuple[int, ...], scales: tuple[float, float], zeros: tuple[int, int]
) -> ModelProto:
    """dequantize, softmax along axis 1, quantize."""
    kind = getattr(TensorProto, dtype.upper())
    constants = {"xs": np.float32(scales[0]), "ys": np.float32(scales[1])}
    constants |= {
        name: np.array(zero, dtype) for name, zero in zip(("xz", "yz"), zeros, strict=True)
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"], axis=1),
        helper.make_node("QuantizeLinear", ["b", "ys", "yz"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    ends = [[helper.make_tensor_value_info(name, kind, shape)] for name in "xy"]
    graph = helper.make_graph(nodes, "softmax", *ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


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
        mod = relay.frontend.from_onnx(proto, freeze_params=True)[0]
        mod = partition_for_tinyai(mod, strict=True, rounding="onnx")
        (region,) = regions(mod).values()
        (found,) = run_graph(optimize(graph_from_region(region)), [x])
        np.testing.assert_array_equal(found, onnx_runtime(proto, {"x": x})[0])


def test_a_softmax_that_overflows_in_onnx_runtime_stays_on_the_host() -> None:
    """Of one value, at 1/256: the kernel's float32 is infinite, and its integer undefined."""
    proto = softmax_model("uint8", (3, 1), (0.1, 1 / 256), (0, 0))
    mod = relay.frontend.from_onnx(proto, freeze_params=True)[0]
    report = tinyai.explain(mod, rounding="onnx")
    assert "scale of a softmax" in {row.reason.clause for row in report.computing}
