"""Each operator under ``rounding="onnx"`` gives ONNX Runtime's integers.

The graph runs by its numpy references here; that compiled C equals them is proven elsewhere.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from tvm import relay

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
    "gather",  # a take
    "reshape_same_scale",  # moves values only: not worth a region
}
ONE_STEP_APART = {"softmax", "softmax_of_4d"}  # TVM's float softmax


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
    apart = max(
        int(np.abs(a.astype(int) - b.astype(int)).max())
        for a, b in zip(found, expected, strict=True)
    )
    assert apart <= (name in ONE_STEP_APART)
