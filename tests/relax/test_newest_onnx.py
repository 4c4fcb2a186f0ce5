"""The newest package onnx, which may be here: it defines operators in other ways, and its rules of
shapes fail at others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.float_faults import ends_of
from tests.support.misfit_nodes import read_misfits


@pytest.mark.filterwarnings("ignore::tinyai.errors.UsageWarning")
def test_random_models_are_quantized_as_reported(tmp_path: Path) -> None:
    seeds = range(100, 130)

    assert ends_of(seeds, tmp_path)["equal"] > len(seeds) / 2


def test_nodes_that_do_not_fit_do_not_end_the_process(tmp_path: Path) -> None:
    read_misfits(tmp_path, range(100, 103))
