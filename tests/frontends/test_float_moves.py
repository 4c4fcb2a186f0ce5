"""Floats that are only moved behind their dequantize are part of a network: no host is needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tinyai
from tests.support.random_onnx import random_float_ends, run
from tinyai.errors import BoundaryError
from tinyai.frontends.model import network_of
from tinyai.ir import Array
from tinyai.passes import optimize
from tinyai.reference import run_graph
from tinyai.target import ROUNDINGS, Target

MODELS = 120
# Of these the emitted C runs too.
COMPILED = 12

TEXT = """
    <ir_version: 8, opset_import: ["" : 13]>
    ends (int8[2,3,4] x) => ({outputs})
    <float scale = {{0.1}}, float other = {{7.0}}, int8 zero = {{3}}>
    {{
        small = DequantizeLinear(x, scale, zero)
        large = DequantizeLinear(x, other, zero)
        {body}
    }}
"""


def model(body: str, outputs: str = "float[N] y") -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT.format(body=body, outputs=outputs))


def by_tinyai(proto: onnx.ModelProto, folder: Path, *inputs: Array) -> list[Array]:
    onnx.save(proto, folder / "net.onnx")
    return tinyai.Model(tinyai.compile(folder / "net.onnx", folder / "net.so"))(inputs)


def test_random_moves_give_the_floats_of_onnx_runtime(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    for seed in range(MODELS):
        made = random_float_ends(seed)
        onnx.save(made.integers, file)
        network = network_of(file, Target(rounding=ROUNDINGS[seed % len(ROUNDINGS)]))
        inputs = [made.inputs[port.name] for port in network.inputs]
        (wanted,) = run(made.integers, made.inputs)
        (found,) = run_graph(optimize(network.graph), inputs)
        np.testing.assert_array_equal(found, wanted, strict=True, err_msg=f"seed {seed}")
        if seed < COMPILED:
            (found,) = by_tinyai(made.integers, tmp_path, *inputs)
            np.testing.assert_array_equal(found, wanted, strict=True, err_msg=f"seed {seed}")


def test_parts_of_two_scales_are_one_result(tmp_path: Path) -> None:
    proto = model("y = Concat<axis = 2>(small, large)", "float[2,3,8] y")
    x = np.random.default_rng(0).integers(-128, 128, (2, 3, 4)).astype(np.int8)
    (found,), (wanted,) = by_tinyai(proto, tmp_path, x), run(proto, {"x": x})
    np.testing.assert_array_equal(found, wanted, strict=True)


def test_a_value_is_a_result_and_a_part_of_another(tmp_path: Path) -> None:
    body = "moved = Transpose<perm = [0, 2, 1]>(small)  y = Concat<axis = 0>(moved, moved)"
    proto = model(body, "float[2,4,3] moved, float[4,4,3] y")
    x = np.random.default_rng(0).integers(-128, 128, (2, 3, 4)).astype(np.int8)
    for found, wanted in zip(by_tinyai(proto, tmp_path, x), run(proto, {"x": x}), strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("both = Concat<axis = 2>(small, large)  y = Softmax(both)", "Concat"),
        ("sum = Add(small, large)  y = Transpose(sum)", "Add"),
    ],
)
def test_floats_that_are_computed_with_are_not(body: str, named: str, tmp_path: Path) -> None:
    onnx.save(model(body), tmp_path / "net.onnx")
    with pytest.raises(BoundaryError, match=f"{named} .*float32"):
        tinyai.compile(tmp_path / "net.onnx", tmp_path / "net.so")
