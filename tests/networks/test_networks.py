"""Whole networks: one region, its C equal to TVM's CPU bit for bit, clean, and reproducible."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

import tests.support.relay_nets as nets
import tinyai
from tests.support import oracle as oracles
from tests.support.c_checks import assert_warning_free, missing_sanitizers, run_sanitized
from tests.support.example_graphs import assert_transposed_at_the_ends
from tests.support.networks import NETWORKS, Network, as_plain_module, quantized, random_inputs
from tests.support.oracle import oracle, runner
from tinyai import reference
from tinyai.backend import Compiled, compile_graph
from tinyai.frontends.relay import regions
from tinyai.frontends.relay.source import graph_from_region
from tinyai.passes import optimize
from tinyai.runtime.tvm_module import c_sources
from tinyai.target import Target


def marks(network: Network, is_slow: bool) -> tuple[pytest.MarkDecorator, ...]:
    """TVM needs a minute and more for all but the smallest."""
    if is_slow:
        return (pytest.mark.slow,)
    return () if str(network) == "digits" else (pytest.mark.long,)


def each_batch(is_slow: Callable[[Network, int], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("network", "batch"),
        [
            pytest.param(
                network,
                batch,
                id=f"{network}-batch{batch}",
                marks=marks(network, is_slow(network, batch)),
            )
            for network in NETWORKS
            for batch in network.batches
        ],
    )


def each(is_slow: Callable[[Network], bool]) -> pytest.MarkDecorator:
    """The scope keeps the tests of a network together, so that the caches below can be small."""
    return pytest.mark.parametrize(
        "network",
        [
            pytest.param(network, id=str(network), marks=marks(network, is_slow(network)))
            for network in NETWORKS
        ],
        scope="module",
    )


EACH = each(lambda network: network.slow)
# What takes minutes and differs little from network to network, in `make test` for one of them.
ONE = each(lambda network: str(network) != "digits")
# Of these TVM builds the regions too, and not the networks alone.
FEW_LAYERS = ("digits", "squeezenet_float_ends")


@functools.lru_cache(maxsize=2)
def partitioned(network: Network, batch: int = 1) -> tvm.IRModule:
    return tinyai.partition_for_tinyai(quantized(network, batch))


@functools.lru_cache(maxsize=2)
def built(network: Network, batch: int = 1):
    return build(partitioned(network, batch), network.passes_off)


def build(mod: tvm.IRModule, passes_off: tuple[str, ...] = ()):
    with tvm.transform.PassContext(opt_level=3, disabled_pass=list(passes_off)):
        return relay.build(mod, target="llvm")


@functools.lru_cache(maxsize=2)
def library(network: Network, batch: int = 1) -> tvm.runtime.Module:
    """For this machine alone, and sealed: TVM and the compiler need a third of the time."""
    mod = tinyai.partition_for_tinyai(quantized(network, batch), isa="native")
    return exported(build(tinyai.seal(mod), network.passes_off))


def exported(factory) -> tvm.runtime.Module:
    """The library that ``export_library`` writes with default arguments, loaded."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "network.so")
        factory.export_library(file)
        return tvm.runtime.load_module(file)


def run_region(loaded: tvm.runtime.Module, func: relay.Function, inputs):
    """Call a region of a library by its symbol."""
    of = func.ret_type
    fields = list(of.fields) if isinstance(of, relay.TupleType) else [of]
    outputs = [tvm.nd.empty([int(d) for d in field.shape], field.dtype) for field in fields]
    call = loaded.get_function(str(func.attrs["global_symbol"]), query_imports=True)
    call(*(tvm.nd.array(inputs[param.name_hint]) for param in func.params), *outputs)
    return [output.numpy() for output in outputs]


def assert_same_bits(actual, expected):
    """Same number, shapes, dtypes and bytes: floats too, down to the sign of a zero."""
    assert [(a.shape, a.dtype) for a in actual] == [(e.shape, e.dtype) for e in expected]
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(*(a.view(f"i{a.itemsize}") for a in (ours, theirs)))


# --- Partition -------------------------------------------------------------------------------


@EACH
def test_the_network_is_cut_as_its_row_says(network, record_property):
    mod = partitioned(network)
    host = nets.host_operators(mod)
    found = f"{len(regions(mod))} region(s), on the host: {', '.join(host) or 'nothing'}"
    record_property(str(network), found)
    print(f"{network}: {found}")
    assert (len(regions(mod)), tuple(host)) == (network.regions, network.host)


