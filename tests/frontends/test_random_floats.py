"""Random float .onnx files are quantized: ONNX Runtime runs what is written, with the noise that
the report promises; compiled from memory or from the file, the integers are the same, and those of
ONNX Runtime but where ``tinyai.check`` names what it computes in floats."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.float_faults import ends_of, fused, in_part

pytestmark = pytest.mark.filterwarnings(
    "ignore:(?!the float model as it was read):tinyai.errors.UsageWarning"
)
MODELS = 50
MANY = 2000  # in the slow tests
PARTS = 10


@pytest.mark.long
def test_random_models_that_are_quantized_in_part_become_whole(tmp_path: Path) -> None:
    ends = ends_of(range(2 * MODELS), tmp_path, in_part)
    assert ends["equal"] > MODELS / 4


@pytest.mark.long
def test_random_models_that_onnx_runtime_has_fused_are_quantized_as_reported(
    tmp_path: Path,
) -> None:
    ends = ends_of(range(2 * MODELS), tmp_path, fused)
    assert ends["equal"] > MODELS / 8


def test_random_models_are_quantized_as_reported(tmp_path: Path) -> None:
    ends = ends_of(range(MODELS), tmp_path)
    assert ends["equal"] > MODELS / 2
    assert ends["partly"] > MODELS / 8
    assert ends["refused"] < MODELS / 10


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_so_are_many(tmp_path: Path, part: int) -> None:
    count = MANY // PARTS
    ends = ends_of(range(count * part, count * (part + 1)), tmp_path)
    assert ends["equal"] > count / 2
