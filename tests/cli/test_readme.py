"""The README's code runs as it stands there, and leads to the results of the model."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import tinyai
from tests.support.documents import blocks, pages, run_page, write_network

README = pages()["README.md"]
MOST_LINES = 180


def test_the_code_of_the_readme_runs_and_its_first_result_is_that_of_the_model(
    tmp_path: Path,
) -> None:
    write_network(tmp_path)
    out = run_page(README, tmp_path)
    graph = tinyai.network_of(tmp_path / "net.tflite", tinyai.Target(rounding="tflite")).graph
    (expected,) = tinyai.run_graph(graph, [np.load(tmp_path / "x.npy")])
    rows = re.findall(r"(\d+) +│ +(-?\d+)", out)
    order = np.argsort(-expected[0].astype(int), kind="stable")[:3]
    assert rows == [(str(i), str(expected[0][i])) for i in order]
    assert "\nOK\n" in out


def test_the_first_result_takes_three_commands_and_no_framework() -> None:
    first, *_ = blocks(README)
    assert [command.split()[0] for command in first.text.splitlines()] == [
        "pip",
        "tinyai",
        "tinyai",
    ]


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= MOST_LINES
