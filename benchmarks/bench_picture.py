"""The picture of `make bench`: a bar for each program on each network, on a logarithmic scale."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks import workloads
from benchmarks.bench_measure import Row
from tinyai.safe_text import safe

OURS, UPWARD = "tinyai", "tinyai, TVM's integers"
COLOURS = {
    OURS: "#1f4e9c",
    UPWARD: "#9db7de",
    "LiteRT": "#e0862f",
    "ONNX Runtime": "#4f9d69",
    "OpenVINO": "#b0417a",
    "TVM": "#9a9a9a",
}
STYLE = {
    "svg.hashsalt": "tinyai",  # the same names in the file at each run
    "svg.fonttype": "none",  # text stays text
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
BAR = 0.8  # of the distance between two networks, all bars together


def draw(rows: Sequence[Row], path: Path, machine: str) -> None:
    """Write ``path`` (SVG, whole or not at all): a panel for each number of threads.

    Rows without figures are left out. Above our bar stands the ratio to the fastest peer; a paler
    bar is TVM's rounding beside the peer's.
    """
    measured = [row for row in rows if row.figures is not None]
    threads = sorted({row.threads for row in measured})
    networks = list(dict.fromkeys(row.name for row in measured))
    with mpl.rc_context(STYLE):
        figure = Figure(
            figsize=(max(5.0, 1.5 + 0.75 * len(networks)), 0.8 + 3.0 * max(1, len(threads))),
            layout="constrained",
        )
        for number, count in enumerate(threads):
            axes = figure.add_subplot(len(threads), 1, number + 1)
            _panel(axes, [row for row in measured if row.threads == count], networks)
            axes.set_title(f"{count} thread{'' if count == 1 else 's'}, {machine}", loc="left")
        content = io.BytesIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
    workloads.write_whole(path, content.getvalue())


def _panel(axes: Any, rows: Sequence[Row], networks: Sequence[str]) -> None:
    for name in COLOURS:
        places, heights, labels = [], [], []
        for row in rows:
            bars = _bars(row)
            if name not in bars:
                continue
            width = BAR / len(bars)
            offset = (list(bars).index(name) - (len(bars) - 1) / 2) * width
            places.append((networks.index(row.name) + offset, width))
            heights.append(bars[name])
            labels.append(_ratio(row) if name == OURS else "")
        if not heights:
            continue
        drawn = axes.bar(
            [place for place, _ in places],
            heights,
            [width for _, width in places],
            color=COLOURS[name],
            label=name,
        )
        axes.bar_label(drawn, labels, padding=1, fontsize=7)
    axes.set_yscale("log")
    axes.set_ylabel("ms a run (log)")
    labels = [safe(name).replace("$", r"\$") for name in networks]  # $ begins a formula
    axes.set_xticks(range(len(networks)), labels, rotation=30, ha="right")
    axes.legend(frameon=False, ncols=len(COLOURS), loc="upper left", fontsize=8)
    axes.margins(y=0.15)


def _bars(row: Row) -> dict[str, float]:
    """Milliseconds by program, ours first."""
    figures = row.figures
    assert figures is not None
    ours = {OURS: figures.run_ms}
    if figures.upward_ms is not None:
        ours[UPWARD] = figures.upward_ms
    return ours | {peer.name: peer.ms for peer in figures.peers}


def _ratio(row: Row) -> str:
    figures = row.figures
    assert figures is not None
    return f"{min(peer.ratio for peer in figures.peers):.2f}×" if figures.peers else ""
