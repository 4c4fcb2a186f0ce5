"""The notebook of this front end runs. Its cells are a script: this environment has no Jupyter."""

from __future__ import annotations

from pathlib import Path

from tests.support.scripts import ROOT, code_of, run_script

NOTEBOOK = ROOT / "tutorials" / "05_executorch_mobilenet_v2.ipynb"


def test_the_notebook_runs(tmp_path: Path) -> None:
    said = run_script(code_of(NOTEBOOK), tmp_path / "notebook.py", ROOT).splitlines()

    assert "['executorch_call_delegate', '<built-in function getitem>']" in said
    assert any(line.startswith("of 20 choices 20 are eager torch's") for line in said)
    assert any("µs" in line and "convolution" in line for line in said)
