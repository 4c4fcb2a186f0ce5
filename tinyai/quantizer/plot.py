"""A report of the quantizer as a picture: noise, ranges and damage, a line a layer."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyai.errors import EnvironmentProblem, OptionError
from tinyai.files import check_place, written_whole
from tinyai.quantizer.layer_row import LayerRow
from tinyai.safe_text import safe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENDINGS = (".png", ".svg", ".pdf")
_LINE = 0.21  # inches a layer
_BLUE, _PALE, _RED = "#3367a8", "#d3dcea", "#c0504d"


def plot(
    layers: Sequence[LayerRow],
    ranking: Sequence[LayerRow],
    where: str | os.PathLike[str] | Sequence[Axes],
) -> None:
    """Draw into a file, or on axes: noise and ranges of the ``layers``, and the damage of those of
    the ``ranking``, if any."""
    panels: list[Panel] = [(_noise, layers), (_ranges, layers)]
    if ranking:
        panels.append((_damage, ranking))
    if not isinstance(where, str | os.PathLike):
        if len(where) < len(panels):
            raise OptionError("axes of a plot", found=len(where), allowed=len(panels))
        for (draw, rows), axes in zip(panels, where, strict=False):
            draw(axes, rows)
        return
    file = Path(where)
    figure_of, settings = require_place(file)
    lines = max(len(rows) for _, rows in panels)
    figure = figure_of(figsize=(6 * len(panels), 1.2 + _LINE * lines), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for (draw, rows), each in zip(panels, axes, strict=True):
        draw(each, rows)
    # The same report gives the same bytes.
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(file.suffix.lower())
    with written_whole(file) as beside, settings({"svg.hashsalt": "tinyai"}):
        figure.savefig(beside, dpi=120, metadata=undated)


def require_place(file: Path) -> tuple[Any, Any]:
    """Matplotlib, for a file that can be drawn into. Raises ``OptionError`` for one that cannot."""
    if file.suffix.lower() not in ENDINGS:
        raise OptionError(
            "file of a plot", found=str(file), allowed=f"a name that ends with {', '.join(ENDINGS)}"
        )
    check_place(file)
    return _matplotlib()


def _matplotlib() -> tuple[Any, Any]:
    """Matplotlib's figure class, which opens no window, and its context of settings."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise EnvironmentProblem(
            "the package matplotlib, which draws plots, is missing",
            found=str(error),
            allowed="an installed one",
            hint='pip install "tinyai[plot]"',
        ) from None
    return Figure, rc_context


Panel = tuple[Callable[[Any, Any], None], Sequence[LayerRow]]


def _noise(axes: Axes, rows: Sequence[LayerRow]) -> None:
    _bars(axes, rows, [row.sqnr for row in rows], _BLUE)
    _titled(axes, "SQNR of each layer's values", "dB, the noise of the layers before included")


def _damage(axes: Axes, rows: Sequence[LayerRow]) -> None:
    _bars(axes, rows, [row.alone for row in rows], _RED)
    _titled(axes, "Damage: the results' SQNR with one layer quantized", "dB, the worst first")


def _bars(
    axes: Axes, rows: Sequence[LayerRow], values: Sequence[float | None], colour: str
) -> None:
    """One bar a row, as long as its value; the word "exact" where there is no noise."""
    shown = [value if value is not None and math.isfinite(value) else 0.0 for value in values]
    axes.barh(range(len(rows)), shown, color=colour, height=0.7)
    for number, value in enumerate(values):
        if value is None or value == math.inf:
            axes.text(0, number, " exact", va="center", fontsize=7)
    _named(axes, rows)


def _ranges(axes: Axes, rows: Sequence[LayerRow]) -> None:
    """The range of the values that were seen, drawn on the range of their grid (0 to 1)."""
    least, largest = 0.0, 1.0
    for number, row in enumerate(rows):
        limits = np.iinfo(row.dtype)
        low = (limits.min - row.zero_point) * row.scale
        width = (limits.max - limits.min) * row.scale
        ends = [min(max((each - low) / width, -0.5), 1.5) for each in (row.low, row.high)]
        axes.barh(number, 1, color=_PALE, height=0.8)
        axes.barh(number, ends[1] - ends[0], left=ends[0], color=_BLUE, height=0.3)
        least, largest = min(least, ends[0]), max(largest, ends[1])
        cut = f"   {row.saturated:.2%} cut" if row.saturated else ""
        said = f"{row.low:.3g} … {row.high:.3g}{cut}"
        axes.text(1.02, number, said, va="center", fontsize=6, transform=axes.get_yaxis_transform())
    axes.set_xlim(least - 0.05, largest + 0.05)
    axes.set_xticks([0, 0.5, 1], ["least", "", "largest"])
    _named(axes, rows)
    _titled(axes, "Values that were seen, on the range of their grid", "of the grid's steps")


def _named(axes: Axes, rows: Sequence[LayerRow]) -> None:
    names = [safe(row.name, 32) for row in rows]
    # A model's names are no formulas.
    axes.set_yticks(range(len(rows)), names, fontsize=7, parse_math=False)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _titled(axes: Axes, title: str, below: str) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(below, fontsize=8)
