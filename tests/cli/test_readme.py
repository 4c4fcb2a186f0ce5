"""The README's first commands lead from a model file to results, as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tinyai
from tests.support.paths import ROOT
from tests.support.prequantized import tflite_path

README = (ROOT / "README.md").read_text()
SECTION = README.partition("\n## First result\n")[2].partition("\n## ")[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a model, an input, and ``tinyai`` on the PATH."""
    shutil.copy(tflite_path("kws_ref_model"), tmp_path / "net.tflite")
    x = np.random.default_rng(0).integers(-128, 128, (1, 49, 10, 1)).astype(np.int8)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "tinyai"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tinyai "$@"\n')
    script.chmod(0o755)
    return tmp_path


def done(folder: Path, *command: str) -> str:
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    run = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def blocks(language: str, section: str = SECTION) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def test_three_commands_lead_from_a_tflite_file_to_a_c_program(folder: Path) -> None:
    for tool in ("make", "cc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    section = README.partition("\n## C without TVM\n")[2].partition("\n## ")[0]
    (commands,) = blocks("sh", section)
    assert len(commands.splitlines()) == 3
    out = done(folder, "sh", "-ec", commands)
    assert "\nOK\n" in out
    assert re.search(r"^arena +17,536 bytes", out, re.MULTILINE)


def test_two_commands_lead_from_a_tflite_file_to_results(folder: Path) -> None:
    commands = blocks("sh")[0]
    assert commands.count("\ntinyai ") + commands.startswith("tinyai ") == 2
    out = done(folder, "sh", "-ec", commands)
    graph = tinyai.network_of(folder / "net.tflite", tinyai.Target(rounding="tflite")).graph
    (expected,) = tinyai.run_graph(graph, [np.load(folder / "x.npy")])
    rows = re.findall(r"(\d+) +│ +(-?\d+)", out)
    order = np.argsort(-expected[0].astype(int), kind="stable")[:3]
    assert rows == [(str(i), str(expected[0][i])) for i in order]
    lines = blocks("python")[0]
    real = done(folder, sys.executable, "-c", f"{lines}\nprint(y.dtype, y.shape)")
    assert real.endswith("float32 (1, 12)\n")
    assert "scale=0.5847029089927673, zero_point=83" in real
