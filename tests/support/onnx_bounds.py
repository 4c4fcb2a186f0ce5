"""How far integers of an ONNX file may be from its floats, by the table of ``stretches``; and which
of them ONNX Runtime's own kernels of integers compute, that have to be equal."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

from tests.support.random_onnx import OnnxModel, run
from tests.support.stretches import FLOAT32, ONE, ROUNDINGS
from tinyai.checking.onnxruntime import exact_session
from tinyai.errors import UnsupportedError
from tinyai.ir import Array

_VOCABULARY = {
    "Add": "add",
    "Sum": "add",
    "Sub": "subtract",
    "QLinearAdd": "add",
    "Softmax": "softmax",
    "LogSoftmax": "softmax",
    "QLinearSoftmax": "softmax",
}
# Times that sums may be multiplied by, of which a bias was rounded.
_FACTORS = {"Mul", "Div", "Gemm", "BatchNormalization"}
LARGEST_FACTOR = 8


def bound(model: OnnxModel, mode: str) -> float:
    """Steps of the result. QOperators have no floats: their result is ONNX Runtime's, exactly under
    its own arithmetic, else it was rounded there as well."""
    if model.floats is None and mode == "onnx":
        return 0.0
    return (0 if model.floats is not None else ONE) + _from_floats(model, mode)


def _from_floats(model: OnnxModel, mode: str) -> float:
    counts = Counter(_VOCABULARY.get(op, op) for op in (*model.operators, "quantize"))
    more = sum(row.steps.get(mode, 0.0) * counts[op] for row in ROUNDINGS for op in row.operators)
    factor = LARGEST_FACTOR if _FACTORS & set(model.operators) else 1
    return ONE + FLOAT32 + more + 0.5 * factor * model.bias_step / model.scale


def steps_off(model: OnnxModel, result: Array) -> float:
    """From what ONNX Runtime makes of the floats, or of the QOperators."""
    if model.floats is None:
        (wanted,) = run(model.integers, model.inputs)
    else:
        (floats,) = run(model.floats, model.inputs)
        limits = np.iinfo(result.dtype)
        wanted = np.clip(floats.astype(float) / model.scale + model.zero, limits.min, limits.max)
    assert result.shape == wanted.shape
    return float(np.abs(result - wanted.astype(np.float64)).max())


@dataclass(frozen=True)
class Computed:
    """A result of ONNX Runtime. ``in_integers``: only integers are between it and the results
    before, so that kernels of integers ran; these are the contract of ``onnx``. ``is_cut``: on the
    way ONNX Runtime 1.31 quantizes int8 to uint8, which cuts what is below 0; where a file leaves a
    zero point out, so do the pairs that it makes of it elsewhere (QDQPropagationTransformer)."""

    array: Array
    in_integers: bool
    is_cut: bool


def optimized(model: OnnxModel, *, keeps_int8: bool) -> dict[str, Computed]:
    """By ONNX Runtime with all that it does to a graph, results by name in order.

    By default it makes uint8 of int8 activations.
    """
    content = model.integers.SerializeToString()
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        file = Path(folder) / "optimized.onnx"
        session = exact_session(content, keeps_int8=keeps_int8, optimized=file)
        graph = onnx.load(file).graph
    names = [value.name for value in session.get_outputs()]
    has_int8 = any(array.dtype == np.int8 for array in model.inputs.values())
    results = {}
    for name, array in zip(names, session.run(names, model.inputs), strict=True):
        quantized = list(_quantized_before(graph, name, set(names)))
        is_cut = has_int8 and any(len(node.input) < 3 for node in quantized)
        results[name] = Computed(np.asarray(array), not quantized, is_cut)
    return results


def _quantized_before(
    graph: onnx.GraphProto, result: str, results: set[str]
) -> Iterator[NodeProto]:
    """The nodes between a result and others that quantize what was a float, so not those by which
    integers change their zero point alone."""
    makers = {name: node for node in graph.node for name in node.output}
    waiting = [result]
    while waiting:
        node = makers.get(waiting.pop())
        if node is None:
            continue
        if node.op_type == "QuantizeLinear":
            source = makers.get(node.input[0])
            if source is None or not _is_of_a_scale(graph, source, node):
                yield node
        waiting += [name for name in node.input if name not in results]


def _is_of_a_scale(graph: onnx.GraphProto, source: NodeProto, quantize: NodeProto) -> bool:
    """Whether integers go through these two as they are, to another zero point."""
    if source.op_type != "DequantizeLinear" or len(quantize.input) < 3:
        return False
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    one, other = (constants.get(node.input[1]) for node in (source, quantize))
    return one is not None and other is not None and np.array_equal(one, other)


def differences(model: OnnxModel, results: Sequence[Array]) -> tuple[list[str], Counter[str]]:
    """What is beyond ONNX Runtime's results with its changes to the graph, in words, and how many
    results were held to be equal or within bounds, up to the first that differs."""
    faults, held = [], Counter[str]()
    has_int8 = any(array.dtype == np.int8 for array in (*model.inputs.values(), *results))
    for keeps_int8 in (True, False) if has_int8 else (False,):
        try:
            wanted = optimized(model, keeps_int8=keeps_int8)
        except Exception as error:
            told = isinstance(error, UnsupportedError)  # of a file that it does not load
            if not told and not type(error).__module__.startswith("onnxruntime"):
                raise
            held["not run"] += 1  # it makes a graph that it has no kernels for
            continue
        for result, (name, theirs) in zip(results, wanted.items(), strict=True):
            assert (result.shape, result.dtype) == (theirs.array.shape, theirs.array.dtype)
            if theirs.is_cut:
                held["cut"] += 1
                break
            off = int(np.abs(result.astype(int) - theirs.array).max())
            # Where they are floats, these are rounded too.
            most = 0 if theirs.in_integers else int(ONE + _from_floats(model, "onnx"))
            held["equal" if theirs.in_integers else "within bounds"] += 1
            if off > most:
                how = "int8" if keeps_int8 else "default"
                faults.append(f"optimized ({how}), {name}: {off} off, {most} allowed")
            if off:
                break  # what follows reads other integers
    return faults, held
