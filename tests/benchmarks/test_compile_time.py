"""The benchmark of whole commands."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks import compile_time


@pytest.mark.long
def test_a_cold_and_a_warm_command_are_timed() -> None:
    result = CliRunner().invoke(compile_time.main, ["--network", "kws", "--runs", "1", "--stages"])
    assert result.exit_code == 0, result.output
    assert "kws warm" in result.output
    assert compile_time.COMPILER in result.output
