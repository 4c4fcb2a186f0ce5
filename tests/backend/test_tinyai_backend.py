"""tinyai's back end: C with its constants apart, whole C, and a library of it."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from tests.support.example_graphs import NETWORKS, random_inputs
from tinyai.backend import (
    CompileSpec,
    NamedDataStore,
    PreprocessResult,
    TinyAIBackend,
    compile_graph,
    whole_source,
)
from tinyai.errors import LimitError, OptionError
from tinyai.ir import Array, Graph
from tinyai.reference import run_graph
from tinyai.runtime.runner import aligned_bytes, pointers
from tinyai.target import Target

PLAIN = CompileSpec("abi", b"plain")
SCALAR = CompileSpec("isa", b"scalar")
BINARY = CompileSpec("binary", b"1")


def network() -> Graph:
    return NETWORKS["small NHWC"]()


@pytest.mark.parametrize("isa", ["auto", "scalar", "generic"])
def test_the_c_with_its_constants_is_that_of_the_pipeline(isa: str) -> None:
    result = TinyAIBackend.preprocess(network(), [CompileSpec("isa", isa.encode())])
    assert whole_source(result) == compile_graph(network(), Target(isa=isa)).source.text


def test_constants_lie_apart_under_the_hashes_of_their_contents() -> None:
    result = TinyAIBackend.preprocess(network(), [PLAIN, CompileSpec("isa", b"generic")])
    data, text = result.data_store_output, result.processed_bytes.decode()
    assert data is not None
    assert len(data) > 2
    assert {data.alignment(key) for key in data} == {64}
    for key in data:
        assert text.count("TINYAI_APART(") == len(data) + 1
        assert f", {key}, " in text
        assert f"TINYAI_CONSTANT({key}" not in text
    again = TinyAIBackend.preprocess(network(), [PLAIN, CompileSpec("isa", b"generic")])
    assert again == result


def test_c_without_the_data_that_it_names_is_an_error() -> None:
    result = TinyAIBackend.preprocess(network(), [SCALAR])
    store = NamedDataStore()
    store.add("another", b"")
    for broken in (
        PreprocessResult(result.processed_bytes, data_store_output=store.output()),
        PreprocessResult(result.processed_bytes),
        PreprocessResult(b"\xff\xfe"),
    ):
        with pytest.raises(OptionError, match="C of a result"):
            whole_source(broken)


def run(library: bytes, graph: Graph, arena: int, inputs: list[Array], folder: Path) -> list[Array]:
    file = folder / "library.so"
    file.write_bytes(library)
    entry = getattr(ctypes.CDLL(str(file)), graph.name)
    outputs = [np.empty(of.shape, of.dtype.numpy) for of in graph.types(graph.outputs)]
    entry.argtypes = [ctypes.c_void_p] * 3
    assert entry(pointers(inputs), pointers(outputs), aligned_bytes(arena).ctypes.data) == 0
    return outputs


@pytest.mark.parametrize("isa", ["auto", "scalar"])
def test_a_binary_is_a_library_that_computes_the_same(isa: str, tmp_path: Path) -> None:
    graph = network()
    specs = [PLAIN, BINARY, CompileSpec("isa", isa.encode())]
    result = TinyAIBackend.preprocess(graph, specs)
    assert result.processed_bytes.startswith(b"\x7fELF")
    assert result.data_store_output is None
    assert result.debug_handle_map
    inputs = random_inputs(graph, 3)
    arena = compile_graph(graph, Target(isa=isa), abi="plain").plan.arena_bytes
    found = run(result.processed_bytes, graph, arena, inputs, tmp_path)
    for each, expected in zip(found, run_graph(graph, inputs), strict=True):
        assert np.array_equal(each, expected)


@pytest.mark.parametrize("value", [b"yes", b"", b"2"])
def test_binary_is_1_or_0(value: bytes) -> None:
    with pytest.raises(OptionError, match="compile spec 'binary'"):
        TinyAIBackend.preprocess(network(), [CompileSpec("binary", value)])
    plain = TinyAIBackend.preprocess(network(), [SCALAR])
    assert TinyAIBackend.preprocess(network(), [SCALAR, CompileSpec("binary", b"0")]) == plain


def test_limits_hold() -> None:
    with pytest.raises(LimitError, match="arena_limit=1"):
        TinyAIBackend.preprocess(network(), [SCALAR, CompileSpec("arena_limit", b"1")])
