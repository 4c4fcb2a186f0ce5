"""A whole model as one graph: the same as the one region of a partition, with the file's ports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

import tinyai
from tests.support.paths import MODELS
from tinyai.c_reserved import is_reserved
from tinyai.errors import BoundaryError, OptionError
from tinyai.frontends.relay.functions import regions
from tinyai.frontends.relay.load import load_model
from tinyai.frontends.relay.partition import partition_for_tinyai
from tinyai.frontends.relay.source import graph_from_region
from tinyai.frontends.relay.whole import network_of
from tinyai.ir import DType
from tinyai.network import c_name
from tinyai.target import Target

TFLITE = Target(rounding="tflite")
INT8 = [
    *("ad01_int8", "kws_ref_model", "mcunet_vww", "mobilenet_v1_int8", "mobilenet_v2_int8"),
    *("pretrainedResnet_quant", "vww_96_int8"),
]


@pytest.mark.parametrize("name", ["ad01_int8", "kws_ref_model", "pretrainedResnet_quant"])
def test_the_graph_of_a_network_is_that_of_its_only_region(name: str) -> None:
    file = MODELS / f"{name}.tflite"
    (func,) = regions(partition_for_tinyai(file, rounding="tflite")).values()
    expected, found = graph_from_region(func), network_of(file, TFLITE).graph
    assert str(replace(expected, name="")) == str(replace(found, name=""))
    assert all(np.array_equal(value, found.constants[n]) for n, value in expected.constants.items())


@pytest.mark.parametrize("name", INT8)
def test_int8_networks_are_whole_with_names_and_scales_of_the_file(name: str) -> None:
    tflite = pytest.importorskip("tflite")
    file = MODELS / f"{name}.tflite"
    network = network_of(file, TFLITE)
    assert network.name == name
    graph = tflite.Model.GetRootAsModel(file.read_bytes(), 0).Subgraphs(0)
    for ports, indices in (
        (network.inputs, graph.InputsAsNumpy()),
        (network.outputs, graph.OutputsAsNumpy()),
    ):
        for port, index in zip(ports, indices, strict=True):
            tensor = graph.Tensors(index)
            assert port.name == tensor.Name().decode()
            assert port.type.shape == tuple(tensor.ShapeAsNumpy())
            assert port.type.dtype == ("float32" if name == "mcunet_vww" else "int8")
            if port.quant is None:
                assert name == "mcunet_vww"
            else:
                assert port.quant.scale == (float(tensor.Quantization().Scale(0)),)
                assert port.quant.zero_point == tensor.Quantization().ZeroPoint(0)


def test_a_network_that_only_the_files_rounding_refuses_is_told_the_one_that_takes_it() -> None:
    x = relay.var("x", shape=(1, 8), dtype="int8")
    real = relay.qnn.op.dequantize(x, relay.const(0.1), relay.const(0))
    y = relay.qnn.op.quantize(relay.exp(real), relay.const(0.1), relay.const(0), out_dtype="int8")
    mod = tvm.IRModule.from_expr(relay.Function([x], y))
    assert network_of(mod).rounding == "upward"
    with pytest.raises(BoundaryError, match=r"--rounding upward, in Python rounding=.*TFLite's"):
        network_of(mod, "tinyai -rounding=tflite")
    with pytest.raises(BoundaryError) as refused:  # no rounding takes floats
        network_of(tvm.IRModule.from_expr(relay.Function([x], relay.exp(real))))
    assert "--rounding" not in str(refused.value)


def test_a_function_that_somebody_else_reads_is_refused_with_the_reason() -> None:
    x = relay.var("x", shape=(1, 8), dtype="int8")
    scale = relay.const(0.1), relay.const(0)
    power = relay.exp(relay.qnn.op.dequantize(x, *scale))
    table = relay.qnn.op.quantize(power, *scale, out_dtype="int8")
    both = relay.Function([x], relay.Tuple([table, power]))
    with pytest.raises(BoundaryError, match=r"(?s)exp: other readers: an output.*leaves the rest"):
        network_of(tvm.IRModule.from_expr(both))


def test_a_call_of_a_function_is_refused_as_one() -> None:
    x, y = (relay.var(name, shape=(4,), dtype="int32") for name in "xy")
    called = relay.Call(relay.Function([y], relay.clip(y, -3, 3)), [relay.clip(x, -5, 5)])
    with pytest.raises(BoundaryError, match=r"(?s)call.*a function"):
        network_of(tvm.IRModule.from_expr(relay.Function([x], called)))


def test_integer_ends_leave_out_the_quantize_in_front_and_the_dequantize_behind() -> None:
    file = MODELS / "mcunet_vww.tflite"
    floats, integers = network_of(file, TFLITE), network_of(file, TFLITE, ends="int8")
    (ins,), (outs,) = integers.inputs, integers.outputs
    assert (ins.type.dtype, outs.type.dtype) == (DType.INT8, DType.INT8)
    assert len(integers.graph.nodes) == len(floats.graph.nodes) - 2
    assert ins.quant is not None
    assert outs.quant is not None
    image = np.random.default_rng(1).uniform(-1, 1, ins.type.shape).astype(np.float32)
    scaled = np.round(image / np.float32(ins.quant.scale[0])) + ins.quant.zero_point
    quantized = np.clip(scaled, -128, 127).astype(np.int8)
    (expected,) = tinyai.run_graph(floats.graph, [image])
    (found,) = tinyai.run_graph(integers.graph, [quantized])
    real = np.float32(outs.quant.scale[0]) * (found.astype(np.float32) - outs.quant.zero_point)
    assert np.array_equal(real, expected)


def test_a_model_that_is_integers_at_both_ends_has_them_as_asked_for() -> None:
    file = MODELS / "kws_ref_model.tflite"
    assert network_of(file, TFLITE, ends="int8").inputs == network_of(file, TFLITE).inputs


def test_a_float_model_is_refused_with_the_report_of_explain() -> None:
    with pytest.raises(BoundaryError) as caught:
        network_of(MODELS / "ad01_fp32.onnx")
    assert caught.value.report.computing
    assert "no host" in str(caught.value)


def test_relay_text_brings_its_constants(tmp_path: Path) -> None:
    mod, params = load_model(MODELS / "kws_ref_model.tflite")
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    text = tmp_path / "kws.relay"
    text.write_text(mod.astext(show_meta_data=True))
    found, expected = network_of(text, TFLITE), network_of(mod, TFLITE, "kws")
    assert found.name == "kws"
    assert found.inputs[0].type == expected.inputs[0].type
    assert [n.op.name for n in found.graph.nodes] == [n.op.name for n in expected.graph.nodes]
    quants = [network.inputs[0].quant for network in (found, expected)]
    assert quants[0].zero_point == quants[1].zero_point
    assert quants[0].scale == pytest.approx(quants[1].scale, rel=1e-5)  # TVM prints six digits
    weights = [
        np.concatenate([v.ravel() for v in n.graph.constants.values() if v.dtype == "int8"])
        for n in (found, expected)
    ]
    assert np.array_equal(*weights)
    text.write_text("def @main(%x: Tensor[(1), int8]) { nonsense }")
    with pytest.raises(OptionError, match="importer for Relay"):
        network_of(text)


def _relay(build: str) -> tvm.IRModule:
    x = relay.var("x", shape=(1, 4), dtype="float32")
    scale, zero = relay.const(0.5, "float32"), relay.const(3, "int32")
    quantized = relay.qnn.op.quantize(x, scale, zero)
    clipped = relay.clip(quantized, 0, 100)
    real = relay.qnn.op.dequantize(clipped, scale, zero)
    ends = {
        "softmax": relay.nn.softmax(real),
        "read twice": real + x,
        "reshaped": relay.reshape(real, (2, 2)),
    }
    return tvm.IRModule.from_expr(relay.Function([x], ends[build]))


def test_a_reshape_of_floats_behind_the_dequantize_is_part_of_the_network() -> None:
    x = np.array([[-3, 1, 2.3, 100]], np.float32)
    (found,) = tinyai.run_graph(network_of(_relay("reshaped")).graph, [x])
    assert np.array_equal(found, [[-1.5, 1.0], [2.5, 48.5]])
    network = network_of(_relay("reshaped"), ends="int8")
    assert (network.outputs[0].type.shape, network.outputs[0].type.dtype) == ((2, 2), "int8")
    assert network.outputs[0].quant == network.inputs[0].quant is not None


@pytest.mark.parametrize("build", ["softmax", "read twice"])
def test_ends_that_are_not_integers_are_refused(build: str) -> None:
    with pytest.raises(OptionError, match="ends='int8'"):
        network_of(_relay(build), ends="int8")
    with pytest.raises(BoundaryError):
        network_of(_relay(build))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("kws", "kws"),
        ("my model-2.1", "my_model_2_1"),
        ("3d", "net_3d"),
        ("int", "net_int"),
        ("*/ x", "x"),
        ("ü", "net"),
        ("_x", "x"),
        ("memcpy", "net_memcpy"),  # which a library would give to the whole program
        ("main", "net_main"),
        ("linux", "net_linux"),  # 1, to gcc
        ("string", "net_string"),  # a package has string.h
        ("size", "net_size"),  # and size_t
        ("resnet_t", "resnet_t_net"),
    ],
)
def test_files_give_c_identifiers(text: str, name: str) -> None:
    assert c_name(text) == name
    assert not is_reserved(name)


@pytest.mark.parametrize("name", ["memcpy", "for", "linux", "INT32_MAX", "_exit", "int8_t"])
def test_a_name_of_cs_own_is_refused_with_another(name: str, tmp_path: Path) -> None:
    for act in (
        lambda: tinyai.compile(_relay("reshaped"), tmp_path / "net.so", name=name),
        lambda: tinyai.emit_c(_relay("reshaped"), tmp_path / "net", name=name),
    ):
        with pytest.raises(OptionError, match=f"(?s)found: *{name}.*try: *{c_name(name)}"):
            act()
    assert not is_reserved(c_name(name))
    assert not [*tmp_path.iterdir()]
