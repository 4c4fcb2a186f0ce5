"""The notebooks of ``tutorials/`` run, and the guide to Relay shows what is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.support.notebooks import (
    TUTORIALS,
    blemishes,
    code_cells,
    differences,
    executed,
    pictures,
)
from tests.support.paths import ROOT

# Those of ExecuTorch and of Relax run in environments of their own.
NOTEBOOKS = [
    path
    for path in sorted(TUTORIALS.glob("*.ipynb"))
    if not {"executorch", "relax"} & {*path.stem.split("_")}
]
# Those that take more than 20 seconds of CPU time: `make test` has a minute for the others.
SLOW = ("02_to_a_library_on_another_machine", "04_mobilenet_v2_from_float")
WITHOUT_TVM = [path for path in NOTEBOOKS if path.stem[:2] in ("06", "07", "09")]
GUIDE = (ROOT / "docs" / "guides" / "relay.md").read_text()


def test_first_tutorial_is_there() -> None:
    assert "01_why_stop_fusion_cuts.ipynb" in [path.name for path in NOTEBOOKS]


@pytest.mark.long
# Jupyter's kernel manager and Python's event loop warn of each other's manners.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(
    "path",
    [pytest.param(each, marks=[pytest.mark.slow] * (each.stem in SLOW)) for each in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_notebook_shows_what_is_committed(path: Path) -> None:
    committed = nbformat.read(path, as_version=4)
    assert list(differences(committed, executed(path))) == [], "make notebooks"


@pytest.mark.parametrize("path", sorted(TUTORIALS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_is_committed_with_lasting_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = code_cells(notebook)
    assert any(cell.outputs for cell in cells)
    assert [cell.execution_count for cell in cells] == [None] * len(cells)
    assert list(blemishes(notebook)) == []


@pytest.mark.parametrize("path", WITHOUT_TVM, ids=lambda path: path.stem)
def test_notebook_without_tvm_explains_by_pictures_in_short_cells(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    sources = [cell.source for cell in code_cells(notebook)]
    assert not any(re.search(r"\btvm\b", source) for source in sources)
    lines = [sum(bool(line.strip()) for line in source.splitlines()) for source in sources]
    assert max(lines) <= 15
    assert len(pictures(notebook)) >= 2
    assert "At the end you" in notebook.cells[0].source


@pytest.mark.long
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
