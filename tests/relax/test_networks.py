"""Whole networks: one region, nothing that computes on the host, and the framework's integers."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import tvm
from tvm import relax

from benchmarks.onnx_networks import quantize
from tests.relax.nets import (
    ONNX,
    OPTIONS,
    assert_equal,
    assert_one_graph,
    built,
    imported,
    onnx_runtime,
    regions,
    run,
    samples,
)
from tests.support.onnx_transposed import in_integers
from tinyai.relax import explain, partition_for_tinyai


@pytest.mark.parametrize("name", ONNX)
def test_a_network_in_qdq_form_is_one_region_and_equals_onnx_runtime(
    name: str, tmp_path: Path
) -> None:
    model = quantize(ONNX[name](), form="qdq", activation="uint8", per_channel=True)
    mod = imported(model)
    report = explain(mod, **OPTIONS)
    assert len(report.regions) == 1
    assert report.host == ()
    onnx.save(model, tmp_path / "net.onnx")
    assert_one_graph(mod, tmp_path / "net.onnx", "onnx")
    executable = built(partition_for_tinyai(mod, **OPTIONS))
    oracle = onnx_runtime(in_integers(model) if name == "unet" else model)
    shape = [int(dim) for dim in mod["main"].params[0].ty.shape.values]
    machine = relax.VirtualMachine(executable, tvm.cpu())
    assert regions(partition_for_tinyai(mod, **OPTIONS)) == ["tinyai_main_0"]
    for sample in samples(shape, 20):
        found = machine["main"](tvm.runtime.tensor(sample))
        outputs = [found] if hasattr(found, "numpy") else list(found)
        assert_equal([each.numpy() for each in outputs], oracle([sample]))
    assert_equal(run(executable, [sample]), oracle([sample]))
