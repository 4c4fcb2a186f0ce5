"""What `make bench` has of other programs beside ``tinyai.checking.peers``: TVM's own code, and
LiteRT's reference kernels."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import onnxruntime
import tvm

from benchmarks import workloads
from benchmarks.bench_networks import Array, Values
from tinyai.checking.peers import LiteRT, OnnxRuntime, OpenVino


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


class TvmPeer:
    """TVM's own code in a graph executor; timed is its ``run``. TVM's pool has as many threads as
    ``TVM_NUM_THREADS`` said when the process began."""

    name = "TVM"
    runs = "what it compiled"

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
    """Of the programs that are compared and installed, by name."""
    found = {
        LiteRT.name: importlib.metadata.version("ai-edge-litert"),
        OnnxRuntime.name: onnxruntime.__version__,
        TvmPeer.name: tvm.__version__,
    }
    if has_openvino():
        found[OpenVino.name] = importlib.metadata.version("openvino")
    return found


def has_openvino() -> bool:
    return importlib.util.find_spec("openvino") is not None
