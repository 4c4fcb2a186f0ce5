"""Pictures of the quantizer's report: what they show, and files that are whole or not there."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from PIL import Image

from tinyai.errors import EnvironmentProblem, OptionError
from tinyai.quantizer.layer_row import LayerRow
from tinyai.quantizer.report import OutputRow, QuantReport

ROW = LayerRow(
    "conv", "nn.conv2d", "float32[1,8]", "int8", 0.1, -128, 0.0, 25.0, 0.98, 0.001, 31.5, 40.0
)
ROWS = (
    ROW,
    replace(ROW, name="$\\frac{ \n $_^", sqnr=20.0, alone=12.0, zero_point=0, low=-30.0, high=50.0),
    replace(ROW, name="exact", sqnr=None, alone=math.inf, dtype="uint8", zero_point=0),
    replace(ROW, name="lost", sqnr=-math.inf, alone=-3.0),
)
REPORT = QuantReport("mse", 64, 8, ROWS, (OutputRow("float32[1,8]", 20.0, 1.0, 0.5),), ())


def test_the_panels_show_noise_ranges_and_damage() -> None:
    axes = Figure().subplots(1, 3)
    REPORT.plot([*axes])
    noise, ranges, damage = axes
    assert [bar.get_width() for bar in noise.patches] == [31.5, 20.0, 0.0, 0.0]
    assert [bar.get_width() for bar in damage.patches] == [-3.0, 12.0, 40.0, 0.0]
    assert [label.get_text() for label in damage.get_yticklabels()][::3] == ["lost", "exact"]
    grid, seen = ranges.patches[:2]
    assert (grid.get_x(), grid.get_width(), seen.get_x()) == (0, 1, 0)
    assert seen.get_width() == pytest.approx(25 / 25.5)
    # What reaches far out of its grid is cut off, and said.
    assert ranges.patches[3].get_x() == -0.5 or ranges.patches[3].get_x() > -0.7
    assert any("-30 … 50   0.10% cut" in text.get_text() for text in ranges.texts)


def test_a_report_without_ranking_has_two_panels() -> None:
    plain = replace(REPORT, layers=tuple(replace(row, alone=None) for row in ROWS))
    axes = Figure().subplots(1, 2)
    plain.plot([*axes])
    with pytest.raises(OptionError, match="axes"):
        REPORT.plot([*axes])


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_file_is_drawn_whole_and_alike(ending: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.{ending}" for n in range(2)]
    for file in files:
        REPORT.plot(file)
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert sorted(tmp_path.iterdir()) == files
    if ending == "png":
        with Image.open(files[0]) as image:
            assert image.width > 1000


def test_a_picture_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Figure, file: Path, **_: object) -> None:
        Path(file).write_bytes(b"half")
        raise OSError("full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="full"):
        REPORT.plot(tmp_path / "x.png")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["x.bmp", "x", "no/folder/x.png"])
def test_a_bad_place_is_told(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"file of a plot|output file"):
        REPORT.plot(tmp_path / name)


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(EnvironmentProblem, match=r"tinyai\[plot\]"):
        REPORT.plot(tmp_path / "x.png")
