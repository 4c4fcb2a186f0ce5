"""The hook after each layer: what it shows, and that without its macro nothing is left of it."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from tests.support.c_checks import assert_warning_free
from tests.support.example_graphs import random_inputs
from tests.support.thread_graphs import GRAPHS, PATIENT, called, deep_network
from tinyai.backend import Compiled, compile_graph
from tinyai.errors import OptionError
from tinyai.ir import Array, Builder, DType, Graph, Type
from tinyai.ops import Concatenate, Elementwise
from tinyai.ops.steps import Relu
from tinyai.reference import run_graph, run_node
from tinyai.runtime.runner import load
from tinyai.runtime.toolchain import Toolchain
from tinyai.runtime.watch import HOOK_FLAG, watched
from tinyai.target import Target


def joined_channels() -> Graph:
    """Channels of two tensors side by side: each is made in its place."""
    b = Builder("joined_channels")
    x = b.input(Type((2, 5, 4), DType.INT8))
    two = [b.add(Elementwise((2, 5, 4)), [x], (Relu(),)) for _ in range(2)]
    whole = b.add(Concatenate(2), two)
    return b.graph([b.add(Elementwise((2, 5, 8)), [whole], (Relu(),))])


GRAPHS_TO_WATCH = {**GRAPHS, "joined channels": joined_channels}


@functools.cache
def hooked(name: str, target: Target) -> Compiled:
    return compile_graph(GRAPHS_TO_WATCH[name](), target, abi="plain", hooked=True)


def layers_of(graph: Graph, inputs: list[Array]) -> list[Array]:
    """What each node makes, by the reference."""
    values = {**graph.constants, **dict(zip(graph.inputs, inputs, strict=True))}
    for node in graph.nodes:
        values[node.output] = run_node(node, values)
    return [values[node.output] for node in graph.nodes]


@pytest.mark.long
@pytest.mark.parametrize("target", [Target(isa="scalar"), Target(threads=3)], ids=str)
@pytest.mark.parametrize("name", GRAPHS_TO_WATCH)
def test_the_hook_sees_the_result_of_each_layer(name: str, target: Target) -> None:
    compiled = hooked(name, target)
    library = load(compiled.source.text, Toolchain(flags=(HOOK_FLAG, PATIENT)))
    graph, symbol = GRAPHS_TO_WATCH[name](), compiled.source.symbol
    inputs = random_inputs(graph, 1)
    seen: list[tuple[int, Array]] = []
    with watched(library, symbol, compiled.graph, lambda *each: seen.append(each)):
        called(library, compiled.source, graph, inputs)
    assert [number for number, _ in seen] == list(range(len(compiled.graph.nodes)))
    for (number, found), expected in zip(seen, layers_of(compiled.graph, inputs), strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), number
        assert np.array_equal(found, expected), number
    outputs = called(library, compiled.source, graph, inputs)
    assert outputs == [each.tobytes() for each in run_graph(graph, inputs)]
    assert len(seen) == len(compiled.graph.nodes), "nobody is called any more"


def test_the_graphs_that_are_watched_have_borders_parts_and_tensors_of_the_caller() -> None:
    storage = [
        each
        for name in GRAPHS_TO_WATCH
        for each in hooked(name, Target(threads=3)).graph.storage.values()
    ]
    assert any(each.border for each in storage)
    assert any(each.subview and not each.dense for each in storage)
    assert hooked("deep", Target(threads=3)).graph.threads == 3


@pytest.mark.long
@pytest.mark.parametrize("target", [Target(isa="scalar"), Target(threads=3)], ids=str)
def test_nothing_is_left_of_the_hook_without_its_macro(target: Target, tmp_path: Path) -> None:
    objects = []
    for with_hook in (True, False):
        source = compile_graph(deep_network(), target, abi="plain", hooked=with_hook).source
        file, made = tmp_path / "network.c", tmp_path / "network.o"
        file.write_text(source.text)
        Toolchain().run(["-c", "-O2", "-o", str(made), str(file)])
        objects.append(made.read_bytes())
    assert objects[0] == objects[1]


@pytest.mark.long
@pytest.mark.parametrize("defined", ["", "#define TINYAI_HOOK\n"])
@pytest.mark.parametrize("target", [Target(isa="scalar"), Target(threads=3)], ids=str)
def test_hooked_code_has_no_warning(target: Target, defined: str, compiler: str) -> None:
    assert_warning_free(defined + hooked("deep", target).source.text, compiler)


def test_a_library_without_a_hook_says_how_it_gets_one() -> None:
    compiled = hooked("joined channels", Target(isa="scalar"))
    library = load(compiled.source.text, Toolchain())
    with (
        pytest.raises(OptionError, match=f"try:     compile its C with {HOOK_FLAG}"),
        watched(library, compiled.source.symbol, compiled.graph, lambda *_: None),
    ):
        pass
