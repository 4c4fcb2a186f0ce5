"""docs/speed.svg: how many times as fast as each peer, of the figures in ``speed.json``.

``python -m benchmarks.speed_picture`` writes it. The figures are those of docs/bench.svg, and of
the table in docs/backends-tinyai.md: `make bench` measures the first, bench_executorch.py the
second.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks import workloads

FIGURES = Path(__file__).with_name("speed.json")
PICTURE = Path(__file__).parents[1] / "docs" / "speed.svg"
COLOURS = {
    "the faster of LiteRT and OpenVINO": "#c76a17",
    "the faster of ONNX Runtime and OpenVINO": "#3b7f54",
    "XNNPACK in ExecuTorch": "#8a4f9e",
}
WIDTH, ROW, LABELS = 760, 21, 220
# Longer bars are cut off, and say their number.
LONGEST = 8.0
DASHED = 'stroke="#1d2330" stroke-dasharray="3 3"'
STYLE = "font-family: Helvetica, Arial, sans-serif; font-size: 13px; fill: #1d2330"


def least(rows: Sequence[dict[str, Any]]) -> float:
    return min(min(row["ratios"]) for row in rows)


def draw(rows: Sequence[dict[str, Any]]) -> str:
    """The picture: a group for each peer, a row for each network, a bar for each number of
    threads. It brings its own background, so that it is read on dark pages too."""
    body, height = [], 58.0
    for peer, colour in COLOURS.items():
        group = [row for row in rows if row["peer"] == peer]
        title = f"times as fast as {peer}; the least here: {least(group):.2f}"
        body.append(_text(16, height, title, "font-weight: bold"))
        height += 10
        place, end = LABELS + _length(1.0), height + ROW * len(group)
        for row in group:
            body += _row(row, height, colour)
            height += ROW
        body.append(f'<path d="M {place:.1f} {end:.1f} v -{ROW * len(group)}" {DASHED}/>')
        height += 30
    height -= 24
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">',
        "<title>How many times as fast as its peers tinyai is</title>",
        f'<rect width="{WIDTH}" height="{height:.0f}" rx="10" fill="#f6f7f9"/>',
        _text(16, 26, "Dark: one thread. Pale: two threads. The dashed line: as fast as the peer."),
    ]
    return "\n".join([*head, *body, "</svg>", ""])


def _row(row: dict[str, Any], top: float, colour: str) -> Iterator[str]:
    found = row["ratios"]
    yield _text(LABELS - 8, top + 14, row["network"], "text-anchor: end")
    thick = (ROW - 5) / len(found)
    for number, ratio in enumerate(found):
        opacity = 1 if number == 0 else 0.45
        yield (
            f'<rect x="{LABELS}" y="{top + 2 + number * thick:.1f}" width="{_length(ratio):.1f}" '
            f'height="{thick:.1f}" fill="{colour}" fill-opacity="{opacity}"/>'
        )
    said = " and ".join(f"{ratio:.2f}" for ratio in found)
    yield _text(LABELS + _length(max(found)) + 6, top + 14, said, "font-size: 12px")


def _length(ratio: float) -> float:
    return min(ratio, LONGEST) / LONGEST * (WIDTH - LABELS - 130)


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" style="{STYLE}; {style}">{escape(text)}</text>'


if __name__ == "__main__":
    workloads.write_whole(PICTURE, draw(json.loads(FIGURES.read_text())["rows"]).encode())
