"""Other programs that run the same networks, each behind the same three names."""

from __future__ import annotations

import functools
import importlib.metadata
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

import numpy as np
import onnxruntime
import tvm
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from benchmarks import workloads
from benchmarks.bench_networks import Array, Values, set_inputs
from benchmarks.timing import loop


class Peer(Protocol):
    """A network, loaded, on a number of threads.

    ``name`` is the program's. ``outputs`` runs on inputs by name. ``run`` is one run on the inputs
    that ``outputs`` had last, ``seconds`` the mean of a number of them.
    """

    name: str

    @property
    def run(self) -> Callable[[], object]: ...

    def outputs(self, values: Values) -> list[Array]: ...

    def seconds(self, number: int) -> float: ...


class LiteRT:
    """A TFLite file in LiteRT as it comes: with the XNNPACK delegate; timed is ``invoke``. With
    ``reference``, in its reference kernels."""

    name = "LiteRT"

    def __init__(self, content: bytes, threads: int, *, reference: bool = False) -> None:
        kernels = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
        self._interpreter = Interpreter(
            model_content=content, num_threads=threads, experimental_op_resolver_type=kernels
        )
        self._interpreter.allocate_tensors()
        self.run = self._interpreter.invoke
        self.seconds = loop(self.run)

    def outputs(self, values: Values) -> list[Array]:
        set_inputs(self._interpreter, values)
        self._interpreter.invoke()
        found = self._interpreter.get_output_details()
        return [self._interpreter.get_tensor(each["index"]) for each in found]


class ReferenceKernels:
    """A TFLite file in LiteRT's reference kernels, whose integers are TFLite's, in a process of its
    own: their softmax aborts where its input's scale is large, and takes the process along."""

    name = "LiteRT's reference kernels"

    def __init__(self, content: bytes) -> None:
        self._content = content

    def results(self, inputs: Sequence[Values]) -> list[list[Array]] | None:
        """The outputs for each set of inputs; None where LiteRT aborts."""
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            try:
                return pool.submit(_reference_results, self._content, inputs).result()
            except BrokenProcessPool:
                return None


def _reference_results(content: bytes, inputs: Sequence[Values]) -> list[list[Array]]:
    reference = LiteRT(content, 1, reference=True)
    return [reference.outputs(values) for values in inputs]


class OnnxRuntime:
    """An ONNX file in ONNX Runtime on its CPU provider; timed is a run whose inputs and outputs
    are bound to memory."""

    name = "ONNX Runtime"

    def __init__(self, content: bytes, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(content, options, providers=providers)
        self._binding = self._session.io_binding()
        self.run = functools.partial(self._session.run_with_iobinding, self._binding)
        self.seconds = loop(self.run)

    def outputs(self, values: Values) -> list[Array]:
        found = self._session.run(None, dict(values))
        make = onnxruntime.OrtValue.ortvalue_from_numpy
        for name, value in values.items():
            self._binding.bind_ortvalue_input(name, make(np.ascontiguousarray(value)))
        for each, value in zip(self._session.get_outputs(), found, strict=True):
            self._binding.bind_ortvalue_output(each.name, make(np.zeros_like(value)))
        return [np.asarray(value) for value in found]


class TvmPeer:
    """TVM's own code in a graph executor; timed is its ``run``. TVM's pool has as many threads as
    ``TVM_NUM_THREADS`` said when the process began."""

    name = "TVM"

    def __init__(self, library: Any) -> None:
        self._executor = workloads.executor_of(library)
        self.run = self._executor.run

    def outputs(self, values: Values) -> list[Array]:
        self._executor.run(**{name: tvm.nd.array(value) for name, value in values.items()})
        number = self._executor.get_num_outputs()
        return [self._executor.get_output(i).numpy() for i in range(number)]

    def seconds(self, number: int) -> float:
        evaluate = self._executor.module.time_evaluator("run", tvm.cpu(), number=number)
        return float(evaluate().mean)


def versions() -> dict[str, str]:
    """Of the programs that are compared, by name."""
    return {
        LiteRT.name: importlib.metadata.version("ai-edge-litert"),
        OnnxRuntime.name: onnxruntime.__version__,
        TvmPeer.name: tvm.__version__,
    }
