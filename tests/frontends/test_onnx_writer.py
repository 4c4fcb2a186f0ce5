"""Expressions of the vocabulary as ONNX: ONNX Runtime computes what they mean."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.random_onnx import run
from tests.support.random_stretches import OPERATORS, Model, random_model
from tests.support.stretches import compared
from tinyai.errors import OptionError
from tinyai.frontends.onnx.float_nodes import WRITTEN
from tinyai.frontends.onnx.load import read_model
from tinyai.frontends.onnx.writer import IR_VERSION, written
from tinyai.ir import Array
from tinyai.source import Expr, SourceType
from tinyai.vocabulary import call, constant

MODELS = 1500
MANY = 4000
# What no reader of files makes of floats, or what other tests are of.
ELSEWHERE = {"cast", "divide", "floor", "ceil", "function", "quantize", "dequantize", "resize2d"}
ELSEWHERE |= {"interpolate2d", "argmax", "argmin"}
LEAST = 3


def results_of(model: Model) -> list[Array]:
    names = {expr: f"x{number}" for number, expr in enumerate(model.inputs)}
    samples = dict(zip(names.values(), model.samples, strict=True))
    return run(written(model.results, names), samples)


def check(seeds: range) -> Counter[str]:
    """How often each operator was written."""
    seen, names = Counter[str](), list(OPERATORS)
    for seed in seeds:
        model = random_model(seed, only=names[seed % len(names)] if seed % 3 == 0 else "")
        try:
            results = results_of(model)
        except OptionError:
            continue
        stretches = list(compared(model, results, "onnx"))
        assert not [each for each in stretches if each.wrong], f"seed {seed}"
        seen.update(op for each in stretches for op in each.operators)
    return seen


def test_onnx_runtime_computes_what_random_expressions_mean() -> None:
    seen = check(range(MODELS))
    assert {name for name in WRITTEN if seen[name] < LEAST} <= ELSEWHERE


@pytest.mark.slow
def test_so_it_does_many() -> None:
    check(range(MODELS, MANY))


FUNCTIONS = (
    *(("Elu", {"alpha": 0.5}), ("Celu", {}), ("Softplus", {}), ("Pow", {}), ("Reciprocal", {})),
    *(("Floor", {}), ("Ceil", {}), ("HardSwish", {}), ("Mish", {}), ("Gelu", {})),
    *((kind, {}) for kind in ("Asinh", "Atan", "Cosh", "Sinh", "Tan")),
)


@pytest.mark.parametrize(("kind", "attrs"), FUNCTIONS, ids=[kind for kind, _ in FUNCTIONS])
def test_functions_of_a_file_are_its_own_again(
    kind: str, attrs: dict[str, Any], tmp_path: Path
) -> None:
    operands = ["x", "two"] if kind == "Pow" else ["x"]
    node = helper.make_node(kind, operands, ["y"], **attrs)
    two = onnx.numpy_helper.from_array(np.array(2, np.float32), "two")
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (4, 9)) for n in "xy"]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [two] * (len(operands) - 1))
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=IR_VERSION
    )
    onnx.save(model, tmp_path / "model.onnx")
    read = read_model(tmp_path / "model.onnx")
    x = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)
    (made,) = run(written([read.outputs[0].expr], {read.inputs[0].expr: "x"}), {"x": x})
    (expected,) = run(model, {"x": x})
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def test_an_image_is_resized_by_rows_and_columns() -> None:
    image = Expr((SourceType((1, 2, 3, 2), "float32"),))
    attrs = {"layout": "NHWC", "method": "nearest_neighbor", "nearest_mode": "floor"}
    of = SourceType((1, 4, 9, 2), "float32")
    resized = call("resize2d", of, image, coordinates="asymmetric", **attrs)
    x = np.arange(12, dtype=np.float32).reshape(1, 2, 3, 2)
    (made,) = run(written([resized], {image: "x"}), {"x": x})
    np.testing.assert_array_equal(made, x.repeat(2, 1).repeat(3, 2))


def test_one_value_may_be_an_input_and_several_results() -> None:
    x = Expr((SourceType((2,), "float32"),))
    made = written([x, x], {x: "x"})
    for found in run(made, {"x": np.array([1, 2], np.float32)}):
        np.testing.assert_array_equal(found, [1, 2])


def test_what_is_not_written_is_refused_by_name() -> None:
    x = Expr((SourceType((2,), "int32"),))
    shifted = call("right_shift", x.type, x, constant(1, "int32"), name="shift")
    with pytest.raises(OptionError, match="right_shift 'shift'"):
        written([shifted], {x: "x"})
