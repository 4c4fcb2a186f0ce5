"""Random stretches as Relay modules, through the front end, beside their meaning in float64."""

from __future__ import annotations

import pytest
import tvm

from tests.support.random_stretches import random_model
from tests.support.stretches import ARITHMETICS, compared
from tests.support.stretches_in_relay import as_relay
from tinyai.errors import BoundaryError
from tinyai.frontends.relay.whole import network_of
from tinyai.passes import optimize
from tinyai.reference import run_graph
from tinyai.target import Target

MODELS = 10  # of each arithmetic
MANY = 300  # in the slow tests
DTYPES = {"upward": ("int8", "uint8", "int16"), "tflite": ("int8",) * 7 + ("uint8",)}


def faults_of(mode: str, first: int, count: int) -> tuple[list[str], int]:
    """Results beyond their bounds, and how many there were within and beyond."""
    faults, stretches = [], 0
    for seed in range(first, first + count):
        model = random_model(seed, DTYPES.get(mode, ("int8", "uint8")))
        try:
            module = as_relay(model)
        except tvm.TVMError:
            continue  # what Relay has no types for, such as a prelu along a negative axis
        try:
            network = network_of(module, Target(rounding=mode))
        except BoundaryError:
            continue
        samples = [model.samples[int(port.name.removeprefix("x"))] for port in network.inputs]
        results = run_graph(optimize(network.graph), samples)
        for stretch in compared(model, results, mode):
            stretches += 1
            if stretch.wrong:
                faults.append(f"seed {seed}, {stretch}")
    return faults, stretches


@pytest.mark.parametrize("mode", ARITHMETICS)
def test_the_integers_of_a_relay_module_mean_its_floats(mode: str) -> None:
    faults, stretches = faults_of(mode, 0, MODELS)
    assert not faults, "\n".join(faults)
    assert stretches > MODELS / 3


@pytest.mark.slow
@pytest.mark.parametrize("mode", ARITHMETICS)
def test_so_do_those_of_many(mode: str) -> None:
    faults, stretches = faults_of(mode, 1000, MANY)
    assert not faults, "\n".join(faults)
    assert stretches > MANY / 2
