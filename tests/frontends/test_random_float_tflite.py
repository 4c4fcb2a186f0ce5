"""Random float .tflite files: the quantizer has LiteRT's floats, and what it makes of them has the
noise that its report tells."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import tinyai
from tests.support.random_tflite import Writer, of_floats, random_file
from tests.support.seeds import require_no_fault
from tinyai.errors import BoundaryError, OptionError
from tinyai.frontends.files import read_file
from tinyai.frontends.onnx.float_model import FileModel
from tinyai.frontends.whole import network_of
from tinyai.ir import Array
from tinyai.quantizer.data import CalibrationError
from tinyai.quantizer.report import output_row
from tinyai.reference import run_graph

pytestmark = pytest.mark.filterwarnings(
    "ignore:(?!the float model as it was read):tinyai.errors.UsageWarning"
)
SWAPPED = 0.05  # of the places of largest values may be others
FILES, MANY, PARTS, MOST = 60, 1000, 10, 8
SAMPLES = 4
# dB: how far the noise may be from the report's, and from where on both are a step of the grid.
ALIKE, TELLING = 1.0, 60.0
LEFT_OUT = ("requantized", "floats")
CONFIGS: tuple[dict[str, Any], ...] = (
    *(
        {},
        {"reduce_range": True},
        {"equalize": True},
        {"observer": "minmax"},
        {"per_channel": False},
    ),
    *({"dtype": "uint8"}, {"dtype": "int16"}, {"symmetric": True}, {"residual": "common"}),
)


def random_floats(seed: int) -> Writer:
    """L2 norms are left out: LiteRT divides by no less than 1e-6, and we by a little more, which
    shows in a row that is zero but for rounding."""
    return of_floats(random_file(seed, most=MOST, without=(*LEFT_OUT, "l2_norm")))


def by_litert(content: bytes, samples: list[Array]) -> list[Array] | None:
    """Its floats; None of a file that it refuses."""
    interpreter, results = Interpreter(model_content=content), []
    try:
        interpreter.allocate_tensors()
        (first,), (last,) = interpreter.get_input_details(), interpreter.get_output_details()
        for sample in samples:
            interpreter.set_tensor(first["index"], sample)
            interpreter.invoke()  # which prepares what is behind a shape that is computed
            results.append(np.array(interpreter.get_tensor(last["index"])))
    except (RuntimeError, ValueError):
        return None
    return results


def fault_of(written: Writer, seed: int, file: Path) -> tuple[str, str]:
    """What became of a file, and what is wrong, if anything is."""
    content = written.content()
    shape = written.graph.tensors[written.graph.inputs[0]].shape
    samples = [*np.random.default_rng(seed).normal(size=(SAMPLES, *shape)).astype(np.float32)]
    wanted = by_litert(content, samples)
    if wanted is None or not np.isfinite(wanted).all():
        return "refused by LiteRT", ""
    file.write_bytes(content)
    named = [{"t0": sample} for sample in samples]
    try:
        model = FileModel(read_file(file))
        runner = model.runner(model.root)
        floats = [runner.run(sample)[0] for sample in named]
        quantized = tinyai.quantize_file(file, named, tinyai.QuantConfig(**CONFIGS[seed % 9]))
    except CalibrationError as error:
        return "not finite", "" if "NaN or infinite" in str(error) else str(error)
    except (BoundaryError, OptionError) as error:
        return "refused", "" if "operator" in str(error) else str(error)
    largest = max(float(np.abs(each).max()) for each in wanted)
    for each, other in zip(floats, wanted, strict=True):
        if each.dtype != np.float32:
            # Of two floats that are nearly equal, the order of their sums decides.
            return "places", "" if (each != other).mean() < SWAPPED else "other places"
        # Floats that two programs add up, each in an order of its own; of angles of many turns the
        # last bits count.
        turns = {"SIN", "COS"} & {*written.kinds}
        if not np.allclose(each, other, rtol=1e-4, atol=(2e-4 if turns else 1e-5) * largest):
            return "wrong", f"{np.abs(each - other).max()} of {largest} off"
    try:
        network = network_of(quantized.model, "quantized", quantized.model.rounding)
    except BoundaryError:
        return "partly", ""
    found = [run_graph(network.graph, [sample])[0] for sample in samples]
    noise = output_row("", wanted, found).sqnr
    told = quantized.report.outputs[0].sqnr
    if noise is None or told is None or min(noise, told) > TELLING:
        return "quantized", ""
    alike = abs(noise - told) < ALIKE
    return "quantized", "" if alike else f"{noise:.1f} dB, in the report {told:.1f}"


@pytest.mark.parametrize("seed", [7, 15, 29, 36])
def test_l2_norms_are_litert_s_and_their_noise_is_that_of_the_report(
    seed: int, tmp_path: Path
) -> None:
    written = of_floats(random_file(seed, most=MOST, without=LEFT_OUT))
    assert "L2_NORMALIZATION" in written.kinds
    assert fault_of(written, seed, tmp_path / "float.tflite") == ("quantized", "")


def ends_of(seeds: range, folder: Path) -> Counter[str]:
    file = folder / "float.tflite"
    return require_no_fault(
        seeds,
        lambda seed: fault_of(random_floats(seed), seed, file),
        lambda seed: random_floats(seed).kinds,
    )


def test_random_floats_are_litert_s_and_their_noise_is_that_of_the_report(tmp_path: Path) -> None:
    ends = ends_of(range(FILES), tmp_path)
    assert ends["quantized"] > FILES / 3, ends
    assert ends["partly"] < FILES / 6, ends  # places of the largest of what nothing else reads


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_so_are_many(tmp_path: Path, part: int) -> None:
    count = MANY // PARTS
    ends = ends_of(range(count * part, count * (part + 1)), tmp_path)
    assert ends["quantized"] > count / 3, ends
