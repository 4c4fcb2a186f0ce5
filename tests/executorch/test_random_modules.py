"""Random modules through both quantizers, tinyai's partitioner and the runtime, beside their
meaning in float64, stretch by stretch."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import Tensor, nn
from torchao.quantization.pt2e.quantizer import Quantizer

from benchmarks.torch_networks import quantized
from tests.executorch.random_modules import random_branches
from tests.executorch.torch_stretches import Stretch, stretches
from tinyai.executorch import TinyAIQuantizer, quantization_config
from tinyai.frontends.executorch.operators import layout
from tinyai.ops import scales
from tinyai.qdq import accumulators

PER_PROGRAM = 10  # modules: one lowering of ten takes half the time of ten
MANY = 250  # by each quantizer, in the slow tests
ISAS = ("scalar", "generic", "native")


Samples = list[tuple[Tensor, ...]]


def by_tinyai(number: int, samples: Samples | None = None) -> Quantizer:
    config = quantization_config(
        per_channel=number % 2 == 0,
        symmetric=number % 3 == 2,
        observer="minmax" if number % 4 == 3 else "histogram",
        reduce_range=number % 5 == 4,
    )
    return TinyAIQuantizer(samples=samples).set_global(config)


def by_xnnpack(number: int, samples: Samples) -> Quantizer:
    config = get_symmetric_quantization_config(is_per_channel=number % 2 == 0)
    return XNNPACKQuantizer().set_global(config)


# Of a program's number: all their ways have their turn.
QUANTIZERS: dict[str, Callable[[int, Samples], Quantizer]] = {
    "tinyai": lambda number, _: by_tinyai(number),
    "samples": by_tinyai,
    "xnnpack": by_xnnpack,
}


def of_seeds(first: int, quantizer: str, **how: bool) -> list[Stretch]:
    seeds = range(first, first + PER_PROGRAM)
    module, samples = random_branches(seeds)
    number = first // PER_PROGRAM
    using, isa = QUANTIZERS[quantizer](number, samples), ISAS[number % len(ISAS)]
    return list(stretches(module, samples, using, isa, **how))


def require_right(found: list[Stretch], first: int) -> None:
    wrong = [str(stretch) for stretch in found if stretch.wrong]
    assert not wrong, f"branches of seeds from {first}:\n" + "\n".join(wrong)
    telling = [stretch for stretch in found if stretch.telling]
    # XNNPACK's quantizer leaves many of a program's functions in float: of ten branches as few as
    # eight stretches are delegated.
    assert sum(stretch.delegated for stretch in telling) > PER_PROGRAM // 2


@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_the_integers_of_random_modules_mean_their_floats(quantizer: str) -> None:
    require_right(of_seeds(0, quantizer), 0)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10**6, 10**6 + MANY, PER_PROGRAM))
@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_so_do_those_of_many(quantizer: str, first: int) -> None:
    require_right(of_seeds(first, quantizer, whole=True), first)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2 * 10**6, 2 * 10**6 + 5 * PER_PROGRAM, PER_PROGRAM))
@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_so_do_those_of_dynamic_dimensions(quantizer: str, first: int) -> None:
    """Most of each is the host's: tinyai has the stretches whose dimensions are fixed."""
    found = of_seeds(first, quantizer, dynamic=True)
    assert not [str(stretch) for stretch in found if stretch.wrong]
    assert sum(stretch.telling for stretch in found) >= PER_PROGRAM


MOST_LOST = 6.0  # in dB


def decibels(module: nn.Module, made: nn.Module, samples: Samples) -> list[float]:
    """Of signal to noise, for each result."""
    with torch.no_grad():
        wanted, found = ([of(*each) for each in samples] for of in (module, made))
    pairs = [
        (torch.stack(first).double(), torch.stack(second).double())
        for first, second in zip(zip(*wanted, strict=True), zip(*found, strict=True), strict=True)
    ]
    noises = (float((first - second).square().sum()) for first, second in pairs)
    return [
        10 * math.log10(float(first.square().sum()) / noise) if noise else math.inf
        for (first, _), noise in zip(pairs, noises, strict=True)
    ]


def require_no_loss(first: int) -> None:
    """Of each result: as near to the floats as by observers, or nearly."""
    module, samples = random_branches(range(first, first + PER_PROGRAM))
    by_observers, by_samples = (
        decibels(module, quantized(module, samples, quantizer).module(), samples)
        for number in [first // PER_PROGRAM]
        for quantizer in (by_tinyai(number), by_tinyai(number, samples))
    )
    for observed, fitted in zip(by_observers, by_samples, strict=True):
        assert fitted > min(observed, 60.0) - MOST_LOST, first


def test_constants_that_are_chosen_by_samples_mean_the_floats() -> None:
    require_no_loss(0)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10**6, 10**6 + MANY, PER_PROGRAM))
def test_so_do_those_of_many_modules(first: int) -> None:
    require_no_loss(first)


# --- The net itself ------------------------------------------------------------------------------


class ScaledPart(nn.Module):
    """A layer times a number, and a part of that."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        return (self.linear(x) * 0.3)[:, 3:]


def no_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A factor of sums is lost."""
    monkeypatch.setattr(accumulators, "_with_larger_data", lambda sums, factor: sums)
    monkeypatch.setattr(scales, "SAME", np.inf)


def first_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is read as one from the beginning."""
    monkeypatch.setattr(layout, "_start", lambda start, size: 0)


@pytest.mark.parametrize("fault", [no_factor, first_part])
def test_a_planted_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [(torch.randn(8, 12, generator=torch.Generator().manual_seed(n)),) for n in range(3)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        module = ScaledPart().eval()
    fault(monkeypatch)
    found = list(stretches(module, samples, TinyAIQuantizer()))
    assert all(stretch.telling and stretch.delegated for stretch in found)
    assert sum(stretch.wrong for stretch in found) == 1
