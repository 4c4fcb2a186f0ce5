"""ONNX files in ONNX Runtime on a CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tinyai.checking.opponents import Sample, need
from tinyai.doctor import others_saturate
from tinyai.errors import UnsupportedError
from tinyai.frontends.onnx.framework import model_with
from tinyai.ir import Array
from tinyai.model_file import InputShapes
from tinyai.safe_text import safe

_EXACT = "session.x64quantprecision"
# What makes integers of anything, in QDQ and in QOperator form, and what hands integers on.
_MAKES_INTEGERS = ("QuantizeLinear", "QLinear")
_MOVES = ("MaxPool", "Reshape", "Flatten", "Transpose", "Concat", "Squeeze", "Unsqueeze", "Slice")


class OnnxRuntimeOracle:
    """A file. int8 activations stay int8: by default ONNX Runtime makes them uint8, and computes in
    float what it cannot compute so. Sums of products are exact: on some CPUs ONNX Runtime adds two
    products of uint8 by int8 in 16 bits, which saturate, unless it is told otherwise. ``names`` are
    those of its inputs; the last ones are ``initial`` in a first call, then the outputs that
    ``state`` has by name. ``input_shapes`` are those of ``tinyai.compile``."""

    def __init__(
        self,
        file: Path,
        names: Sequence[str],
        state: Mapping[str, str] = MappingProxyType({}),
        initial: Sequence[Array] = (),
        input_shapes: InputShapes = "",
    ) -> None:
        self.name = need("onnxruntime", "onnxruntime", "ONNX Runtime")
        self._model = model_with(file, input_shapes)
        self._names = list(names)
        self._session = exact_session(self._model.SerializeToString())
        self._usual = _Usual(self._model) if others_saturate() else None
        self._shown = _quantized(self._model.graph)
        outputs = [each.name for each in self._model.graph.output if each.name not in state]
        self._outputs, self._initial = [*outputs, *state], list(initial)

    def results(self, samples: Sequence[Sample]) -> list[list[Array]]:
        found, values = [], self._initial
        for sample in samples:
            given = (*sample, *values)
            results = self._run(self._session, self._outputs, given)
            if self._usual is not None:
                self._usual.take(self._outputs, dict(zip(self._names, given, strict=True)))
            own = len(results) - len(values)
            found.append(results[:own])
            values = results[own:]
        return found

    def tensors(self, sample: Sample) -> Mapping[str, Array]:
        """What is quantized, which a graph of integers has as well."""
        import onnx

        shown = onnx.ModelProto()
        shown.CopyFrom(self._model)
        names = list(dict.fromkeys(self._shown.values()))
        known = {each.name for each in shown.graph.output}
        more = [onnx.ValueInfoProto(name=name) for name in names if name not in known]
        shown.graph.output.extend(more)
        session = exact_session(shown.SerializeToString())
        return dict(zip(names, self._run(session, names, sample), strict=True))

    def tensor_of(self, source: str) -> str | None:
        return self._shown.get(source)

    def in_floats(self) -> list[str]:
        """The nodes that compute with what is dequantized, after ONNX Runtime's changes of the
        graph: of these it has no kernels of integers."""
        import onnx

        with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
            file = Path(folder) / "optimized.onnx"
            exact_session(self._model.SerializeToString(), optimized=file)
            nodes = onnx.load(file, load_external_data=False).graph.node
        pairs = ("QuantizeLinear", "DequantizeLinear")
        makers = (pairs[1], "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
        floats = {node.output[0] for node in nodes if node.op_type in makers}
        others = (node for node in nodes if node.op_type not in pairs)
        return [each.name or each.op_type for each in others if not floats.isdisjoint(each.input)]

    def saturation(self) -> list[str]:
        """What is to be said of ONNX Runtime as programs start it, which saturates on this CPU."""
        return [] if self._usual is None else self._usual.told()

    def _run(self, session: Any, names: list[str] | None, sample: Sample) -> list[Array]:
        found = session.run(names, dict(zip(self._names, sample, strict=True)))
        return [np.asarray(value) for value in found]


class _Usual:
    """A model in ONNX Runtime as programs start it, on a CPU where its sums saturate, beside the
    same with exact ones: how many values of the results were others."""

    def __init__(self, model: Any) -> None:
        content = model.SerializeToString()
        usual = _session(content, keeps_int8=False, exact=False)
        self._sessions = usual, exact_session(content, keeps_int8=False)
        self._different = self._all = 0

    def take(self, names: list[str], given: Mapping[str, Array]) -> None:
        usual, exact = (session.run(names, dict(given)) for session in self._sessions)
        for one, other in zip(usual, exact, strict=True):
            self._different += int(np.count_nonzero(np.asarray(one) != np.asarray(other)))
            self._all += np.size(one)

    def told(self) -> list[str]:
        if not self._different:
            return []
        return [
            f"ONNX Runtime as programs start it gives {self._different:,} of {self._all:,} other "
            "values on this CPU, where it adds two products in 16 bits, which saturate; exact with "
            f'the session option "{_EXACT}" of 1, as here, or with weights of 7 bits '
            "(tinyai quantize --reduce-range)"
        ]


def exact_session(
    model: bytes | str | Path, *, keeps_int8: bool = True, optimized: Path | None = None
) -> Any:
    """A session on one thread of a model's bytes or file, with exact sums of products;
    ``keeps_int8`` of activations, and ``optimized`` is a file to write the graph to that is run.

    ONNX Runtime's option for exact sums makes uint8 of weights. For those it has no kernels beside
    int8 activations, and needs none: its sums of int8 by int8 are exact. With the option ONNX
    Runtime 1.31 fails to load some files that it loads without.

    Raises ``UnsupportedError`` where it does not load the model.
    """
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    try:
        return _session(model, keeps_int8=keeps_int8, exact=True, optimized=optimized)
    except (errors.NotImplemented, errors.Fail):
        try:
            return _session(model, keeps_int8=keeps_int8, exact=False, optimized=optimized)
        except Exception as error:  # of many kinds
            raise UnsupportedError(
                "the model in ONNX Runtime",
                found=safe(str(error), 300),
                allowed="a model that it loads",
                hint="pip install -U onnxruntime, where the file is newer than it is",
            ) from None


def _session(
    model: bytes | str | Path, *, keeps_int8: bool, exact: bool, optimized: Path | None = None
) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # what it fails at is in the error
    options.add_session_config_entry("session.qdqisint8allowed", str(int(keeps_int8)))
    options.add_session_config_entry(_EXACT, str(int(exact)))
    options.optimized_model_filepath = str(optimized or "")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _quantized(graph: Any) -> dict[str, str]:
    """For each node by its name the integers that are made of its result: the result itself, or
    what the quantize makes that follows after operators of which each is the only reader."""
    readers: dict[str, list[Any]] = {}
    integers: set[str] = set()
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
        moved = node.op_type in _MOVES and node.input[0] in integers
        if moved or node.op_type.startswith(_MAKES_INTEGERS):
            integers.update(node.output)
    made = {name: name for name in integers}
    for node in reversed(graph.node):
        follow = readers.get(node.output[0], []) if node.output else []
        if len(follow) == 1 and node.output[0] not in made and follow[0].output[0] in made:
            made[node.output[0]] = made[follow[0].output[0]]
    return {
        node.name: made[node.output[0]]
        for node in graph.node
        if node.name and node.op_type != "DequantizeLinear" and made.keys() & node.output[:1]
    }
