"""Memory stays flat while a model is calibrated."""

from __future__ import annotations

import pytest

from benchmarks import calibration


@pytest.mark.slow
def test_a_thousand_samples_need_no_more_memory_than_a_hundred() -> None:
    assert calibration.memory()
