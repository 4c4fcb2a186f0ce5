"""The oldest TVM that the front end is for, with the other packages of this environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
OLDEST = "0.26.0"


@pytest.mark.slow
def test_the_oldest_tvm_passes_the_tests_that_are_not_slow(tmp_path: Path) -> None:
    python, environment = sys.executable, {**os.environ, "PYTHONPATH": str(tmp_path)}
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([python, *install, f"apache-tvm=={OLDEST}"], check=True)
    script = "import tvm; print(tvm.__version__)"
    told = subprocess.check_output([python, "-c", script], env=environment, text=True)
    assert told.strip() == OLDEST
    tests = ["-m", "pytest", "-q", "-m", "not slow", str(FOLDER)]
    subprocess.run([python, *tests], check=True, env=environment)
