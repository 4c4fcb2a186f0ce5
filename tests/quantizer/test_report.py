"""Rows of the quantizer's report."""

from __future__ import annotations

import numpy as np
import pytest

from tinyai.ir import Array
from tinyai.quantizer.report import OutputRow, output_row


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0,)])
def test_a_result_without_elements_is_equal(shape: tuple[int, ...]) -> None:
    nothing: list[Array] = [np.zeros(shape, np.float32)] * 2
    assert output_row("", nothing, nothing) == OutputRow("", None, 1.0, 0.0)


def test_samples_agree_where_the_largest_value_along_the_last_axis_is_the_same() -> None:
    wanted = np.array([[1.0, 2.0], [4.0, 3.0]], np.float32)
    found = np.array([[1.0, 2.5], [3.0, 3.5]], np.float32)
    row = output_row("", [wanted, np.float32(1)], [found, np.float32(1)])
    assert (row.agreement, row.largest_error) == (2 / 3, 1.0)
