"""Small float .onnx files, quantized and compiled: their integers equal ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

import tinyai
from tests.support.onnx_models import run_onnx
from tinyai.frontends.quantize import QuantizedFile
from tinyai.ir import Array


def quantized(
    folder: Path,
    nodes: Sequence[NodeProto],
    samples: Sequence[dict[str, Array]],
    result: Sequence[int] | None = None,
    opset: int = 18,
    config: tinyai.QuantConfig | None = None,
    rank: bool = False,
    **numbers: Array,
) -> QuantizedFile:
    """Of a file from the samples' inputs to ``y``, of the first one's shape or ``result``; its
    integers equal ONNX Runtime's."""
    shape = result or next(iter(samples[0].values())).shape
    graph = helper.make_graph(
        list(nodes),
        "net",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in samples[0].items()
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, name) for name, value in numbers.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "f.onnx")
    made = tinyai.quantize_file(folder / "f.onnx", samples, config, rank=rank)
    assert not made.report.left
    made.save(folder / "q.onnx")
    network = tinyai.Model(tinyai.compile(folder / "q.onnx", folder / "net.so"))
    for sample in samples:
        (wanted,) = run_onnx(onnx.load(folder / "q.onnx"), sample)
        np.testing.assert_array_equal(network(sample)[0], wanted)
    return made
