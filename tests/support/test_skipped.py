"""The end of a run says which tests this machine could not run, and for which instruction set."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

TESTS = """
import pytest
from tests.support import machines
from tests.support.machines import require_isa

@pytest.fixture(autouse=True)
def plain_cpu(monkeypatch):
    monkeypatch.setattr(machines, "instruction_sets", lambda cpu: ["avx2"])

@pytest.mark.parametrize("row", ["dense", "add"])
@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512vnni"])
def test_row(isa, row):
    require_isa(isa)

def test_other():
    require_isa("avxvnni")

def test_skips_for_another_reason():
    pytest.skip("no compiler")
"""


def test_a_run_ends_with_what_it_could_not_run_for_want_of_instructions(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import pytest_terminal_summary  # noqa: F401\n"
    )
    (tmp_path / "test_rows.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "test_rows.py"]
    path = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        command, cwd=tmp_path, env=path, capture_output=True, text=True, check=True
    )
    lines = run.stdout.splitlines()
    (start,) = (n for n, line in enumerate(lines) if "instruction sets that this machine" in line)
    assert lines[start + 1 : start + 6] == [
        "avx512vnni: 2 tests",
        "     2 test_rows.py::test_row",
        "       avx512vnni-add, avx512vnni-dense",
        "avxvnni: 1 tests",
        "     1 test_rows.py::test_other",
    ]
    assert "no compiler" not in "".join(lines[start + 1 :])
