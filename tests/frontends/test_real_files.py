"""Files that other tools wrote, by the commands, as their users call them: whole and equal to their
frameworks, or refused with all that keeps them from being whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tinyai
from tests.support.paths import MODELS
from tinyai.cli import main
from tinyai.errors import BoundaryError
from tinyai.frontends.files import explain_file
from tinyai.target import Target

REAL = MODELS / "real"
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason=f"no folder {REAL}")

# What is there twice of a kind is quick enough as one.
WHOLE = (
    "i8_fd_short.tflite",  # constants behind the flatbuffer, operator codes of 32 bits alone
    "i8_hand_recrop.tflite",  # PRELU
    pytest.param("i8_iris_landmark.tflite", marks=pytest.mark.slow),
    "i8_sine.tflite",  # dense layers with a scale for each unit
    "alexa.tflite",  # states
    "oq_orient.onnx",  # uint8 in pairs, per channel
)
SAMPLES = 20


def command(*words: object) -> str:
    result = CliRunner().invoke(main, [*map(str, words)])
    assert result.exit_code == 0, result.output
    return result.output


def inputs_of(file: Path) -> dict[str, np.ndarray]:
    """A value of each input of the file, by its name."""
    rng = np.random.default_rng(0)
    return {
        port.name: rng.integers(0, 100, port.type.shape).astype(port.type.dtype.value)
        for port in tinyai.network_of(file).inputs
    }


@pytest.mark.long
@pytest.mark.parametrize("name", WHOLE)
def test_a_file_is_compiled_run_and_equal_to_its_framework(name: str, tmp_path: Path) -> None:
    """All values of 20 inputs; of a file with state over as many sequences of calls."""
    file, library, given = REAL / name, tmp_path / "net.so", tmp_path / "x.npz"
    command("compile", file, "-o", library)
    told = command("check", file, "--with", library, "--samples", SAMPLES)
    assert told.startswith("equal"), told
    np.savez(given, **inputs_of(file))
    results = []
    for number, model in enumerate((library, file)):
        command("run", model, "--input", given, "-o", tmp_path / f"{number}.npz")
        with np.load(tmp_path / f"{number}.npz") as made:
            results.append({key: made[key] for key in made})
    assert results[0].keys() == results[1].keys()
    assert all((value == results[1][key]).all() for key, value in results[0].items())


# What keeps note transcription from being whole. A constant of the second has the name of another
# operator's result, so that ONNX Runtime does not load it either.
KEPT = {
    "i8_nmp.tflite": {"DIV", "EQUAL", "LOG", "SQRT", "SUM"},
    "oq_nmp_onnx.onnx": {"Concat"},
}


@pytest.mark.long
@pytest.mark.parametrize("name", KEPT)
def test_what_keeps_a_file_from_being_whole_is_named(name: str) -> None:
    """Once a kind, before any C; ``explain`` names the regions as well."""
    file = REAL / name
    report = explain_file(file, Target(isa="scalar"))
    with pytest.raises(BoundaryError) as caught:
        tinyai.network_of(file)
    rows = caught.value.report.host
    assert {row.operator for row in rows} == KEPT[name]
    assert all(row.name and row.reason.clause for row in rows)
    told = {(row.operator, row.name) for row in report.host}
    assert {(row.operator, row.name) for row in rows} <= told
    assert sum(region.macs for region in report.regions) > 30_000_000
