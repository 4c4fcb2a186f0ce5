"""What is far below the largest value of its row has no share of a softmax."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyai.ir import Array
from tinyai.quantizer.softmax_inputs import telling


def shares(values: Array, axis: int) -> Array:
    powers = np.exp(values.astype(np.float64) - values.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


@given(st.integers(0, 10**6), st.sampled_from([0, 1]), st.sampled_from([1.0, 10.0, 100.0]))
def test_shares_stay_what_they_are_in_8_bits(seed: int, axis: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(rng.normal(0, spread), spread, (5, 40)).astype(np.float32)
    values[rng.random(values.shape) < 0.3] = rng.choice([-1e4, -3.4e38, -1e9])
    values[:, 0] = values[0] = 1.0  # no row or column of a mask alone
    found = telling(values, axis)
    assert np.abs(shares(found, axis) - shares(values, axis)).max() < 1 / 1024
    assert np.isfinite(found).all()


@pytest.mark.parametrize("hidden", [-1e4, -3.4e38, -np.inf])
def test_a_row_that_is_masked_as_a_whole_is_no_range(hidden: float) -> None:
    values = np.array([[1, 2, 3], [hidden] * 3], np.float32)
    found = telling(values, 1)
    np.testing.assert_array_equal(found[0], values[0])
    assert found.min() > -10
    assert (found[1] == found[1, 0]).all()


def test_what_has_a_share_is_left_as_it_is() -> None:
    values = np.linspace(-6, 0, 30, dtype=np.float32).reshape(3, 10)
    np.testing.assert_array_equal(telling(values, 1), values)
