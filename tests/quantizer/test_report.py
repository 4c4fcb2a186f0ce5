"""Rows of the quantizer's report."""

from __future__ import annotations

import numpy as np
import pytest

from tinyai.ir import Array
from tinyai.quantizer.layer_row import LayerRow
from tinyai.quantizer.report import OutputRow, QuantReport, output_row


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0,)])
def test_a_result_without_elements_is_equal(shape: tuple[int, ...]) -> None:
    nothing: list[Array] = [np.zeros(shape, np.float32)] * 2
    assert output_row("", nothing, nothing) == OutputRow("", None, 1.0, 0.0)


def test_samples_agree_where_the_largest_value_along_the_last_axis_is_the_same() -> None:
    wanted = np.array([[1.0, 2.0], [4.0, 3.0]], np.float32)
    found = np.array([[1.0, 2.5], [3.0, 3.5]], np.float32)
    row = output_row("", [wanted, np.float32(1)], [found, np.float32(1)])
    assert (row.agreement, row.largest_error) == (2 / 3, 1.0)


def layer(name: str, sqnr: float | None) -> LayerRow:
    return LayerRow(name, "conv2d", "float32[1]", "int8", 1.25, 0, 0.0, 1.0, 1.0, 0.0, sqnr)


def test_layers_of_which_noise_is_left_are_named_the_worst_first() -> None:
    rows = layer("boxes", 40.0), layer("scores", 0.0), layer("dead", -np.inf), layer("same", None)
    told = str(QuantReport("mse", 8, 8, rows, (), ())).splitlines()
    assert told[1:] == [
        "lost: dead: -inf dB, in steps of 1.25",
        "lost: scores: 0.00 dB, in steps of 1.25",
    ]
    many = tuple(layer(f"layer {n}", 1.0) for n in range(7))
    assert str(QuantReport("mse", 8, 8, many, (), ())).endswith("lost: 2 layers more")
