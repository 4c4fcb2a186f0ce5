"""Grids and scales of weights, and the configuration that chooses them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tinyai.errors import OptionError
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.params import LARGEST_BIAS, Array, grid, quantized_weights, weight_scales

ENDS = st.floats(-1e30, 1e30)


@given(st.tuples(ENDS, ENDS).map(sorted), st.sampled_from(["int8", "uint8"]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_grid_covers_its_range_and_holds_zero(
    ends: list[float], dtype: str, symmetric: bool
) -> None:
    low, high = ends
    for power_of_two in (False, True):
        made = grid(low, high, dtype, symmetric=symmetric, power_of_two=power_of_two)
        limits = np.iinfo(dtype)
        assert limits.min <= made.zero_point <= limits.max
        assert made.holds(0.0)
        for end in (min(low, 0.0), max(high, 0.0)):
            back = (int(made.quantize(np.array(end))) - made.zero_point) * made.scale
            assert abs(back - end) <= made.scale * 1.01 * (1 if symmetric else 0.5) + 1e-6 * abs(
                end
            )
        if power_of_two:
            assert math.frexp(made.scale)[0] == 0.5
            exact = grid(low, high, dtype, symmetric=symmetric)
            assert exact.scale * 0.999999 <= made.scale < exact.scale * 2.000001 or exact.scale == 1


def test_symmetric_grids_have_their_zero_in_the_middle() -> None:
    assert grid(-1.0, 3.0, "int8", symmetric=True).zero_point == 0
    assert grid(-1.0, 3.0, "uint8", symmetric=True).zero_point == 128
    assert grid(-1.0, 3.0, "int8", symmetric=True).scale == np.float32(3 / 127)


WEIGHTS = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=4, max_side=4),
    elements=st.floats(-100, 100, width=32),
)


@given(WEIGHTS, st.integers(0, 3), st.booleans())
@settings(max_examples=200, deadline=None)
def test_weights_are_at_most_half_a_step_off(weights: Array, axis: int, power_of_two: bool) -> None:
    for along in (None, axis % weights.ndim):
        scales = weight_scales(weights, along, power_of_two=power_of_two)
        assert len(scales) == (1 if along is None else weights.shape[along])
        steps = quantized_weights(weights, scales, along)
        assert steps.dtype == np.int8
        assert steps.min() >= -127
        shape = [-1 if d == along else 1 for d in range(weights.ndim)]
        wide = scales.astype(np.float64).reshape(shape if along is not None else ())
        assert (np.abs(steps * wide - weights) <= wide * 0.50001).all()


def test_a_channel_without_weights_has_the_scale_of_the_largest() -> None:
    weights = np.array([[0.0, 0.0], [1.27, 0.0], [0.0, -2.54]], np.float32)
    np.testing.assert_allclose(weight_scales(weights, 0), [0.02, 0.01, 0.02], rtol=1e-6)
    assert weight_scales(np.zeros((2, 2), np.float32), 0).tolist() == [1.0, 1.0]


def test_a_large_bias_makes_a_scale_at_which_it_is_an_int32() -> None:
    weights = np.full((2, 3), 1e-9, np.float32)
    bias = np.array([1e6, 0.0], np.float32)
    scales = weight_scales(weights, 0, bias=bias, input_scale=0.1)
    assert 1e6 / (0.1 * float(scales[0])) <= LARGEST_BIAS * 1.001
    assert float(scales[1]) == np.float32(1e-9 / 127)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("dtype", "int4", "int8 or uint8"),
        ("observer", "guess", "minmax or average"),
        ("residual", None, "own or common"),
        ("momentum", 1.0, "0 <= momentum < 1"),
        ("momentum", float("nan"), "0 <= momentum < 1"),
        ("percentile", 20, "50 to 100"),
        ("percentile", True, "50 to 100"),
        ("per_channel", 1, "True or False"),
        ("float_layers", "conv1", "a list of names"),
        ("operators", (1,), "a list of names"),
    ],
)
def test_a_bad_option_is_told_with_what_is_allowed(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(OptionError) as caught:
        QuantConfig(**{field: value})
    assert f"QuantConfig.{field}" in str(caught.value)
    assert repr(value) in str(caught.value)
    assert allowed in str(caught.value)


def test_names_may_come_in_any_list() -> None:
    config = QuantConfig(float_layers=["a", "b"])  # type: ignore[arg-type]
    assert config == QuantConfig(float_layers=("a", "b"))
    assert hash(config)
