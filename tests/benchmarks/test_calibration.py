"""Memory stays flat while a model is calibrated."""

from __future__ import annotations

import re

import pytest

from benchmarks import calibration


@pytest.mark.slow
def test_a_thousand_samples_need_no_more_memory_than_a_hundred() -> None:
    assert calibration.memory()


@pytest.mark.long
def test_a_file_is_calibrated_and_compiled_without_tvm() -> None:
    told = calibration.of_file(2, size=32)
    assert re.fullmatch(r"2 samples: [\d.]+ s, [\d.]+ of a CPU, at most [\d.]+ MiB", told)
