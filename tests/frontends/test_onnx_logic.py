"""Bools and integers of .onnx files: comparisons, logic, choices, running sums, and what picks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tests.support.cases import assert_same
from tests.support.onnx_models import run_onnx
from tinyai.errors import BoundaryError, OptionError
from tinyai.frontends.files import network_of_file
from tinyai.ir import Array
from tinyai.reference import run_graph
from tinyai.target import Target

SHAPE = (2, 3, 4)
PLACES = np.array([[[1, 0], [0, -1]], [[-2, 2], [1, 1]]])
_ALL = np.random.default_rng(1).integers(-2, 2, SHAPE)
MANY_PLACES = {
    "all": _ALL,
    "some": _ALL[:1, :2, :3],
    "the first half": _ALL[:1],
    "one for all of the first": np.repeat(_ALL[:1], 2, axis=0),  # as DeBERTa has them
    "one for all but the last": np.broadcast_to(_ALL[:1, :1], SHAPE),
}
Made = tuple[list[onnx.NodeProto], dict[str, Any], dict[str, Any]]


def case(
    op: str,
    inputs: Mapping[str, str],
    constants: Mapping[str, Any] | None = None,
    order: str = "",
    **attrs: Any,
) -> Made:
    """An operator of inputs by name and dtype, and of constants, in this order."""
    known = {name: np.asarray(value) for name, value in (constants or {}).items()}
    names = order.split() or [*inputs, *known]
    return [helper.make_node(op, names, ["y"], op.lower(), **attrs)], dict(inputs), known


COMPARED = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
CASES: dict[str, Made] = {
    **{f"{op} of {t}": case(op, {"a": t, "b": t}) for op in COMPARED for t in ("int32", "int64")},
    **{op: case(op, {"a": "bool", "b": "bool"}) for op in ("And", "Or", "Xor", "Equal")},
    "Not": case("Not", {"a": "bool"}),
    "Less than a number": case("Less", {"a": "int64"}, {"n": np.int64(1)}),
    "Greater than a number": case("Greater", {"a": "int32"}, {"n": np.int32(1)}, order="n a"),
    "And of a row": case("And", {"a": "bool"}, {"n": np.array([True, False, True, True])}),
    "Where of two": case("Where", {"c": "bool", "a": "int64", "b": "int64"}),
    "Where of bytes": case("Where", {"c": "bool", "a": "uint8"}, {"n": np.uint8(255)}, "c n a"),
    "Where of numbers": case("Where", {"c": "bool"}, {"m": np.int32(-7), "n": np.int32(2**31 - 1)}),
    "Where of a constant": case(
        "Where", {"a": "int64"}, {"c": np.tri(3, 4, dtype=bool), "n": np.int64(2**62 + 1)}, "c a n"
    ),
    **{
        f"CumSum {flags} along {axis}": case(
            "CumSum", {"a": "int32"}, {"n": np.int64(axis)}, **flags
        )
        for axis in (0, 2, -2)
        for flags in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1})
    },
    "GatherND": case("GatherND", {"a": "bool"}, {"n": PLACES}),
    "GatherND of elements": case(
        "GatherND", {"a": "int64"}, {"n": np.array([[1, 2, -1], [0, 0, 3]])}
    ),
    "GatherElements": case(
        "GatherElements", {"n": "int64"}, {"a": np.arange(9)[None, None] * 11}, "a n", axis=2
    ),
    "GatherElements of constant places": case(
        "GatherElements", {"n": "int64"}, {"a": np.array([[[3, -1]]])}, "n a", axis=2
    ),
    **{
        f"GatherElements of {kind} along {axis}": case(
            "GatherElements", {"a": "int64"}, {"n": places}, axis=axis
        )
        for axis in (0, 1, 2, -1)
        for kind, places in MANY_PLACES.items()
    },
    "GatherElements of more places than there were": case(
        "GatherElements", {"a": "int64"}, {"n": np.tile(MANY_PLACES["all"], (1, 1, 3))}, axis=2
    ),
    "Cast to bool": case("Cast", {"a": "int64"}, to=TensorProto.BOOL),
    "Cast from bool": case("Cast", {"a": "bool"}, to=TensorProto.INT32),
    "Expand": case("Expand", {"a": "bool"}, {"n": np.array([2, *SHAPE])}),
    "Transpose": case("Transpose", {"a": "bool"}, perm=[2, 0, 1]),
}


def model(made: Made, opset: int = 17) -> onnx.ModelProto:
    nodes, inputs, known = made
    types = {name: helper.np_dtype_to_tensor_dtype(np.dtype(of)) for name, of in inputs.items()}
    shapes = {name: (1, 1, 4) if name == "n" else SHAPE for name in inputs}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, of, shapes[name]) for name, of in types.items()],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(value, name) for name, value in known.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(proto)


def sample(made: Made, seed: int) -> dict[str, Array]:
    rng, inputs = np.random.default_rng(seed), made[1]
    values = {name: rng.integers(-3, 4, (1, 1, 4) if name == "n" else SHAPE) for name in inputs}
    return {
        name: value > 0 if inputs[name] == "bool" else value.astype(inputs[name])
        for name, value in values.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_float_is_onnx_runtimes(name: str, tmp_path: Path) -> None:
    made, file = CASES[name], tmp_path / "net.onnx"
    onnx.save(model(made), file)
    read = network_of_file(file, Target(rounding="onnx"))
    for seed in range(4):
        inputs = sample(made, seed)
        found = run_graph(read.graph, [inputs[port.name] for port in read.inputs])
        assert_same(found[0], run_onnx(onnx.load(file), inputs)[0], name)


REFUSED: dict[str, tuple[Made, str]] = {
    "GatherND by numbers of run time": (case("GatherND", {"a": "bool", "n": "int64"}), "indices"),
    "GatherND of batches": (
        case("GatherND", {"a": "bool"}, {"n": np.zeros((2, 1, 1), np.int64)}, batch_dims=1),
        "batch_dims",
    ),
    "GatherElements of several dimensions": (
        case("GatherElements", {"a": "int64", "n": "int64"}),
        "shape of the data",
    ),
    "GatherElements of more places than data": (
        case("GatherElements", {"a": "int64"}, {"n": np.zeros((2, 4, 4), np.int64)}, axis=2),
        "shape of the indices",
    ),
    "CumSum of floats": (case("CumSum", {"a": "float32"}, {"n": np.int64(0)}), "float"),
    "comparison of floats": (case("Less", {"a": "float32", "b": "float32"}), "dtype of Less"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    made, reason = REFUSED[name]
    onnx.save(model(made), tmp_path / "net.onnx")
    with pytest.raises(BoundaryError, match=reason):
        network_of_file(tmp_path / "net.onnx", Target(rounding="onnx"))


@pytest.mark.parametrize("name", ["Xor", "Where of two", "Equal of int64", "Cast from bool"])
def test_a_caller_passes_and_gets_bools(name: str, tmp_path: Path) -> None:
    made, file = CASES[name], tmp_path / "net.onnx"
    onnx.save(model(made), file)
    compiled = tinyai.Model(tinyai.compile(file, tmp_path / "net.so"))
    inputs = sample(made, 0)
    (found,) = compiled.run(inputs)
    assert_same(found, run_onnx(onnx.load(file), inputs)[0], name)


def test_numbers_in_place_of_bools_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    onnx.save(model(CASES["Not"]), file)
    compiled = tinyai.Model(tinyai.compile(file, tmp_path / "net.so"))
    with pytest.raises(OptionError, match=r"int64\[2,3,4\]"):
        compiled.run({"a": np.ones(SHAPE, np.int64)})
