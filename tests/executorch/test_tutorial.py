"""The notebook of this front end runs. Its cells are a script: this environment has no Jupyter."""

from __future__ import annotations

import json
from pathlib import Path

from tests.executorch.scripts import ROOT, run_script

NOTEBOOK = ROOT / "tutorials" / "05_executorch_mobilenet_v2.ipynb"


def test_the_notebook_runs(tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]

    said = run_script(code, tmp_path / "notebook.py", ROOT).splitlines()

    assert "['executorch_call_delegate', '<built-in function getitem>']" in said
    assert any(line.startswith("of 20 choices 20 are eager torch's") for line in said)
    assert any("µs" in line and "convolution" in line for line in said)
