"""The ONNX networks: valid, the same each time, alive after quantization, and TVM imports them."""

from __future__ import annotations

import functools
from typing import Any, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import tvm
from tvm import relay

from benchmarks import onnx_networks
from benchmarks.onnx_networks import FORMS, INPUT, NETWORKS, Cost, Network
from tinyai.checking.onnxruntime import exact_session

# TVM's importer reads onnx.mapping, which onnx deprecates.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:.mapping\.\w+. is now deprecated:DeprecationWarning"
)
each_network = pytest.mark.parametrize("network", NETWORKS, ids=str)
each_form = pytest.mark.parametrize("form", FORMS)

# What TVM's importer makes of each network, in QDQ and in QOperator form.
QDQ = {"qnn.quantize", "qnn.dequantize", "nn.conv2d", "nn.bias_add"}
QOPERATOR = {"qnn.quantize", "qnn.dequantize", "qnn.conv2d", "nn.bias_add", "qnn.requantize"}
CLASSIFIER = {"nn.global_avg_pool2d", "nn.batch_flatten"}
IMPORTED = {
    "mobilenet_v1": (
        QDQ | CLASSIFIER | {"add", "nn.dense"},
        QOPERATOR | CLASSIFIER | {"add", "qnn.dense"},
    ),
    "mobilenet_v2": (
        QDQ | CLASSIFIER | {"add", "nn.dense"},
        QOPERATOR | CLASSIFIER | {"add", "qnn.dense"},
    ),
    "resnet50": (
        QDQ | CLASSIFIER | {"add", "nn.dense", "nn.max_pool2d"},
        QOPERATOR | CLASSIFIER | {"add", "qnn.dense", "nn.max_pool2d"},
    ),
    "efficientnet_lite0": (
        QDQ | CLASSIFIER | {"add", "nn.dense"},
        QOPERATOR | CLASSIFIER | {"add", "qnn.dense"},
    ),
    "squeezenet": (
        QDQ | CLASSIFIER | {"nn.max_pool2d", "concatenate"},
        QOPERATOR | CLASSIFIER | {"nn.max_pool2d", "qnn.concatenate"},
    ),
    "unet": (
        QDQ | {"nn.max_pool2d", "nn.conv2d_transpose", "concatenate", "sigmoid"},
        QOPERATOR | {"nn.max_pool2d", "nn.conv2d_transpose", "qnn.concatenate", "sigmoid"},
    ),
    "ssd": (
        QDQ | {"add", "transpose", "reshape", "concatenate"},
        QOPERATOR | {"add", "transpose", "reshape", "qnn.concatenate"},
    ),
}

SLOW_IMPORTS = ("resnet50", "ssd", "mobilenet_v1")


@functools.cache
def small(network: Network) -> onnx.ModelProto:
    return network.build(**network.small)


@functools.cache
def quantized(network: Network, form: Any) -> onnx.ModelProto:
    return onnx_networks.quantize(small(network), form=form)


def run(model: onnx.ModelProto, seed: int) -> list[npt.NDArray[np.float32]]:
    """All outputs, each as one row of numbers."""
    session = exact_session(model.SerializeToString(), keeps_int8=False)
    (image,) = onnx_networks.images(onnx_networks.image_size(model), 1, seed=seed)
    return [y.reshape(-1) for y in session.run(None, {INPUT: image})]


@each_network
def test_float_models_are_valid_and_the_same_each_time(network: Network) -> None:
    model = small(network)
    onnx.checker.check_model(model, full_check=True)
    assert model.SerializeToString() == network.build(**network.small).SerializeToString()
    assert "BatchNormalization" not in {node.op_type for node in model.graph.node}


@each_network
@each_form
def test_quantized_networks_are_alive(network: Network, form: str) -> None:
    exact = run(small(network), seed=1)
    first, second = (run(quantized(network, form), seed) for seed in (1, 2))
    for expected, a, b in zip(exact, first, second, strict=True):
        assert np.isfinite(a).all()
        assert len(np.unique(a)) > 4
        assert not np.array_equal(a, b)
        assert np.abs(a - expected).mean() < 0.5 * expected.std()


@pytest.mark.parametrize("activation", onnx_networks.TYPES)
@pytest.mark.parametrize("per_channel", [True, False])
@each_form
def test_quantizing_is_repeatable(form: Any, activation: Any, per_channel: bool) -> None:
    model = small(NETWORKS[0])
    first, second = (
        onnx_networks.quantize(model, form=form, activation=activation, per_channel=per_channel)
        for _ in range(2)
    )
    assert first.SerializeToString() == second.SerializeToString()


@pytest.mark.long
@pytest.mark.parametrize(
    "network",
    [
        pytest.param(each, marks=[pytest.mark.slow] if each.name in SLOW_IMPORTS else [])
        for each in NETWORKS
    ],
    ids=str,
)
@each_form
def test_tvm_imports_the_quantized_networks(network: Network, form: str) -> None:
    mod, params = relay.frontend.from_onnx(quantized(network, form), freeze_params=True)
    assert not params
    assert operators(mod) == IMPORTED[network.name][list(FORMS).index(form)]


def operators(mod: tvm.IRModule) -> set[str]:
    """Names of the operators that main calls."""
    names: set[str] = set()

    def visit(node: relay.Expr) -> None:
        if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
            names.add(node.op.name)

    relay.analysis.post_order_visit(mod["main"], visit)
    return names


@pytest.mark.parametrize(
    ("build", "macs", "parameters"),
    [
        (onnx_networks.mobilenet_v1, 568_740_352, 4_221_032),
        (onnx_networks.mobilenet_v2, 300_774_272, 3_487_816),
    ],
)
def test_the_mobilenets_have_the_sizes_of_the_papers(
    build: Any, macs: int, parameters: int
) -> None:
    assert onnx_networks.cost(build()) == Cost(macs, parameters)


def test_the_table_of_forms_and_types_is_what_quantize_takes() -> None:
    hints = get_type_hints(onnx_networks.quantize)
    assert get_args(hints["form"]) == tuple(FORMS)
    assert get_args(hints["activation"]) == tuple(onnx_networks.TYPES)
