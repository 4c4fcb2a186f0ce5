"""QNN in regions of every shape: several outputs, values that host and region share, weights that
regions share, regions of hundreds of composites, names that collide."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay import qnn

import tests.support.relay_nets as nets
from tests.support.oracle import REQUANTIZE
from tests.support.relay_nets import assert_equal_to_tvm
from tinyai.frontends.relay import regions
from tinyai.runtime.tvm_module import c_sources


@pytest.fixture(autouse=True)
def _requantize_as_the_contract_says() -> Iterator[None]:
    with relay.qnn.op.qnn.requantize_config(**REQUANTIZE):
        yield


def scale(value: float) -> relay.Constant:
    return relay.const(np.float32(value))


def zero(value: int) -> relay.Constant:
    return relay.const(np.int32(value))


def layer(x: relay.Expr, seed: int = 0, *, stop_fusion: bool = True) -> relay.Expr:
    """3×3 qnn.conv2d of four channels, a bias, a requantization per channel."""
    weight = relay.const(nets.weights(seed, (3, 3, 4, 4)))
    scales = relay.const((np.arange(1, 5) / 400).astype("float32"))
    y = qnn.op.conv2d(
        x,
        weight,
        zero(-3),
        zero(0),
        scale(0.5),
        scales,
        kernel_size=(3, 3),
        channels=4,
        padding=(1, 1, 1, 1),
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    y = relay.nn.bias_add(y, relay.const(np.arange(-200, 200, 100, dtype="int32")), axis=3)
    product = relay.const((np.arange(1, 5) / 800).astype("float32"))
    y = qnn.op.requantize(y, product, zero(0), scale(0.5), zero(-3), axis=3, out_dtype="int8")
    return relay.annotation.stop_fusion(y) if stop_fusion else y


def added(x: relay.Expr, y: relay.Expr) -> relay.Expr:
    same = scale(0.5), zero(-3)
    return qnn.op.add(x, y, *same, *same, scale(0.75), zero(4))


def host(x: relay.Expr) -> relay.Expr:
    """An operator that tinyai does not take."""
    return relay.cast(relay.abs(relay.cast(x, "int32")), "int8")


def test_stop_fusion_between_layers_leaves_one_region() -> None:
    x = layer(layer(nets.data(), 1), 2)
    partitioned = assert_equal_to_tvm(nets.module(x))
    assert nets.composites(nets.only_region(partitioned)) == ["tinyai.conv2d"] * 2
    assert nets.host_operators(partitioned) == []


def test_a_residual_fork_is_one_region() -> None:
    start = layer(nets.data())
    partitioned = assert_equal_to_tvm(nets.module(added(start, layer(start, 1))))
    assert len(regions(partitioned)) == 1


def test_tuple_outputs_one_of_which_is_read_inside() -> None:
    first = layer(nets.data())
    second = layer(first, 1)
    partitioned = assert_equal_to_tvm(nets.module(relay.Tuple([second, first, second])))
    assert len(regions(partitioned)) == 1


def test_an_output_that_host_and_region_read() -> None:
    first = layer(nets.data())
    body = relay.Tuple([host(first), layer(first, 1)])
    assert "abs" in nets.host_operators(assert_equal_to_tvm(nets.module(body)))


def test_dead_outputs_of_a_tuple() -> None:
    first = layer(nets.data())
    pair = relay.Tuple([layer(first, 1), layer(first, 2)])
    assert_equal_to_tvm(nets.module(layer(relay.TupleGetItem(pair, 1), 3)))


def test_the_diamond_around_a_host_operator() -> None:
    start = layer(nets.data())
    assert_equal_to_tvm(nets.module(added(layer(start, 1), host(start))))


def test_regions_that_share_weights_store_them_once_in_the_library(tmp_path: Path) -> None:
    body = layer(relay.abs(layer(nets.data(), 5)), 5)  # both write bytes: packed the same way
    partitioned = assert_equal_to_tvm(nets.module(body))
    assert len(regions(partitioned)) == 2
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(partitioned, "llvm")
    library = tmp_path / "library.so"
    built.export_library(str(library))
    symbols = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    stored = re.findall(r"^(\w+) \w (tinyai_constant_\w+)$", symbols, re.MULTILINE)
    named = [
        set(re.findall(r"^TINYAI_CONSTANT\(\w+, (\w+)", t, re.MULTILINE)) for t in c_sources(built)
    ]
    assert len(named) == 2
    assert named[0] & named[1], "the weights"
    assert sorted(name for _, name in stored) == sorted(named[0] | named[1])
    assert len({address for address, _ in stored}) == len(stored)


@pytest.mark.slow  # TVM's own build of so many convolutions takes minutes
def test_a_region_of_500_composites() -> None:
    x = nets.data((1, 4, 4, 4))
    for seed in range(250):
        x = added(layer(x, seed % 7), x)
        x = qnn.op.requantize(x, scale(0.75), zero(4), scale(0.5), zero(-3), out_dtype="int8")
    partitioned = assert_equal_to_tvm(nets.module(x))
    assert len(nets.composites(nets.only_region(partitioned))) >= 500


def test_names_that_collide_with_the_emitted_ones() -> None:
    names = ("in0", "out0", "arena", "main", "tinyai_round_even", "tvmgen_default_tinyai_main_0")
    total: relay.Expr | None = None
    for name in names:
        x = layer(relay.var(name, shape=(1, 4, 4, 4), dtype="int8"))
        total = x if total is None else added(total, x)
    assert len(regions(assert_equal_to_tvm(nets.module(total)))) == 1
