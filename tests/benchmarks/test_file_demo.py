"""The first lines of ``make demo``: from a file to a digit, without TVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import file_demo


def test_the_first_lines_of_the_demo_read_a_digit_and_compare(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert file_demo.main(tmp_path) == 0
    out = capfd.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("$ ")] == [
        f"$ {command}" for command in file_demo.COMMANDS
    ]
    assert "100 values, all equal" in out
    assert "the digit is a 4" in out
    assert "│     4 │" in out


def test_the_demo_ends_with_1_where_a_command_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_demo, "COMMANDS", ("tinyai check digits.onnx --with nothing.so",))
    assert file_demo.main(tmp_path) == 1
