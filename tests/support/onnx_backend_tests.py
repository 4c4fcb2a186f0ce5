"""The test cases of the package onnx: a model of nearly every operator, with inputs and results.

They are of ONNX's authors, so what a reader and its tests misunderstand alike shows here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tinyai.ir import Array

FOLDER = Path(onnx.__file__).parent / "backend/test/data/node"
# Of opset 6, most of them, as PyTorch wrote them.
OLDER = [FOLDER.parent / name for name in ("pytorch-converted", "pytorch-operator")]
OPSET = 13  # from which on pairs have an axis
STEPS = 255
MOST, WIDEST = 20_000, 200  # elements of a value, and of its last dimension
INTEGERS = [f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]
NUMPYS = {getattr(TensorProto, name) for name in ("FLOAT16", "FLOAT", "DOUBLE", "BOOL", *INTEGERS)}


def _tensor(file: Path) -> Array:
    held = TensorProto()
    held.ParseFromString(file.read_bytes())
    return np.asarray(numpy_helper.to_array(held))


@dataclass(frozen=True)
class Case:
    """``inputs`` by their names; one that is left out has no value."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "model.onnx"

    def model(self) -> onnx.ModelProto:
        return onnx.load(self.file)

    @property
    def is_of_numpy(self) -> bool:
        """Whether its inputs and results are tensors of types that numpy has, small floats and
        numbers of four bits not among them."""
        graph = self.model().graph
        kinds = {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
        return kinds <= NUMPYS

    def tensors(self) -> tuple[dict[str, Array], list[Array]]:
        """The inputs by name, and the results."""
        graph, data = self.model().graph, self.folder / "test_data_set_0"
        files = {each.name: data / f"input_{n}.pb" for n, each in enumerate(graph.input)}
        results = [_tensor(data / f"output_{n}.pb") for n in range(len(graph.output))]
        return {name: _tensor(file) for name, file in files.items() if file.exists()}, results


def cases() -> list[Case]:
    folders = sorted(FOLDER.iterdir()) + [each for of in OLDER for each in sorted(of.iterdir())]
    every = map(Case, folders)
    return [case for case in every if case.file.exists() and case.is_of_numpy]


PRODUCT = "product"  # the name of the input that is multiplied, and of that layer


def behind_a_product(case: Case) -> onnx.ModelProto | None:
    """A case whose first input of floats is a product of its last dimension; others are constants.
    None of a case that has no such input."""
    inputs, _ = case.tensors()
    some = (n for n, v in inputs.items() if v.dtype == np.float32 and v.ndim and 0 < v.size < MOST)
    first = next(some, None)
    if first is None or not np.isfinite(inputs[first]).all() or inputs[first].shape[-1] > WIDEST:
        return None
    model, value = case.model(), inputs[first]
    model.ir_version = max(model.ir_version, 4)  # whose constants need not be inputs
    rng, width = np.random.default_rng(0), value.shape[-1]
    weights = (np.eye(width) + rng.normal(size=(width, width)) / 10).astype(np.float32)
    graph = model.graph
    product = helper.make_node("MatMul", [PRODUCT, f"{PRODUCT}_weights"], [first], PRODUCT)
    constants = [numpy_helper.from_array(v, name) for name, v in inputs.items() if name != first]
    constants.append(numpy_helper.from_array(weights, f"{PRODUCT}_weights"))
    given = [helper.make_tensor_value_info(PRODUCT, TensorProto.FLOAT, value.shape)]
    _put(graph.input, given)
    _put(graph.node, [product, *graph.node])
    graph.initializer.extend(constants)
    return model


# How the second input of an operator, and those after it, come into a quantized model.
WAYS = ("quantized", "constant", "float")


@dataclass(frozen=True)
class Paired:
    """A model whose values of floats have a pair behind them, and what to call it with."""

    model: onnx.ModelProto
    inputs: Mapping[str, Array]


class _Pairs:
    """Nodes and constants as they are put around a model."""

    def __init__(self, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def add(self, value: Array, source: str, target: str) -> None:
        """A pair between two names, for all that a value is."""
        low, high = min(0.0, float(value.min())), max(0.0, float(value.max()))
        scale, limits = np.float32((high - low) / STEPS or 1 / STEPS), np.iinfo(self.dtype)
        zero = np.clip(round(limits.min - low / scale), limits.min, limits.max)
        grid = self._grid(target, scale, np.array(zero, self.dtype))
        self._node("QuantizeLinear", [source, *grid], f"{target}_integers")
        self._node("DequantizeLinear", [f"{target}_integers", *grid], target)

    def add_constant(self, value: Array, target: str) -> None:
        """A constant of int8."""
        scale = np.float32(np.abs(value).max() / 127 or 1 / 127)
        integers = np.round(value / scale).astype(np.int8)
        self.constants.append(numpy_helper.from_array(integers, f"{target}_integers"))
        grid = self._grid(target, scale, np.int8(0))
        self._node("DequantizeLinear", [f"{target}_integers", *grid], target)

    def _grid(self, name: str, scale: Any, zero: Any) -> list[str]:
        names = [f"{name}_scale", f"{name}_zero"]
        held = zip((scale, zero), names, strict=True)
        self.constants += [numpy_helper.from_array(np.asarray(each), n) for each, n in held]
        return names

    def _node(self, operator: str, inputs: list[str], result: str) -> None:
        self.nodes.append(helper.make_node(operator, inputs, [result]))


def paired(case: Case, dtype: str) -> Iterator[Paired]:
    """A case with pairs around it, in each way; none of a case that is not of plain floats."""
    model = case.model()
    inputs, results = case.tensors()
    floats = [name for name, value in inputs.items() if value.dtype == np.float32]
    values = [*inputs.values(), *results]
    plain = all(v.size and np.isfinite(v).all() for v in values)
    opset = max((each.version for each in model.opset_import if not each.domain), default=0)
    if not floats or not plain or opset < OPSET or model.graph.initializer:
        return
    for way in WAYS if len(floats) > 1 else WAYS[:1]:
        yield _in_pairs(case.model(), inputs, results, floats, way, dtype)


def _in_pairs(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    results: list[Array],
    floats: list[str],
    way: str,
    dtype: str,
) -> Paired:
    graph, before, behind = model.graph, _Pairs(dtype), _Pairs(dtype)
    asked, outputs = {}, []
    for name, value in inputs.items():
        if name not in floats or (way == "float" and name != floats[0]):
            before.constants.append(numpy_helper.from_array(value, name))
        elif way == "constant" and name != floats[0]:
            before.add_constant(value, name)
        else:
            asked[f"{name}_given"] = value
            before.add(value, f"{name}_given", name)
    for output, value in zip(list(graph.output), results, strict=True):
        if value.dtype == np.float32:
            behind.add(value, output.name, f"{output.name}_rounded")
            name = f"{output.name}_rounded"
            output = helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
        outputs.append(output)
    given = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
        for name, value in asked.items()
    ]
    for field, new in (
        (graph.input, given),
        (graph.output, outputs),
        (graph.node, [*before.nodes, *graph.node, *behind.nodes]),
        (graph.initializer, [*before.constants, *behind.constants]),
    ):
        _put(field, new)
    return Paired(model, asked)


def _put(field: Any, new: list[Any]) -> None:
    """In place of what a field has."""
    held = list(new)
    del field[:]
    field.extend(held)
