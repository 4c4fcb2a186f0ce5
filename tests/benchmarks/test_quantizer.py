"""The comparison of quantizers: its samples, its settings, its table."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import float_networks, quantizer
from tinyai import QuantConfig


def test_samples_of_calibration_are_not_those_of_the_comparison() -> None:
    network = float_networks.NETWORKS["mobilenet_v1"]
    for made in (network.samples, float_networks.images(32, 255, 12)):
        assert len({each.tobytes() for each in made}) == len(made)


def test_noise_of_a_tenth_is_twenty_decibels() -> None:
    signal = [np.full(5, 2.0), np.full(3, -1.0)]
    assert float_networks.sqnr(signal, [1.1 * each for each in signal]) == pytest.approx(20)


def test_a_setting_is_a_configuration() -> None:
    wanted = QuantConfig(observer="minmax", per_channel=False, percentile=99.0)
    assert quantizer.setting_of("observer=minmax,per_channel=False,percentile=99.0") == wanted
    for bad in ("quick", "precision=9"):
        done = CliRunner().invoke(quantizer.main, ["--setting", bad])
        assert done.exit_code == 2
        assert bad.partition("=")[0] in done.stderr
