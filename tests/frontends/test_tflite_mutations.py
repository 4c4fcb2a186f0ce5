"""Broken .tflite files end in a message or in LiteRT's integers: no traceback, no hang over 10 s,
less than 2 GB. To see a case: ``tests.support.tflite_mutations.case(number)``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.support.paths import MODELS, ROOT
from tinyai.checking.litert import LiteRT
from tinyai.errors import EnvironmentProblem

FEW, MANY, COMPARED = 100, 1000, 4

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason=f"no folder {MODELS}")


def check(first: int, end: int, folder: Path, compared: int) -> Counter[str]:
    """What became of the cases, of which so many are compared with LiteRT."""
    command = [sys.executable, "-m", "tests.support.tflite_mutations"]
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
        found[_compared(folder / f"case{number}")] += 1
    return found


def _compared(case: Path) -> str:
    inputs, results = (
        [archive[name] for name in archive.files]
        for archive in map(np.load, (f"{case}.in.npz", f"{case}.out.npz"))
    )
    try:
        (expected,) = LiteRT(Path(f"{case}.tflite").read_bytes()).results([inputs])
    except EnvironmentProblem:
        return "LiteRT does not run it"
    if len(expected) < len(results):
        return "LiteRT gives an output of two names once"
    for wanted, result in zip(expected, results, strict=True):
        np.testing.assert_array_equal(result, wanted, case.name)
    return "equal"


def test_some_broken_files_end_in_a_message_or_in_the_right_integers(tmp_path: Path) -> None:
    found = check(0, FEW, tmp_path, COMPARED)
    assert found["refused: model file"] > FEW // 5, found
    assert found["equal"] > 0, found


@pytest.mark.slow
def test_many_broken_files_end_in_a_message_or_in_the_right_integers(tmp_path: Path) -> None:
    found = check(FEW, FEW + MANY, tmp_path, 100)
    assert found["refused: model file"] > MANY // 5, found
    assert found["equal"] > 10, found