@EACH
def test_images_are_transposed_at_the_ends_of_a_region_only(network):
    for func in regions(partitioned(network)).values():
        assert_transposed_at_the_ends(optimize(graph_from_region(func)))


# --- Equal to TVM ----------------------------------------------------------------------------


@each_batch(lambda network, batch: network.slow or batch > 1)
def test_the_network_equals_tvm_on_ten_inputs(network, batch):
    mod = quantized(network, batch)
    run = runner(library(network, batch))
    for inputs in random_inputs(mod["main"]):
        assert_same_bits(run(inputs), oracle(mod, inputs, passes_off=network.passes_off))


@each_batch(lambda network, batch: str(network) not in FEW_LAYERS or batch > 1)
def test_each_region_equals_tvm_on_ten_inputs(network, batch):
    for func in regions(partitioned(network, batch)).values():
        plain = as_plain_module(func)
        for inputs in random_inputs(func):
            actual = run_region(library(network, batch), func, inputs)
            assert_same_bits(actual, oracle(plain, inputs))


@EACH
def test_every_layer_is_alive_and_the_reference_equals_tvm(network):
    for func in regions(partitioned(network)).values():
        graph = compile_graph(graph_from_region(func), Target()).graph
        inputs = next(random_inputs(func))
        values = {**graph.constants, **dict(zip(graph.inputs, inputs.values(), strict=True))}
        for node in graph.nodes:
            values[node.output] = reference.run_node(node, values)
            _, counts = np.unique(values[node.output], return_counts=True)
            assert len(counts) > 16, node
            assert counts.max() < 0.9 * counts.sum(), node
        outputs = [values[name] for name in graph.outputs]
        assert_same_bits(outputs, oracle(as_plain_module(func), inputs))


# --- The C code ------------------------------------------------------------------------------


def compiled_regions(network: Network) -> list[tuple[relay.Function, Compiled]]:
    """The regions with what the hook makes of them."""
    return [
        (func, compile_graph(graph_from_region(func), Target(rounding="upward"), abi="packed"))
        for func in regions(partitioned(network)).values()
    ]


@ONE
def test_the_c_is_warning_free(network, compiler):
    for text in c_sources(built(network)):
        assert_warning_free(text, compiler)


@ONE
def test_the_c_is_clean_under_sanitizers_and_equals_tvm(network):
    if missing_sanitizers("gcc"):
        pytest.skip(missing_sanitizers("gcc"))
    for func, compiled in compiled_regions(network):
        assert compiled.source.text in c_sources(built(network))
        # The sanitizers need minutes for all instruction sets of a network: test_c_source has them.
        scalar = compile_graph(graph_from_region(func), Target(isa="scalar"), abi="packed")
        inputs = next(random_inputs(func))
        outputs = run_sanitized(scalar, list(inputs.values()), "gcc", abi="packed")
        assert_same_bits(outputs, oracle(as_plain_module(func), inputs))


HOOK = """
import sys
from pathlib import Path
import tvm
from tinyai.frontends.relay import compile_region, regions
mod = tvm.ir.load_json(Path(sys.argv[1]).read_text())
for variable, func in regions(mod).items():
    Path(sys.argv[2], variable.name_hint).write_text(compile_region(func).get_source())
"""


@ONE
def test_a_saved_module_gives_the_same_c_in_a_new_process(network, tmp_path):
    saved, folder = tmp_path / "partitioned.json", tmp_path / "sources"
    saved.write_text(tvm.ir.save_json(partitioned(network)))
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-c", HOOK, str(saved), str(folder)],
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "4711"},
    )
    sources = {file.read_text() for file in folder.iterdir()}
    assert len(sources) == network.regions
    assert sources == set(c_sources(built(network))), "the C differs"


# --- The forum's case ------------------------------------------------------------------------


