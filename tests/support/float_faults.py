"""What becomes of random float .onnx files that are quantized, and what is wrong, if anything is.

ONNX Runtime runs what is written, with the noise that the report promises. Compiled from memory or
from the file, the integers are the same, and those of ONNX Runtime but where ``tinyai.check`` names
what it computes in floats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import tinyai
from tests.support.random_floats import FloatModel, random_floats
from tests.support.random_onnx import run
from tests.support.seeds import require_no_fault
from tinyai.checking.onnxruntime import OnnxRuntimeOracle
from tinyai.errors import BoundaryError, OptionError
from tinyai.frontends.files import read_file
from tinyai.frontends.onnx.fused import FUSED
from tinyai.frontends.onnx.load import read_whole
from tinyai.frontends.onnx.new_nodes import WITH_16_BITS
from tinyai.frontends.onnx.quantized import OLDEST
from tinyai.frontends.whole import network_of
from tinyai.ir import Array
from tinyai.quantizer.report import output_row
from tinyai.reference import run_graph

# dB: how far the noise in ONNX Runtime may be from the report's, whose pairs may be floats, and
# from where on both are a step of the result's grid.
ALIKE, TELLING = 3.0, 40.0
# dB: the least between floats that are computed in two orders.
EXACT = 70.0
CONFIGS: tuple[dict[str, Any], ...] = (
    *(
        {},
        {},
        {"reduce_range": True},
        {"per_channel": False},
        {"equalize": True},
        {"observer": "minmax"},
    ),
    {"rounding": "nearest", "correct_bias": False, "equalize_activations": False},
    {"residual": "int16"},
    {"residual": "common", "shared_averages": True, "observer": "average"},
    *({"dtype": "uint8"}, {"dtype": "int16"}, {"symmetric": True}, {"power_of_two": True}),
)


def in_float32(model: FloatModel) -> list[dict[str, Array]]:
    return [
        {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in each.items()}
        for each in model.samples
    ]


class Samples(CalibrationDataReader):
    def __init__(self, samples: list[dict[str, Array]]) -> None:
        self._rest = iter(samples)

    def get_next(self) -> dict[str, Array] | None:
        return next(self._rest, None)


def in_part(seed: int, model: FloatModel, source: Path) -> bool:
    """Whether ONNX Runtime's quantizer made only the products of a file integers, in its place, in
    a file that ONNX Runtime runs."""
    if any(each.dtype == np.float16 for each in model.samples[0].values()):
        return False
    made = source.with_suffix(".part.onnx")
    activation = (QuantType.QUInt8, QuantType.QInt8)[seed // 2 % 2]
    products, samples = ["MatMul", "Conv", "Gemm"], Samples(model.samples)
    per_channel = bool(seed % 2) and model.proto.opset_import[0].version >= OLDEST
    kinds = {"activation_type": activation}
    try:
        quantize_static(source, made, samples, QuantFormat.QDQ, products, per_channel, **kinds)
    except ValueError:  # of ONNX Runtime, where a bias has an input without a scale
        return False
    proto = onnx.load(made)
    # With int8 activations ONNX Runtime does not load all files of newer opsets.
    if proto.opset_import[0].version >= WITH_16_BITS and activation == QuantType.QInt8:
        return False
    try:
        run(proto, model.samples[0], plain=False)
    except Exception:  # of ONNX Runtime, at scales of the rows of a product of several matrices
        return False
    onnx.save(proto, source)
    return any(node.op_type == "QuantizeLinear" for node in proto.graph.node)


def fused(seed: int, model: FloatModel, source: Path) -> bool:
    """Whether ONNX Runtime's optimizer made other operators of those of a file, in its place."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    made = source.with_suffix(".fused.onnx")
    options.optimized_model_filepath, options.log_severity_level = str(made), 4
    onnxruntime.InferenceSession(source, options)
    proto = onnx.load(made)
    operators = {(node.domain, node.op_type) for node in proto.graph.node}
    try:
        run(proto, model.samples[0], plain=False)
    except Exception:  # of ONNX Runtime, where it gave one name to two nodes of float16
        return False
    onnx.save(proto, source)
    return not operators.isdisjoint(FUSED)


