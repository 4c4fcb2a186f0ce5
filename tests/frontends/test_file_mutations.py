"""Broken model files end in a message or in a right result: no traceback, no hang over 10 s, less
than 2 GB. To see a case: ``tests.support.file_mutations.case("onnx", number)``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support.oracle import Array
from tests.support.paths import MODELS, ROOT
from tests.support.random_onnx import run as run_onnx
from tinyai.checking.litert import LiteRTOracle
from tinyai.errors import EnvironmentProblem

FEW, MANY = 100, 1000

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason=f"no folder {MODELS}")


def check(form: str, first: int, end: int, folder: Path, compared: int) -> Counter[str]:
    """What became of the cases, of which so many are compared with the file's framework."""
    command = [sys.executable, "-m", "tests.support.file_mutations", form]
    done = subprocess.run(
        [*command, str(first), str(end), str(folder)],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (lines[-1:], done.stderr[-2000:])
    results = [line for line in lines if line[2] != "begin"]
    assert [number for number, _, _ in results] == list(range(first, end))
    assert [line for line in results if line[2].startswith("DEFECT")] == []
    taken = [number for number, _, found in results if found == "taken, to compare"]
    found = Counter(found for _, _, found in results)
    for number in taken[:compared]:
        case = folder / f"case{number}"
        arrays = (np.load(f"{case}.{end}.npz") for end in ("in", "out"))
        inputs, outputs = ([archive[name] for name in archive.files] for archive in arrays)
        found[_COMPARED[form](case.with_suffix(f".{form}"), inputs, outputs)] += 1
    return found


def _by_litert(file: Path, inputs: Sequence[Array], results: Sequence[Array]) -> str:
    try:
        (expected,) = LiteRTOracle(file.read_bytes()).results([tuple(inputs)])
    except EnvironmentProblem:
        return "not run"
    if len(expected) < len(results):
        return "LiteRT gives an output of two names once"
    for wanted, result in zip(expected, results, strict=True):
        np.testing.assert_array_equal(result, wanted, file.name)
    return "right"


def _by_onnx_runtime(file: Path, inputs: Sequence[Array], results: Sequence[Array]) -> str:
    """Its results with its own changes to the graph or without, to one step of the result where it
    computes floats."""
    model = onnx.load(file)
    constants = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in constants]
    values = dict(zip(names, inputs, strict=True))
    try:
        both = [run_onnx(model, values, plain=plain) for plain in (True, False)]
    except Exception:  # it is stricter about scales and versions
        return "not run"
    for place, result in enumerate(results):
        wanted = [each[place] for each in both]
        step = max(float(np.diff(np.unique(w)).min(initial=0)) for w in wanted)
        off = min(float(np.abs(result - w.astype(np.float64)).max()) for w in wanted)
        assert off <= 1.01 * step, file.name
    return "right"


_COMPARED: dict[str, Callable[[Path, Sequence[Array], Sequence[Array]], str]] = {
    "tflite": _by_litert,
    "onnx": _by_onnx_runtime,
}


@pytest.mark.parametrize(("form", "compared"), [("tflite", 4), ("onnx", FEW)])
def test_some_broken_files_end_in_a_message_or_in_a_right_result(
    form: str, compared: int, tmp_path: Path
) -> None:
    found = check(form, 0, FEW, tmp_path, compared)
    assert found["refused: model file"] > FEW // 5, found
    assert found["right"] > 0, found


@pytest.mark.slow
@pytest.mark.parametrize(("form", "compared"), [("tflite", 100), ("onnx", MANY)])
def test_many_broken_files_end_in_a_message_or_in_a_right_result(
    form: str, compared: int, tmp_path: Path
) -> None:
    found = check(form, FEW, FEW + MANY, tmp_path, compared)
    assert found["refused: model file"] > MANY // 5, found
    assert found["right"] > 10, found
