"""Other programs that run a model file, to be timed beside tinyai's code.

Each runs the file as it comes to its users. None of them is asked for exact integers here: how far
their results are from tinyai's is measured beside their times.
"""

from __future__ import annotations

import functools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tinyai.checking.opponents import need
from tinyai.doctor import others_saturate
from tinyai.ir import Array
from tinyai.runtime.timing import loop

Values = Mapping[str, Array]
# Kinds of layers, as OpenVINO and ONNX call them, that do nearly all of a network's arithmetic.
_PRODUCTS = ("Convolution", "Deconvolution", "FullyConnected", "MatMul", "Conv", "ConvTranspose",
             "Gemm", "QGemm", "ConvInteger", "MatMulInteger", "FusedConv", "FusedMatMul",
             "FusedGemm", "NhwcFusedConv", "QLinearConv", "QLinearMatMul")  # fmt: skip


class Peer(Protocol):
    """A network, loaded, on a number of threads.

    ``name`` is the program's, ``runs`` says by which kernels it computes its products. ``outputs``
    runs on inputs by name. ``run`` is one run on the inputs that ``outputs`` had last, ``seconds``
    the mean of a number of them.
    """

    name: str

    @property
    def runs(self) -> str: ...

    @property
    def run(self) -> Callable[[], object]: ...

    def outputs(self, values: Values) -> list[Array]: ...

    def seconds(self, number: int) -> float: ...


class LiteRT:
    """A TFLite file in LiteRT as it comes: with the XNNPACK delegate; timed is ``invoke``. With
    ``reference``, in its reference kernels."""

    name = "LiteRT"

    def __init__(self, content: bytes, threads: int, *, reference: bool = False) -> None:
        need("ai_edge_litert", "ai-edge-litert", self.name)
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kernels = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
        self._interpreter = Interpreter(
            model_content=content, num_threads=threads, experimental_op_resolver_type=kernels
        )
        self._interpreter.allocate_tensors()
        self.runs = "its reference kernels" if reference else "XNNPACK as the CPU has it"
        self.run = self._interpreter.invoke
        self.seconds = loop(self.run)

    def outputs(self, values: Values) -> list[Array]:
        details = self._interpreter.get_input_details()
        for each in details:
            # The only input has whatever name.
            value = next(iter(values.values())) if len(details) == 1 else values[each["name"]]
            self._interpreter.set_tensor(each["index"], value)
        self._interpreter.invoke()
        found = self._interpreter.get_output_details()
        return [self._interpreter.get_tensor(each["index"]) for each in found]


class OnnxRuntime:
    """An ONNX file in ONNX Runtime on its CPU provider; timed is a run whose inputs and outputs
    are bound to memory."""

    name = "ONNX Runtime"

    def __init__(self, content: bytes, threads: int) -> None:
        need("onnxruntime", "onnxruntime", self.name)
        import onnx
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        with tempfile.TemporaryDirectory(prefix="tinyai-peer-") as folder:
            options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
            self._session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
            optimized = onnx.load(options.optimized_model_filepath, load_external_data=False)
        kinds = (node.op_type for node in optimized.graph.node)
        self.runs = _counted(kind for kind in kinds if kind in _PRODUCTS)
        if others_saturate():
            self.runs += "; sums that saturate"
        self._binding = self._session.io_binding()
        self.run = functools.partial(self._session.run_with_iobinding, self._binding)
        self.seconds = loop(self.run)

    def outputs(self, values: Values) -> list[Array]:
        import onnxruntime

        found = self._session.run(None, dict(values))
        make = onnxruntime.OrtValue.ortvalue_from_numpy
        for name, value in values.items():
            self._binding.bind_ortvalue_input(name, make(np.ascontiguousarray(value)))
        for each, value in zip(self._session.get_outputs(), found, strict=True):
            self._binding.bind_ortvalue_output(each.name, make(np.zeros_like(value)))
        return [np.asarray(value) for value in found]


class OpenVino:
    """An ONNX or TFLite file in OpenVINO's CPU plugin, for latency; timed is an inference on
    tensors that stay where they are."""

    name = "OpenVINO"

    def __init__(self, content: bytes, threads: int, suffix: str) -> None:
        need("openvino", "openvino", self.name, "bench")
        import openvino

        settings = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
        core = openvino.Core()
        with tempfile.TemporaryDirectory(prefix="tinyai-peer-") as folder:
            file = Path(folder) / f"model{suffix}"
            file.write_bytes(content)
            compiled = in_openvino(core, file, settings | {"INFERENCE_NUM_THREADS": threads})
        self._names = [each.get_any_name() for each in compiled.inputs]
        self._request = compiled.create_infer_request()
        self._tensor = openvino.Tensor
        self.runs = _primitives(compiled.get_runtime_model())
        self.run = functools.partial(self._request.infer, share_outputs=True)
        self.seconds = loop(self.run)

    def outputs(self, values: Values) -> list[Array]:
        only = next(iter(values.values())) if len(self._names) == 1 else None
        for number, name in enumerate(self._names):
            value = values[name] if only is None else only  # the only input has whatever name
            self._request.set_input_tensor(number, self._tensor(np.ascontiguousarray(value)))
        self._request.infer()
        return [np.array(each.data) for each in self._request.output_tensors]


def in_openvino(core: Any, file: Path, settings: Mapping[str, Any]) -> Any:
    """A file compiled by OpenVINO's ``Core`` for the CPU.

    On a CPU with tiles, OpenVINO 2026.4 computes floats as bfloat16 unless it is told otherwise,
    and then finds no kernel for a convolution of int8 activations, whoever wrote the file ("No
    suitable implementations"); with floats in float32 it runs the same file.
    """
    try:
        return core.compile_model(str(file), "CPU", dict(settings))
    except RuntimeError:
        return core.compile_model(str(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32", **settings})


def _primitives(model: Any) -> str:
    """The kernels of the products of a compiled model of OpenVINO's, by name."""
    layers = (each.get_rt_info() for each in model.get_ops())
    return _counted(
        str(layer["primitiveType"].value)
        for layer in layers
        if layer["layerType"].value in _PRODUCTS
    )


def _counted(names: Iterable[str]) -> str:
    counts = Counter(names).most_common()
    return ", ".join(f"{name} {count}" for name, count in counts) or "no products"


@dataclass(frozen=True)
class PeerTime:
    """Milliseconds of a run, how far they spread, and how many times ours they are; by which
    kernels the peer computes, and the largest difference of its results from ours, as a share of
    an output's range."""

    name: str
    ms: float
    ratio: float
    spread: float
    runs: str
    differs: float


def apart(found: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]]) -> float:
    """The largest difference of outputs, a list for each sample, as a share of the range that an
    expected output takes over all samples. Raises ``ValueError`` where shapes or numbers of outputs
    are not the same."""
    outputs = zip(zip(*found, strict=True), zip(*expected, strict=True), strict=True)
    return max(_share_of_range(np.stack(one), np.stack(other)) for one, other in outputs)


def _share_of_range(found: Array, expected: Array) -> float:
    exact = expected.astype(np.float64)
    distance = float(np.abs(found.reshape(expected.shape).astype(np.float64) - exact).max())
    return distance / (float(np.ptp(exact)) or 1.0)
