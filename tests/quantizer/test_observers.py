"""Observers: their states merge like integers, and their ranges are what their names say."""

from __future__ import annotations

import json
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tinyai.quantizer.config import OBSERVERS, QuantConfig
from tinyai.quantizer.observers import BINS, Histogram, Observer, Seen, ValueRange
from tinyai.quantizer.params import Array, grid

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
SAMPLES = st.lists(
    hnp.arrays(np.float32, st.integers(1, 40), elements=FLOATS), min_size=1, max_size=6
)


def seen(observer: Observer, samples: list[Array]) -> Seen:
    return reduce(Seen.merge, (observer.see(i, each) for i, each in enumerate(samples)))


def same(left: Seen, right: Seen) -> bool:
    return left.state() == right.state()


@pytest.mark.parametrize("name", OBSERVERS)
@given(samples=SAMPLES, data=st.data())
@settings(max_examples=30, deadline=None)
def test_states_merge_in_any_order_and_grouping_to_the_same_bits(
    name: str, samples: list[Array], data: st.DataObject
) -> None:
    observer = Observer(QuantConfig(observer=name))
    states = [observer.see(i, each) for i, each in enumerate(samples)]
    whole = reduce(Seen.merge, states)
    states = data.draw(st.permutations(states))
    while len(states) > 1:
        at = data.draw(st.integers(0, len(states) - 2))
        states[at : at + 2] = [states[at].merge(states[at + 1])]
    assert same(states[0], whole)
    assert observer.range(states[0]) == observer.range(whole)


@pytest.mark.parametrize("name", OBSERVERS)
@given(samples=SAMPLES)
@settings(max_examples=20, deadline=None)
def test_a_state_survives_json(name: str, samples: list[Array]) -> None:
    state = seen(Observer(QuantConfig(observer=name)), samples)
    again = Seen.of_state(json.loads(json.dumps(state.state())))
    assert same(again, state)


@pytest.mark.parametrize("name", OBSERVERS)
@given(
    samples=SAMPLES, dtype=st.sampled_from(["int8", "uint8"]), flags=st.tuples(*[st.booleans()] * 2)
)
@settings(max_examples=30, deadline=None)
def test_a_range_is_within_what_was_seen_and_zero_and_makes_a_grid(
    name: str, samples: list[Array], dtype: str, flags: tuple[bool, bool]
) -> None:
    symmetric, power_of_two = flags
    config = QuantConfig(observer=name, dtype=dtype, symmetric=symmetric, power_of_two=power_of_two)
    state = seen(Observer(config), samples)
    found = Observer(config).range(state)
    low, high = min(state.whole.low, 0.0), max(state.whole.high, 0.0)
    room = 1e-6 * (high - low)  # of a moving average's roundings
    assert low - room <= found.low <= found.high <= high + room
    made = grid(found.low, found.high, dtype, symmetric=symmetric, power_of_two=power_of_two)
    assert made.holds(0.0)
    assert 0 < made.scale < np.inf
    assert np.float32(made.scale) == made.scale


@given(values=hnp.arrays(np.float32, st.integers(1, 60), elements=FLOATS))
@settings(max_examples=100, deadline=None)
def test_every_value_is_counted_in_the_bin_that_holds_it(values: Array) -> None:
    histogram = Histogram.of(values)
    width = 2.0**histogram.exponent
    edges = (np.arange(2 * BINS + 1) - BINS) * width
    wanted, _ = np.histogram(values.astype(np.float64), edges)
    assert histogram.counts.sum() == values.size
    # numpy's last bin holds its upper end too; no value is there.
    np.testing.assert_array_equal(histogram.counts, wanted)


def test_a_larger_value_makes_the_bins_that_it_would_have_made_at_first() -> None:
    rng = np.random.default_rng(1)
    small, large = rng.normal(size=1000), np.array([1e6])
    merged = Histogram.of(small).merge(Histogram.of(large))
    at_once = Histogram.of(np.concatenate([small, large]))
    assert merged.exponent == at_once.exponent
    np.testing.assert_array_equal(merged.counts, at_once.counts)


def test_the_moving_average_goes_by_the_numbers_of_the_samples() -> None:
    observer = Observer(QuantConfig(observer="average", momentum=0.75))
    states = [observer.see(i, np.array([-v, 2 * v])) for i, v in enumerate((1.0, 5.0, 9.0))]
    wanted = 0.75 * (0.75 * 1 + 0.25 * 5) + 0.25 * 9
    assert observer.range(reduce(Seen.merge, reversed(states))) == ValueRange(-wanted, 2 * wanted)


def test_a_percentile_leaves_out_the_share_that_it_says() -> None:
    values = np.concatenate([np.linspace(-1, 1, 9_980), np.full(10, 50.0), np.full(10, -50.0)])
    observer = Observer(QuantConfig(observer="percentile", percentile=99.8))
    found = observer.range(observer.see(0, values))
    width = 2.0 ** Histogram.of(values).exponent
    assert abs(found.high - 1) <= width
    assert abs(found.low + 1) <= width
    kept = Observer(QuantConfig(observer="percentile", percentile=100))
    assert kept.range(kept.see(0, values)) == ValueRange(-50.0, 50.0)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("name", ["mse", "entropy", "percentile"])
def test_a_rare_outlier_does_not_take_the_resolution_from_the_others(
    name: str, symmetric: bool
) -> None:
    rng = np.random.default_rng(2)
    values = np.concatenate([rng.normal(size=100_000), [-30.0, 40.0]])
    config = QuantConfig(observer=name, symmetric=symmetric)
    found = Observer(config).range(Observer(config).see(0, values))
    assert -0.9 * 30 < found.low < -2
    assert 2 < found.high < 0.9 * 40


def test_the_range_of_least_squared_error_beats_all_of_the_range() -> None:
    rng = np.random.default_rng(3)
    values = np.concatenate([0.1 * rng.normal(size=500_000), [9.0, -9.0]])

    def error(name: str) -> float:
        config = QuantConfig(observer=name)
        found = Observer(config).range(Observer(config).see(0, values))
        made = grid(found.low, found.high, "int8")
        back = (made.quantize(values).astype(np.float64) - made.zero_point) * made.scale
        return float(((values - back) ** 2).mean())

    assert error("mse") < 0.8 * error("minmax")


@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("value", [0.0, 3.0, -1e-30, 3e38])
def test_a_constant_tensor_has_a_range(name: str, value: float) -> None:
    observer = Observer(QuantConfig(observer=name))
    state = seen(observer, [np.full(5, value, np.float32)] * 2)
    found = observer.range(state)
    made = grid(found.low, found.high, "int8")
    back = (int(made.quantize(np.array(value))) - made.zero_point) * made.scale
    assert back == pytest.approx(value, rel=0.01)
