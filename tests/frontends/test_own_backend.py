"""Back ends of one's own beside tinyai, and compile specs for all regions or for one.

Tutorial 3 has an operator and a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nbformat
import numpy as np
import pytest
import tvm
from tvm import relay

import tests.support.relay_nets as nets
import tinyai
from tests.support.oracle import oracle
from tests.support.paths import ROOT
from tinyai.backend import BackendDetails, CompileSpec, PreprocessResult, TinyAIBackend
from tinyai.errors import OptionError
from tinyai.frontends.relay import regions
from tinyai.frontends.relay.functions import region_target
from tinyai.ir import Graph
from tinyai.match import Anything, op
from tinyai.patterns import PatternRow

SCALAR, GENERIC = CompileSpec("isa", b"scalar"), CompileSpec("isa", b"generic")
RELU = (PatternRow("relu", op("relu", Anything())),)
ASKED: list[tuple[str, tuple[CompileSpec, ...]]] = []


class Noting(BackendDetails):
    """tinyai's C; notes what it was asked for."""

    @staticmethod
    def preprocess(program: Graph, compile_specs: Sequence[CompileSpec]) -> PreprocessResult:
        ASKED.append((program.name, tuple(compile_specs)))
        return TinyAIBackend.preprocess(program, [each for each in compile_specs if each == SCALAR])


@pytest.fixture(autouse=True)
def _registered() -> None:
    ASKED.clear()
    tinyai.register_backend("noting", Noting, RELU)


def network() -> tvm.IRModule:
    """A region of tinyai's, an operator of the host's, a region, ReLU, which "noting" takes."""
    x = relay.var("x", shape=(4, 8), dtype="int32")
    summed = relay.cumsum(relay.right_shift(x, relay.const(2)), axis=1)
    rest = relay.nn.relu(relay.cumsum(relay.clip(summed, -90, 90), axis=0))
    return tvm.IRModule.from_expr(relay.Function([x], rest))


def test_the_tutorial_takes_less_than_80_lines() -> None:
    notebook = nbformat.read(ROOT / "tutorials" / "03_a_back_end_of_your_own.ipynb", as_version=4)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert 20 < sum(len(source.splitlines()) for source in cells) < 100
    lines = [line for source in cells for line in source.splitlines() if line.strip()]
    assert len(lines) < 80


def compilers(mod: tvm.IRModule) -> dict[str, str]:
    return {
        variable.name_hint: str(func.attrs["Compiler"])
        for variable, func in mod.functions.items()
        if func.attrs is not None and "Compiler" in func.attrs
    }


def test_two_back_ends_share_a_module_and_the_result_is_tvms() -> None:
    other = CompileSpec("colour", b"\xff\x00")
    mod = network()
    parts = tinyai.partition_for("noting", mod, compile_specs=[SCALAR, other])
    parts = tinyai.partition_for_tinyai(parts, compile_specs=[SCALAR])
    assert sorted(compilers(parts).values()) == ["noting", "tinyai", "tinyai"]
    built = tinyai.runtime.compile(relay.build(parts, target="llvm"))
    data = np.random.default_rng(0).integers(-900, 900, (4, 8)).astype(np.int32)
    (found,) = nets.run_factory(built, {"x": data})
    (expected,) = oracle(mod, {"x": data})
    assert np.array_equal(found, expected)
    ((name, specs),) = ASKED
    assert compilers(parts)[name] == "noting"
    assert set(specs) == {SCALAR, other}


def test_specs_of_a_region_go_before_those_of_all() -> None:
    mod = network()
    names = [v.name_hint for v in regions(tinyai.partition_for_tinyai(mod))]
    assert len(names) == 3
    own = {names[1]: [GENERIC, CompileSpec("threads", b"2")]}
    parts = tinyai.partition_for_tinyai(mod, isa="scalar", compile_specs=own)
    targets = [region_target(func) for func in regions(parts).values()]
    assert [each.isa for each in targets] == ["scalar", "generic", "scalar"]
    assert [each.threads for each in targets] == [1, 2, 1]
    assert {region_target(f) for f in regions(partition(mod, [GENERIC])).values()} == {
        tinyai.Target(isa="generic", rounding="upward")
    }


def partition(mod: tvm.IRModule, specs: Any, **options: Any) -> tvm.IRModule:
    return tinyai.partition_for_tinyai(mod, compile_specs=specs, **options)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: partition(network(), {"no_region": [SCALAR]}), "found:   no_region"),
        (lambda: partition(network(), {"a": [CompileSpec("rounding", b"onnx")]}), "of region a"),
        (lambda: partition(network(), [SCALAR], isa="auto"), "isa, twice"),
        (lambda: partition(network(), [SCALAR, SCALAR]), "twice"),
        (lambda: partition(network(), [CompileSpec("colour", b"1")]), "found:   colour"),
        (lambda: partition(network(), "isa=scalar"), "CompileSpec values"),
        (lambda: tinyai.partition_for("nobody", network()), "allowed: a registered one"),
        (
            lambda: tinyai.partition_for("noting", network(), compile_specs={"b": []}),
            "compile specs of regions\n  found:   b",
        ),
        (
            lambda: tinyai.partition_for("noting", tinyai.partition_for_tinyai(network())),
            "partition_for a back end of your own first",
        ),
        (lambda: tinyai.register_backend("tinyai", Noting, RELU), "one without tinyai"),
        (lambda: tinyai.register_backend("a b", Noting, RELU), "name of a back end"),
        (lambda: tinyai.register_backend("other", dict, RELU), "a subclass of BackendDetails"),
    ],
)
def test_wrong_arguments_are_errors(act: Any, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        act()
    assert said in str(caught.value)
