"""Rounding by what the terms of a layer have in common."""

from __future__ import annotations

import numpy as np
import pytest

from tinyai.quantizer.adaptive_rounding import BLOCK, rounded
from tinyai.quantizer.layers import Moments
from tinyai.quantizer.params import Array

RNG = np.random.default_rng(0)
SCALE = 0.1


def error(weights: Array, steps: Array, products: Array) -> float:
    difference = weights - SCALE * steps
    return float(np.einsum("got,gtu,gou->", difference, products, difference))


def products_of(terms: int, common: float) -> Array:
    """Two groups' terms that have a part in common."""
    rows = RNG.normal(size=(2, 4 * terms, terms)) + common * RNG.normal(size=(2, 4 * terms, 1))
    return np.asarray(rows.transpose(0, 2, 1) @ rows / rows.shape[1])


@pytest.mark.parametrize("terms", [9, BLOCK + 40])
def test_terms_that_go_together_make_up_for_each_other(terms: int) -> None:
    products = products_of(terms, 2.0)
    weights = RNG.normal(size=(2, 5, terms))
    steps = rounded(weights, np.full((2, 5), SCALE), products)
    assert np.abs(weights - SCALE * steps).max() < 4 * SCALE
    assert error(weights, steps, products) < 0.5 * error(
        weights, np.rint(weights / SCALE), products
    )


def test_terms_with_nothing_in_common_are_rounded_to_nearest() -> None:
    weights = RNG.normal(size=(1, 3, 8))
    products = np.diag(RNG.uniform(1, 2, 8))[None]
    steps = rounded(weights, np.full((1, 3), SCALE), products)
    np.testing.assert_array_equal(steps, np.rint(weights / SCALE))


def test_terms_that_are_always_zero_are_no_fault() -> None:
    weights = RNG.normal(size=(2, 3, 8))
    for products in (np.zeros((2, 8, 8)), np.ones((2, 8, 8))):
        steps = rounded(weights, np.full((2, 3), SCALE), products)
        assert np.abs(weights - SCALE * steps).max() < 10 * SCALE


def test_a_large_term_that_is_nearly_constant_has_no_spread() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((1, 200, 4))
    rows[:, :, 1] = 1e8 + 1e-3 * rows[:, :, 1]  # the difference of squares is noise, below zero too
    seen = Moments(200, rows.sum(axis=1), rows.sum(axis=1), rows.transpose(0, 2, 1) @ rows)
    spread = seen.spread(centred=True)
    assert not spread[:, 1].any()
    assert not spread[:, :, 1].any()
    others = np.cov(rows[0][:, [0, 2, 3]], rowvar=False, bias=True)
    assert np.allclose(spread[0][np.ix_([0, 2, 3], [0, 2, 3])], others)
    weights = rng.standard_normal((1, 3, 4))
    scales = np.abs(weights).max(axis=2) / 127
    steps = rounded(weights, scales, spread)
    assert (steps[:, :, 1] == np.rint(weights[:, :, 1] / scales)).all()
