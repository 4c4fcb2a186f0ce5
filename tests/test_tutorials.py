"""The notebooks of ``tutorials/`` run, and the guide to Relay shows what is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "tutorials").glob("*.ipynb"))
SECONDS = 90  # for a cell; the machine may be busy
GUIDE = (ROOT / "docs" / "guides" / "relay.md").read_text()


def test_first_tutorial_is_there() -> None:
    assert "01_why_stop_fusion_cuts.ipynb" in [path.name for path in NOTEBOOKS]


# Jupyter's kernel manager and Python's event loop warn of each other's manners.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(
    "path",
    [path for path in NOTEBOOKS if "executorch" not in path.stem],  # these have torch
    ids=lambda path: path.stem,
)
def test_notebook_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(ROOT)}}
    NotebookClient(notebook, timeout=SECONDS, resources=resources).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_committed_without_outputs(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert cells
    assert [cell.outputs for cell in cells] == [[]] * len(cells)
    assert [cell.execution_count for cell in cells] == [None] * len(cells)


def test_the_guides_ten_lines_run_and_the_report_of_their_network_is_the_guides(
    tmp_path: Path,
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if "relay.quantize" in block)
    assert len(block.strip().splitlines()) <= 13, "ten lines and their imports"
    (shown,) = re.findall(r"^```\n(\d+ region.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    command = [sys.executable, "-c", f"{block}\nprint(tinyai.explain(mod))"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    shape, _, report = run.stdout.partition("\n")
    assert shape == "(1, 10)"
    parts = re.split(r"\[\.\.\..*\.\.\.\]", shown)
    assert len(parts) == 2, "the guide leaves out one stretch"
    assert report.startswith(parts[0].rstrip()), report
    assert report.rstrip().endswith(parts[1].strip()), report
