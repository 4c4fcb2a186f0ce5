"""Random modules through both quantizers, tinyai's partitioner and the runtime, beside their
meaning in float64, stretch by stretch."""

from __future__ import annotations

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

from tests.executorch.random_modules import random_branches
from tests.executorch.torch_stretches import Stretch, stretches
from tinyai.executorch import TinyAIQuantizer, quantization_config
from tinyai.frontends.executorch.operators import layout
from tinyai.ops import scales
from tinyai.qdq import accumulators

PER_PROGRAM = 10  # modules: one lowering of ten takes half the time of ten
MANY = 250  # by each quantizer, in the slow tests
ISAS = ("scalar", "generic", "native")


def by_tinyai(number: int) -> Quantizer:
    config = quantization_config(
        per_channel=number % 2 == 0,
        symmetric=number % 3 == 2,
        observer="minmax" if number % 4 == 3 else "histogram",
        reduce_range=number % 5 == 4,
    )
    return TinyAIQuantizer().set_global(config)


def by_xnnpack(number: int) -> Quantizer:
    config = get_symmetric_quantization_config(is_per_channel=number % 2 == 0)
    return XNNPACKQuantizer().set_global(config)


# Of a program's number: all their ways have their turn.
QUANTIZERS: dict[str, Callable[[int], Quantizer]] = {"tinyai": by_tinyai, "xnnpack": by_xnnpack}


def of_seeds(first: int, quantizer: str, **how: bool) -> list[Stretch]:
    seeds = range(first, first + PER_PROGRAM)
    module, samples = random_branches(seeds)
    number = first // PER_PROGRAM
    using, isa = QUANTIZERS[quantizer](number), ISAS[number % len(ISAS)]
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
