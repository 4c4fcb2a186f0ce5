"""The formulas of docs/arithmetic.md are those of the code, in whole numbers and fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.support.paths import ROOT
from tinyai.ops.scales import fixed_point
from tinyai.ops.steps import FixedPointMultiply

RATIOS = (0.75, 0.5, 0.3141592653589793, 0.0123, 1.7e-4, 3e-7)
SUMS = np.unique(
    np.concatenate(
        [
            np.arange(-600, 600),
            np.random.default_rng(0).integers(-(2**31), 2**31, 3000),
            [-(2**31), 2**31 - 1],
        ]
    )
).astype(np.int32)


def away(value: Fraction) -> int:
    """The nearest integer, halves away from zero."""
    size = int(abs(value) + Fraction(1, 2))
    return size if value >= 0 else -size


def upward(acc: int, m: int, s: int) -> int:
    """R of the page, under TVM's heading."""
    return (acc * m + 2 ** (30 - s)) >> (31 - s)


def twice(acc: int, m: int, s: int) -> int:
    """The two lines of the page, under TFLite's heading."""
    product = acc * m
    nudge = 2**30 if product >= 0 else 1 - 2**30
    high = int(Fraction(product + nudge, 2**31))  # cut towards zero
    return away(Fraction(high, 2**-s))


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_ratio_is_a_multiplier_of_31_bits_and_a_shift(ratio: float) -> None:
    m, s = fixed_point(ratio)
    assert 2**30 <= m < 2**31
    assert s <= 0
    assert abs(Fraction(m) * Fraction(2) ** (s - 31) - Fraction(ratio)) <= Fraction(2) ** (s - 32)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize(("ties", "formula"), [("upward", upward), ("twice", twice)])
def test_the_pages_formulas_are_the_steps(ratio: float, ties: str, formula: object) -> None:
    assert callable(formula)
    m, s = fixed_point(ratio)
    found = FixedPointMultiply((m,), (s,), None, ties).reference(SUMS, None)
    assert found.tolist() == [formula(int(acc), m, s) for acc in SUMS]


def test_the_page_has_these_formulas() -> None:
    page = (ROOT / "docs" / "arithmetic.md").read_text()
    assert "((acc * m + 2^(30 - s)) >> (31 - s))" in page
    assert "high = trunc((acc * m + nudge) / 2^31)" in page
    assert "nudge = 2^30, or 1 - 2^30 where the product is negative" in page
