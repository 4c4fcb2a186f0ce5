"""The file for every machine, on CPUs that are not this one's."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable

import numpy as np
import pytest
from tvm.error import TVMError

import tests.support.relay_nets as nets
import tinyai
from tests.support.example_graphs import NETWORKS, random_inputs
from tests.support.machines import require_isa
from tinyai.backend import compile_graph
from tinyai.errors import EnvironmentProblem
from tinyai.frontends.relay import hooks
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


@pytest.mark.long
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


FORCED = {"avx2": "avx2", "avxvnni": "avxvnni", "avx512vnni": "avx512vnni"}


def lacking(text: str, feature: str) -> str:
    """A file of one instruction set, told that the CPU lacks a feature of it."""
    asked = (
        r"tinyai_has_avxvnni = [^;]+;"
        if feature == "avxvnni"
        else rf'__builtin_cpu_supports\("{feature}"\)'
    )
    edited, count = re.subn(asked, "tinyai_has_avxvnni = 0;" if feature == "avxvnni" else "0", text)
    assert count == 1, feature
    return edited


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("isa", FORCED)
def test_a_forced_instruction_set_that_the_cpu_lacks_is_an_error_in_python(
    isa: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_isa(isa)
    load = runner.load
    monkeypatch.setattr(runner, "load", lambda text, cc: load(lacking(text, FORCED[isa]), cc))
    graph = next(iter(NETWORKS.values()))()
    run = runner.Runner(graph, Target(isa=isa, threads=threads))
    with pytest.raises(EnvironmentProblem, match="this CPU cannot run the code"):
        run(*random_inputs(graph, 0))


def test_a_forced_instruction_set_that_the_cpu_lacks_is_an_error_of_tvms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_isa("avx2")

    made = hooks._c_module
    monkeypatch.setattr(
        hooks, "_c_module", lambda text, symbol: made(lacking(text, "avx2"), symbol)
    )
    mod = nets.module(nets.layers(1))
    factory = tinyai.build(mod, target="tinyai -isa=avx2, llvm")
    with pytest.raises(TVMError, match="the CPU lacks avx2: build with isa=auto"):
        nets.run_factory(factory, nets.random_inputs(mod))


WORKSPACE = """
TINYAI_C void *TVMBackendAllocWorkspace(int a, int b, uint64_t bytes, int c, int d) {
  (void)a, (void)b, (void)bytes, (void)c, (void)d;
  return NULL;
}
TINYAI_C int TVMBackendFreeWorkspace(int a, int b, void *workspace) {
  (void)a, (void)b, (void)workspace;
  return 0;
}
"""
LAST_ERROR = """
TINYAI_C const char *told;
const char *told = NULL;
TINYAI_C void TVMAPISetLastError(const char *message) { told = message; }
"""


@pytest.mark.parametrize("tells", [False, True])
def test_the_entry_for_pointers_refuses_a_cpu_that_lacks_the_instructions(tells: bool) -> None:
    require_isa("avx2")
    graph = next(iter(NETWORKS.values()))()
    source = compile_graph(graph, Target(isa="avx2"), abi="unpacked").source
    stubs = WORKSPACE + (LAST_ERROR if tells else "")
    # Not TVM's function of that name, which this process has.
    named = "#define TVMAPISetLastError tinyai_test_last_error\n"
    library = runner.load(named + lacking(source.text, "avx2") + stubs, Toolchain())
    assert library[source.symbol](*[None] * len((*graph.inputs, *graph.outputs))) == -1
    if tells:
        message = ctypes.c_char_p.in_dll(library, "told").value or b""
        assert b"the CPU lacks avx2" in message
