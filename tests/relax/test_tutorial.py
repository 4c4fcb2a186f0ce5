"""The notebook of this front end runs. Its cells are a script: this environment has no Jupyter."""

from __future__ import annotations

from pathlib import Path

from tests.support.scripts import ROOT, code_of, run_script

NOTEBOOK = ROOT / "tutorials" / "08_relax_from_onnx.ipynb"


def test_the_notebook_runs(tmp_path: Path) -> None:
    said = run_script(code_of(NOTEBOOK), tmp_path / "notebook.py", ROOT)

    assert "1 region (" in said
    assert "['main', 'tinyai_main_0']" in said
    assert "RunCodegen() is missing" in said
    assert "tinyai's region: 0 of 10000 values differ" in said