def forum_prefix() -> tvm.IRModule:
    """The beginning of a quantized NHWC MobileNet, as a user wrote it down: padding, quantization,
    a convolution with its requantization and a batch norm in integers, and, after
    ``annotation.stop_fusion``, a depthwise convolution."""
    rng = np.random.default_rng(3)

    def int32(low, high):
        return relay.const(rng.integers(low, high, 32).astype("int32"))

    def int8(*shape):
        return relay.const(rng.integers(-127, 128, shape).astype("int8"))

    def shift_right(x, places):
        rounded = relay.add(x, relay.const(1 << (places - 1)))
        return relay.right_shift(rounded, relay.const(places))

    def conv2d(x, weight, padding, groups, kernel_layout):
        return relay.nn.conv2d(
            x,
            weight,
            strides=(2, 2),
            padding=padding,
            groups=groups,
            channels=32,
            kernel_size=(3, 3),
            data_layout="NHWC",
            kernel_layout=kernel_layout,
            out_dtype="int32",
        )

    x = relay.var("image", shape=(1, 64, 64, 3), dtype="float32")
    x = relay.nn.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)))
    x = relay.round(relay.multiply(x, relay.const(16.0)))
    x = relay.cast(relay.clip(x, -127, 127), "int8")
    x = conv2d(x, int8(3, 3, 3, 32), (0, 0), 1, "HWIO")
    x = relay.clip(shift_right(x, 7), -127, 127)
    x = relay.add(relay.multiply(x, int32(1, 5)), int32(-99, 100))
    x = relay.clip(x, 0, 192)
    x = relay.cast(relay.clip(shift_right(x, 1), -127, 127), "int8")
    x = conv2d(relay.annotation.stop_fusion(x), int8(3, 3, 32, 1), (1, 1), 32, "HWOI")
    x = relay.cast(relay.clip(shift_right(x, 8), -127, 127), "int8")
    return relay.transform.InferType()(nets.module(x))


def test_the_forums_prefix_is_one_region_and_equals_tvm():
    mod = forum_prefix()
    cut = tinyai.partition_for_tinyai(mod)
    assert (len(regions(cut)), nets.host_operators(cut)) == (1, [])
    run = runner(exported(build(cut)))
    for inputs in random_inputs(mod["main"]):
        actual = run(inputs)
        assert len(np.unique(actual)) > 16
        assert_same_bits(actual, oracle(mod, inputs))


# --- The oracle's cache ----------------------------------------------------------------------


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A small module with an input and its result, and an empty cache."""
    mod = nets.module(nets.layers(1))
    inputs = nets.random_inputs(mod)
    monkeypatch.setenv("TINYAI_TEST_CACHE", "0")
    expected = nets.run_tvm(mod, inputs)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TINYAI_TEST_CACHE")
    return mod, inputs, expected


def forbid_building(monkeypatch):
    def fail(*_):
        raise AssertionError("TVM was asked")

    monkeypatch.setattr(oracles, "_executor", fail)


def test_the_oracle_asks_tvm_once_for_each_input(small, monkeypatch):
    mod, inputs, expected = small
    assert_same_bits(oracle(mod, inputs), expected)
    forbid_building(monkeypatch)
    again = tvm.ir.load_json(tvm.ir.save_json(mod))
    assert_same_bits(oracle(again, inputs), expected)
    with pytest.raises(AssertionError, match="TVM was asked"):
        oracle(mod, nets.random_inputs(mod, seed=1))
    with pytest.raises(AssertionError, match="TVM was asked"):
        oracle(nets.module(nets.layers(2)), inputs)
    with pytest.raises(AssertionError, match="TVM was asked"):
        oracle(mod, inputs, target="llvm -mcpu=x86-64")


def test_without_the_cache_tvm_is_asked_each_time_and_nothing_is_written(
    small, monkeypatch, tmp_path
):
    mod, inputs, expected = small
    monkeypatch.setenv("TINYAI_TEST_CACHE", "0")
    assert_same_bits(oracle(mod, inputs), expected)
    forbid_building(monkeypatch)
    with pytest.raises(AssertionError, match="TVM was asked"):
        oracle(mod, inputs)
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_could_not_be_written_whole_leaves_nothing(small, monkeypatch, tmp_path):
    mod, inputs, expected = small

    def full(*_):
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="the disk is full"):
            oracle(mod, inputs)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert_same_bits(oracle(mod, inputs), expected)
    assert len([path for path in Path(tmp_path).rglob("*.npz") if path.is_file()]) == 1


def test_different_parts_have_different_digests():
    array = np.arange(4, dtype="int8")
    parts = [
        ("ab", "c"),
        ("a", "bc"),
        (["a", "bc"],),
        (b"a", "bc"),
        (array,),
        (array.reshape(2, 2),),
        (array.view("uint8"),),
        (array + 1,),
        ({"x": array},),
        ({"y": array},),
        (None,),
        ("None",),
    ]
    assert len({oracles.digest(*part) for part in parts}) == len(parts)
    assert oracles.digest({"x": 1, "y": 2}) == oracles.digest({"y": 2, "x": 1})
