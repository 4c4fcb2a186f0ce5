"""The file for every machine, on CPUs that are not this one's."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.example_graphs import NETWORKS, random_inputs, require_isa
from tinyai.reference import run_graph
from tinyai.runtime import runner
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target

Load = Callable[[str, Toolchain], ctypes.CDLL]


def told(has_avxvnni: bool, load: Load) -> Load:
    """``load`` of a file that is told what the CPU has: AVX2, and AVX-VNNI or not."""

    def edited(text: str, toolchain: Toolchain) -> ctypes.CDLL:
        for question, answer in (
            (r'__builtin_cpu_supports\("avx512f"\)', "0"),
            (r"tinyai_has_avxvnni = [^;]+;", f"tinyai_has_avxvnni = {int(has_avxvnni)};"),
        ):
            text, count = re.subn(question, answer, text)
            assert count == 1, question
        return load(text, toolchain)

    return edited


@pytest.mark.parametrize("has_avxvnni", [False, True], ids=["avx2", "avxvnni"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_default_file_equals_the_reference_on_a_cpu_without_avx512(
    name: str, threads: int, has_avxvnni: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_isa("avxvnni" if has_avxvnni else "avx2")
    monkeypatch.setattr(runner, "load", told(has_avxvnni, runner.load))
    graph = NETWORKS[name]()
    run = runner.Runner(graph, Target(threads=threads))
    inputs = random_inputs(graph, 0)
    for found, expected in zip(run(*inputs), run_graph(graph, inputs), strict=True):
        np.testing.assert_array_equal(found, expected)
