"""The code of docs/relax.md runs as it stands there, with a model and an image of the reader's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from benchmarks import onnx_networks
from tests.relax.nets import ONNX
from tests.support.documents import RELAX, pages, run_page


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    onnx.save(onnx_networks.quantize(ONNX["squeezenet"]()), tmp_path / "model.onnx")
    np.save(tmp_path / "image.npy", np.zeros((1, 3, 64, 64), np.float32))
    said = [run_page(pages()[place], tmp_path) for place in RELAX]
    assert "1 region" in said[0]
    assert (tmp_path / "model.so").stat().st_size > 0
