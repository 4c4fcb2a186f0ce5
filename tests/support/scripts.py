"""Texts of documents, run as a reader would run them: in a process of its own, as one script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_script(parts: Iterable[str], script: Path, folder: Path) -> str:
    """What ``parts`` print, one after the other, run in ``folder``. They are written to ``script``;
    one that fails is a failure of the test."""
    script.write_text("\n".join(parts))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def code_of(notebook: Path) -> list[str]:
    """The code of a notebook's cells, without those tagged as needing matplotlib."""
    cells = json.loads(notebook.read_text())["cells"]
    return [
        "".join(cell["source"])
        for cell in cells
        if cell["cell_type"] == "code" and "matplotlib" not in cell["metadata"].get("tags", ())
    ]
