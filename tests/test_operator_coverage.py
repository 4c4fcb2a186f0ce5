"""No operator is taken that is not compared with TVM."""

from __future__ import annotations

from tests import (
    test_chains,
    test_elementwise_operators,
    test_layer_operators,
    test_moving_operators,
    test_qnn_operators,
)
from tinyai.patterns import OPERATORS

COMPARED = (
    test_chains,
    test_elementwise_operators,
    test_layer_operators,
    test_moving_operators,
    test_qnn_operators,
)


def test_families_cover_every_operator_that_tinyai_takes() -> None:
    compared = set().union(*(each.SUITE.operators() for each in COMPARED))
    assert set(OPERATORS) - compared == set()
