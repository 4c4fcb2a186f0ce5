"""Nodes whose operands do not fit to their operator end in an error or a refusal, never in the end
of the process, which onnx's own rules in C++ would bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.misfit_nodes import read_misfits

SEEDS, MANY, PARTS = 6, 200, 5


@pytest.mark.long
def test_nodes_that_do_not_fit_do_not_end_the_process(tmp_path: Path) -> None:
    read_misfits(tmp_path, range(SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_nor_do_many(tmp_path: Path, part: int) -> None:
    count = MANY // PARTS
    read_misfits(tmp_path, range(SEEDS + part * count, SEEDS + (part + 1) * count))