Change = Callable[[int, FloatModel, Path], bool]


def fault_of(seed: int, folder: Path, change: Change | None = None) -> tuple[str, str]:
    """What became of a model, or of what ``change`` made of it, and what is wrong, if anything
    is."""
    model, source, file = random_floats(seed), folder / "float.onnx", folder / "int8.onnx"
    onnx.save(model.proto, source)
    if change is not None and not change(seed, model, source):
        return "unchanged", ""
    try:
        config = tinyai.QuantConfig(**CONFIGS[seed % len(CONFIGS)])
        quantized = tinyai.quantize_file(source, model.samples, config)
        quantized.save(file)
    except OptionError as error:
        # A Gemm that is quantized already keeps its alpha, which no value of the file comes before.
        known = "no float operator" in str(error)
        known |= change is in_part and "with alpha 1" in str(error)
        return "refused", "" if known else str(error)
    samples, written = in_float32(model), onnx.load(file)
    # Halves are calibrated and compared as what they are widened to: their own sums are less exact.
    spelled = read_whole(source, "", OLDEST).proto
    floats = [run(spelled, each)[0] for each in samples]
    own = [run(onnx.load(source), each)[0] for each in model.samples]
    between = output_row("", own, floats).sqnr
    if own[0].dtype == np.float32 and between is not None and between < EXACT:
        return "wrong", f"{between:.1f} dB between the file and what it is spelled out by"
    try:
        found = [run(written, each, plain=False)[0] for each in samples]
    except Exception as error:  # of ONNX Runtime, which has several kinds
        return "wrong", f"does not run: {str(error)[:300]}"
    noise, told = output_row("", floats, found).sqnr, quantized.report.outputs[0].sqnr
    tell = noise is not None and told is not None and min(noise, told) < TELLING
    if tell and not -ALIKE < noise - told < 2 * ALIKE:
        return "wrong", f"{noise:.1f} dB, in the report {told:.1f}"
    wide = any(row.dtype == "int16" for row in quantized.report.layers)
    rounding = "upward" if wide else "onnx"
    try:
        network = network_of(read_file(file), "of_file", rounding)
    except BoundaryError:
        return "partly", ""
    in_memory = network_of(quantized.model, "in_memory", rounding)
    names = [port.name for port in network.inputs]
    ours, kept = (
        [run_graph(each.graph, [sample[name] for name in names])[0] for sample in samples]
        for each in (network, in_memory)
    )
    if not np.array_equal(ours, kept):
        return "wrong", "the file is not what is in memory"
    if wide:
        return "wide", ""  # in TVM's integers: none of ONNX Runtime's have 16 bits
    in_int8 = OnnxRuntimeOracle(file, names)
    given = [tuple(sample[name] for name in names) for sample in samples]
    if np.array_equal(ours, [results[0] for results in in_int8.results(given)]):
        return "equal", ""
    return "floats", "" if is_told(file, samples, folder) else "differs, and nothing is told"


def is_told(file: Path, samples: list[dict[str, Array]], folder: Path) -> bool:
    """Whether check tells what ONNX Runtime computes in floats."""
    files = [folder / f"{number}.npz" for number, _ in enumerate(samples)]
    for each, sample in zip(files, samples, strict=True):
        np.savez(each, **sample)
    notes = tinyai.check(file, samples=0, inputs=files).notes
    return any("computes in floats" in note for note in notes)


def ends_of(seeds: range, folder: Path, change: Change | None = None) -> Counter[str]:
    return require_no_fault(
        seeds,
        lambda seed: fault_of(seed, folder, change),
        lambda seed: random_floats(seed).operators,
    )
