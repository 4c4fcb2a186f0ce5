"""Random convolutional networks of float images in planes, quantized by ONNX Runtime to int8 or
uint8: the same integers as its kernels', and what the pairs mean in floats.

Their first node quantizes and interleaves the planes, and where activations are int8, images
between layers become unsigned.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

import tinyai
from benchmarks.float_networks import sqnr
from benchmarks.onnx_networks import INPUT, Net, Value, quantize
from tests.support.random_onnx import run
from tinyai.checking.onnxruntime import OnnxRuntimeOracle
from tinyai.ir import Array
from tinyai.passes import make_unsigned, optimize

ISAS = ("auto", "scalar", "generic", "native")
SEEDS = [pytest.param(n, marks=() if n < 12 else pytest.mark.slow) for n in range(120)]


def random_network(seed: int) -> tuple[onnx.ModelProto, list[Array]]:
    """A quantized network, and images for it."""
    rng = np.random.default_rng([seed, 2])
    size, planes = int(rng.integers(5, 24)), int(rng.integers(2, 10))
    net = Net("images", size)
    net.rng = rng
    x = net.image = Value(INPUT, planes, size)
    x = _convolution(net, x, rng)
    for _ in range(int(rng.integers(1, 5))):
        match rng.choice(["conv", "depthwise", "residual", "pool", "concat"]):
            case "conv":
                x = _convolution(net, x, rng)
            case "depthwise":
                x = net.conv(x, x.channels, 3, groups=x.channels, activation="relu")
            case "residual":
                x = net.add(x, net.conv(x, x.channels, 3))
            case "pool" if x.size > 3:
                x = net.max_pool(x, 3, 1)
            case "concat":
                x = net.concat(net.conv(x, 8, 1), net.conv(x, 5, 3, activation="relu"))
    model = net.classify(_convolution(net, x, rng), int(rng.integers(2, 30)))
    images = [rng.normal(0, 1, (1, planes, size, size)).astype(np.float32) for _ in range(12)]
    quantized = quantize(model, activation="int8" if seed % 3 else "uint8", calibration=images[:8])
    return quantized, images[8:]


def _convolution(net: Net, x: Value, rng: np.random.Generator) -> Value:
    channels, kernel = int(rng.choice([3, 8, 16, 20, 40])), int(rng.choice([1, 3, 5]))
    stride = int(rng.integers(1, 3)) if x.size > kernel else 1
    activation = "relu" if rng.integers(2) else None
    return net.conv(x, channels, kernel, stride=stride, activation=activation)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_network_of_planes_equals_onnx_runtime_s_integers(seed: int, tmp_path: Path) -> None:
    network, images = random_network(seed)
    file = tmp_path / "images.onnx"
    onnx.save(network, file)
    model = tinyai.Model(file, f"tinyai -isa={ISAS[seed % len(ISAS)]}")
    found = [np.asarray(model(image)[0]) for image in images]
    in_integers = OnnxRuntimeOracle(file, [INPUT]).results([(image,) for image in images])
    np.testing.assert_array_equal(found, [wanted for (wanted,) in in_integers])
    in_floats = [run(network, {INPUT: image})[0] for image in images]
    equal = all(map(np.array_equal, in_floats, found))
    assert equal or sqnr(in_floats, found) > 30


def test_the_networks_have_what_they_are_for(tmp_path: Path) -> None:
    seen = Counter[str]()
    file = tmp_path / "images.onnx"
    for seed in range(12):
        onnx.save(random_network(seed)[0], file)
        graph = optimize(tinyai.network_of(file).graph)
        unsigned = make_unsigned(graph)
        seen["planes"] += any(node.op.name == "interleave" for node in graph.nodes)
        seen["unsigned"] += any(
            graph.type(n.output) != unsigned.type(n.output) for n in graph.nodes
        )
    assert seen["planes"] >= 8
    assert seen["unsigned"] >= 5
