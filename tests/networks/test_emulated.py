"""Whole networks on machines of other architectures, which QEMU plays: the integers of this one."""

from __future__ import annotations

import pytest

from tests.support.example_graphs import random_inputs
from tests.support.machines import CROSS, Emulated, not_emulated
from tests.support.prequantized import TFLITE, from_tflite, tflite_file
from tinyai.frontends.relay import partition_for_tinyai, regions
from tinyai.frontends.relay.source import graph_from_region
from tinyai.ir import Graph
from tinyai.runtime.runner import Runner
from tinyai.target import ARCHITECTURES, Target

QUICK = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant")
networks = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in TFLITE],
)
machines = pytest.mark.parametrize(
    ("arch", "isa"), [(arch, isa) for arch in CROSS for isa in ("auto", *ARCHITECTURES[arch])]
)


def region(name: str, rounding: str) -> Graph:
    mod = partition_for_tinyai(from_tflite(tflite_file(name)), rounding=rounding, strict=True)
    (func,) = regions(mod).values()
    return graph_from_region(func)


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
        for found, wanted in zip(Emulated(graph, target)(*inputs), expected, strict=True):
            assert (found == wanted).all()
