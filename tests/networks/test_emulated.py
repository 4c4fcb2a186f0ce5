"""Whole networks on machines of other architectures, which QEMU plays: the integers of this one."""

from __future__ import annotations

import pytest

from tests.support.example_graphs import random_inputs
from tests.support.machines import CROSS, MUST_EMULATE, Emulated, not_emulated
from tests.support.prequantized import TFLITE, from_tflite, tflite_file
from tinyai.frontends.relay import partition_for_tinyai, regions
from tinyai.frontends.relay.source import graph_from_region
from tinyai.ir import Graph
from tinyai.runtime.runner import Runner
from tinyai.target import ARCHITECTURES, Target

QUICK = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant")
# For each architecture a CPU that has the weakest set alone, and a set that it has not.
OLD, NEW = {"aarch64": "cortex-a72"}, {"aarch64": "dotprod"}
# The large ones take two minutes, which continuous integration has.
networks = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if MUST_EMULATE or name in QUICK else pytest.mark.slow)
        for name in TFLITE
    ],
)
machines = pytest.mark.parametrize(
    ("arch", "isa"), [(arch, isa) for arch in CROSS for isa in ("auto", *ARCHITECTURES[arch])]
)


def region(name: str, rounding: str) -> Graph:
    mod = partition_for_tinyai(from_tflite(tflite_file(name)), rounding=rounding, strict=True)
    (func,) = regions(mod).values()
    return graph_from_region(func)


@pytest.mark.long
@machines
@networks
def test_a_network_has_the_same_integers_on_another_architecture(
    name: str, arch: str, isa: str
) -> None:
    reason = not_emulated(arch)
    if reason:
        pytest.skip(reason)
    for rounding in ("upward", "tflite"):
        graph = region(name, rounding)
        inputs = random_inputs(graph, seed=7)
        expected = Runner(graph, Target(rounding=rounding))(*inputs)
        target = Target(isa=isa, arch=arch, rounding=rounding, threads=2 if isa == "auto" else 1)
        emulated = Emulated(graph, target)
        for cpu in (None, OLD[arch]) if isa == "auto" else (None,):
            for found, wanted in zip(emulated(*inputs, cpu=cpu), expected, strict=True):
                assert (found == wanted).all()


@pytest.mark.parametrize("arch", [*CROSS])
def test_on_a_cpu_without_the_instructions_the_entry_refuses_the_call(arch: str) -> None:
    reason = not_emulated(arch)
    if reason:
        pytest.skip(reason)
    graph = region("ad01_int8", "upward")
    emulated = Emulated(graph, Target(isa=NEW[arch]))
    with pytest.raises(AssertionError, match="the entry refused the call"):
        emulated(*random_inputs(graph, seed=7), cpu=OLD[arch])
