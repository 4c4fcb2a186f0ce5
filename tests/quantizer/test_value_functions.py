"""The range of a value that one function alone reads is the best for what the function gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tinyai
from tests.support.random_onnx import run
from tinyai import QuantConfig
from tinyai.quantizer.params import Array, configured_grid
from tinyai.quantizer.value_functions import ValueFunction

node = helper.make_node


def hard_swish(values: Array) -> Array:
    return values * np.clip(values + 3, 0, 6) / 6


def test_a_function_is_known_between_its_pairs_and_beyond_them() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(0, 3, (4, 500)) for _ in range(3)]
    first, *others = (ValueFunction.of(part, hard_swish(part)) for part in parts)
    for other in others:
        first = first.merge(other)
    seen = np.sort(np.concatenate(parts).reshape(-1))
    np.testing.assert_allclose(first(seen), hard_swish(seen), atol=0.02)
    beyond = np.array([-50.0, -20.0, 15.0, 40.0])
    np.testing.assert_allclose(first(beyond), [0, 0, 15, 40], atol=0.2)


def test_a_function_of_one_number_is_a_constant() -> None:
    one = ValueFunction.of(np.full(9, 2.0), np.full(9, 7.0))
    assert one(np.array([-1.0, 2.0, 9.0])).tolist() == [7, 7, 7]


def network(folder: Path, behind: list[Any], outputs: tuple[str, ...] = ("y",)) -> Path:
    """A convolution ``a`` with results from about -12 to 12, and what reads it."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(0, 1.0, (8, 6, 1, 1)), "v": rng.normal(0, 0.3, (4, 8, 1, 1))}
    graph = helper.make_graph(
        [node("Conv", ["x", "w"], ["a"], "of_a"), *behind],
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 6, 12, 12))],
        [helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, None) for y in outputs],
        [onnx.numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    file = folder / "net.onnx"
    onnx.save(model, file)
    return file


def samples(count: int, seed: int = 1) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(0, 1.5, (1, 6, 12, 12)).astype(np.float32)} for _ in range(count)]


HARD_SWISH = [node("HardSwish", ["a"], ["h"], "of_h"), node("Conv", ["h", "v"], ["y"], "of_y")]
SILU = [
    node("Sigmoid", ["a"], ["s"], "of_s"),
    node("Mul", ["a", "s"], ["h"], "of_h"),
    node("Conv", ["h", "v"], ["y"], "of_y"),
]
ALSO = [*HARD_SWISH[:1], node("Add", ["a", "h"], ["b"], "of_b"), node("Conv", ["b", "v"], ["y"])]


def lowest(file: Path, **options: Any) -> float:
    """The lowest value on the grid of ``a``."""
    report = tinyai.quantize_file(file, samples(16), QuantConfig(**options)).report
    row = next(each for each in report.layers if each.name == "of_a")
    return (np.iinfo(row.dtype).min - row.zero_point) * row.scale


@pytest.mark.parametrize("behind", [HARD_SWISH, SILU], ids=["hard-swish", "SiLU"])
def test_what_a_function_makes_nothing_of_has_no_steps(tmp_path: Path, behind: Any) -> None:
    file = network(tmp_path, behind)
    assert lowest(file, observer="minmax") < -10
    assert -7 < lowest(file) < -2.9


@pytest.mark.parametrize(
    ("behind", "outputs"), [(ALSO, ("y",)), (HARD_SWISH, ("y", "a"))], ids=["a sum", "an output"]
)
def test_what_others_read_too_keeps_its_range(
    tmp_path: Path, behind: Any, outputs: tuple[str, ...]
) -> None:
    assert lowest(network(tmp_path, behind, outputs)) < -8


@pytest.mark.parametrize("behind", [HARD_SWISH, SILU], ids=["hard-swish", "SiLU"])
def test_results_are_nearer_than_by_the_whole_range(tmp_path: Path, behind: Any) -> None:
    file = network(tmp_path, behind)
    config = QuantConfig(rounding="nearest", correct_bias=False)
    made = tinyai.quantize_file(file, samples(16), config)
    row = next(each for each in made.report.layers if each.name == "of_a")
    made.save(tmp_path / "int8.onnx")
    floats, integers = onnx.load(file), onnx.load(tmp_path / "int8.onnx")
    wide = onnx.ModelProto()
    wide.CopyFrom(integers)
    grid = configured_grid(row.low, row.high, config)
    for each in wide.graph.initializer:
        if each.name == "a_scale":
            each.CopyFrom(onnx.numpy_helper.from_array(np.float32(grid.scale), each.name))
        if each.name == "a_zero_point":
            zero = np.asarray(grid.zero_point, grid.dtype)
            each.CopyFrom(onnx.numpy_helper.from_array(zero, each.name))
    noise = [
        sum(float(((run(floats, s)[0] - run(of, s)[0]) ** 2).sum()) for s in samples(8, seed=9))
        for of in (integers, wide)
    ]
    assert noise[0] < 0.95 * noise[1]
