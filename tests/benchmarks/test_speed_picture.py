"""docs/speed.svg shows the figures that docs have, and no others."""

from __future__ import annotations

import json
import re

from benchmarks.speed_picture import FIGURES, PICTURE, draw, least
from tests.support.paths import ROOT

ROWS = json.loads(FIGURES.read_text())["rows"]


def test_the_picture_is_that_of_its_figures() -> None:
    assert PICTURE.read_text() == draw(ROWS)
    assert "<text" in PICTURE.read_text()


def test_the_figures_are_those_of_the_pictures_and_tables_of_the_docs() -> None:
    panels = (ROOT / "docs" / "bench.svg").read_text().split('<g id="axes_2">')
    shown = [list(map(float, re.findall(r">([\d.]+)×<", panel))) for panel in panels]
    measured = [row["ratios"] for row in ROWS if row["peer"] != "XNNPACK in ExecuTorch"]
    assert [list(pair) for pair in zip(*shown, strict=True)] == measured
    page = (ROOT / "docs" / "backends-tinyai.md").read_text()
    head = "| network | tinyai | XNNPACK | ratio |\n|---|---|---|---|\n"
    lines = page.split(head)[1].split("\n\n")[0]
    table = re.findall(r"^\| ([^|]+) \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|$", lines, re.MULTILINE)
    own = [(row["network"], row["ratios"][0]) for row in ROWS if len(row["ratios"]) == 1]
    assert own == [(name, float(ratio)) for name, ratio in table]


def test_the_readme_names_the_least_ratio() -> None:
    readme = (ROOT / "README.md").read_text()
    assert f"The least ratio is {least(ROWS):.2f}" in readme
    for peer in {row["peer"] for row in ROWS}:
        group = [row for row in ROWS if row["peer"] == peer]
        most = max(max(row["ratios"]) for row in group)
        assert re.search(rf"{peer} {least(group):.2f} to {most:.3g}[,\]]", readme)
