"""What TVM's ONNX importer writes as functions of TIR is read as the operators that it was, by what
the functions compute; of others the report tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from tests.relax.functions import SHAPE, Net, images, module
from tests.relax.nets import OPTIONS, assert_equal, built, imported, onnx_runtime, regions, run
from tinyai.frontends.relax.from_tir import read_back
from tinyai.relax import explain, partition_for_tinyai

PADS = [0, 0, 1, 2, 0, 1, 3, 0]


def model_of(
    operator: str, *constants: Any, opset: int = 19, step: float = 0.07, **attributes: Any
) -> onnx.ModelProto:
    """One operator between pairs; of constants None is an operand that is left out."""
    known = {f"c{n}": np.asarray(c) for n, c in enumerate(constants) if c is not None}
    pairs = {"s": np.float32(0.05), "t": np.float32(step), "z": np.int8(3)}
    operands = [f"c{n}" if c is not None else "" for n, c in enumerate(constants)]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"], "dequantized"),
        helper.make_node(operator, ["f", *operands], ["g"], operator, **attributes),
        helper.make_node("QuantizeLinear", ["g", "t", "z"], ["y"], "quantized"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.INT8, SHAPE)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in {**known, **pairs}.items()],
    )
    domains = [helper.make_opsetid("", opset)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=domains, ir_version=9)
    )


def int64(*values: int) -> Any:
    return np.array(values, np.int64)


MODELS = {
    "zeros": model_of("Pad", int64(*PADS)),
    "a number": model_of("Pad", int64(*PADS), np.float32(0.7)),
    "taken away": model_of("Pad", int64(0, 0, -1, 2, 0, 0, 1, -3), np.float32(-1.3)),
    "edge": model_of("Pad", int64(*PADS), mode="edge"),
    "reflect": model_of("Pad", int64(*PADS[:4], 0, 0, 3, 0), mode="reflect"),
    "wrap": model_of("Pad", int64(*PADS), mode="wrap"),
    "attributes": model_of("Pad", opset=10, pads=PADS, value=0.4),
    "tile": model_of("Tile", int64(1, 2, 1, 3)),
    "at most": model_of("Clip", None, np.float32(1.5)),
    "at least": model_of("Clip", np.float32(-0.5)),
    "between": model_of("Clip", np.float32(-0.5), np.float32(1.5)),
    "between attributes": model_of("Clip", opset=10, min=-0.5, max=1.5),
    "one attribute": model_of("Clip", opset=10, max=1.5),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_operator_that_is_imported_as_tir_is_one_region_and_equals_onnx_runtime(
    name: str,
) -> None:
    model = MODELS[name]
    mod = imported(model)
    report = explain(mod, **OPTIONS)
    assert report.host == ()
    (region,) = report.regions
    assert region.operators
    made = partition_for_tinyai(mod, **OPTIONS)
    inputs = images()
    assert_equal(run(built(made), inputs), onnx_runtime(model)(inputs))


def test_an_image_of_more_rows_and_columns_is_read_as_onnx_runtime_does() -> None:
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    model = model_of("Resize", None, np.array([1, 1, 2, 3], np.float32), **attributes)
    mod, inputs = imported(model), images()
    assert explain(mod, **OPTIONS).host == ()
    wanted = onnx_runtime(model)(inputs)
    assert_equal(run(built(partition_for_tinyai(mod, **OPTIONS)), inputs), wanted)


def calls_of(mod: tvm.IRModule) -> list[Any]:
    blocks = mod["main"].body.blocks
    values = [binding.value for block in blocks for binding in block.bindings]
    return [v for v in values if getattr(getattr(v, "op", None), "name", "") == "relax.call_tir"]


def renamed(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """With the only function of TIR under another name."""
    (call,) = calls_of(mod)
    text = mod.script(show_meta=True).replace(f"{call.args[0].name_hint}(", f"{name}(")
    return tvm.script.from_source(text.replace(f"cls.{call.args[0].name_hint},", f"cls.{name},"))


@pytest.mark.parametrize(("name", "other"), [("tile", "maximum"), ("edge", "pad")])
def test_a_function_of_another_s_name_is_what_it_computes(name: str, other: str) -> None:
    mod, inputs = renamed(imported(MODELS[name]), other), images()
    made = partition_for_tinyai(mod, **OPTIONS)
    assert regions(made)
    assert_equal(run(built(made), inputs), onnx_runtime(MODELS[name])(inputs))


def test_a_function_that_is_nearly_an_operator_stays_on_the_host() -> None:
    mod = imported(MODELS["a number"])
    (call,) = calls_of(mod)
    assert str(read_back(call, mod).op.name) == "relax.nn.pad"
    text, part = mod.script(show_meta=True), "v_i2 - T.int64(1)"
    assert part in text
    altered = tvm.script.from_source(text.replace(part, f"T.max({part}, T.int64(0))"))
    (call,) = calls_of(altered)
    assert read_back(call, altered).same_as(call)
    (row,) = [row for row in explain(altered, **OPTIONS).host if row.computes]
    assert row.operator == "relax.call_tir of pad"


def test_functions_of_tir_that_are_no_operator_of_relax_s_are_told_with_what_to_try() -> None:
    equation = model_of("Einsum", opset=13, equation="nchw->nhwc")
    report = explain(imported(equation), **OPTIONS)
    (row,) = [row for row in report.host if row.computes]
    assert row.operator == "relax.call_tir of einsum"
    assert "Einsum" in row.hint
    assert "LegalizeOps" in row.hint


def test_packed_functions_are_told_too() -> None:
    def body(net: Net, x: Any) -> Any:
        stem = net.convolution(x)
        copied = net.emit(relax.op.call_dps_packed("copied", relax.Tuple([stem]), out_ty=stem.ty))
        return net.relu(copied)

    report = explain(module(body), rounding="onnx", **OPTIONS)
    assert [row.operator for row in report.host if row.computes] == [
        "relax.call_dps_packed of copied"
    ]
    assert len(report.regions) == 2
