"""The notebook of this front end runs. Its cells are a script: this environment has no Jupyter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "tutorials" / "05_executorch_mobilenet_v2.ipynb"


def test_the_notebook_runs(tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    script = tmp_path / "notebook.py"
    script.write_text("\n".join(code))

    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout.splitlines()
    assert "['executorch_call_delegate', '<built-in function getitem>']" in said
    assert any(line.startswith("of 20 choices 20 are eager torch's") for line in said)
    assert any("µs" in line and "convolution" in line for line in said)
