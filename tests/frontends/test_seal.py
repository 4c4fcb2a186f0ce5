"""Sealed composites: TVM sees another body, and builds the same."""

from __future__ import annotations

import sys

import pytest
import tvm
from tvm import relay

import tests.support.relay_nets as nets
import tinyai
from tinyai.frontends.relay import regions
from tinyai.frontends.relay.seal import seal, unseal
from tinyai.runtime.tvm_module import c_sources


@pytest.fixture
def partitioned():
    return tinyai.partition_for_tinyai(nets.module(nets.residual()))


def sources(mod):
    with tvm.transform.PassContext(opt_level=3):
        return c_sources(relay.build(mod, "llvm"))


def operators(mod):
    """Names of the operators that TVM sees in the regions, composites included."""
    found = set()
    for func in regions(mod).values():
        relay.analysis.post_order_visit(
            func, lambda e: found.add(e.name) if isinstance(e, tvm.ir.Op) else None
        )
    return found


def test_a_sealed_module_shows_its_composites_and_not_what_they_hold(partitioned):
    sealed = seal(partitioned)
    assert operators(sealed) == {"zeros"}
    assert "nn.conv2d" in operators(partitioned), "the argument was changed"
    region, original = nets.only_region(sealed), nets.only_region(partitioned)
    assert nets.composites(region) == nets.composites(original)
    assert tvm.ir.structural_equal(region.checked_type, original.checked_type)


def test_a_sealed_module_gives_the_same_c(partitioned):
    assert sources(seal(partitioned)) == sources(partitioned)


def test_a_module_can_be_partitioned_sealed(partitioned):
    sealed = tinyai.partition_for_tinyai(nets.module(nets.residual()), sealed=True)
    assert tvm.ir.structural_equal(sealed, seal(partitioned))
    assert tvm.ir.structural_equal(
        tinyai.partition_for_tinyai(partitioned, sealed=True), seal(partitioned)
    )


def test_a_sealed_region_that_computes_nothing_goes_back_to_the_host():
    x = relay.var("x", shape=(1, 4), dtype="int32")
    step = relay.annotation.stop_fusion(relay.cast(x, "int8"))
    mod = nets.module(relay.Function([x], relay.cast(step, "int32")))
    for prune, count in ((True, 0), (False, 1)):
        sealed = tinyai.partition_for_tinyai(mod, prune=prune, sealed=True)
        assert len(regions(sealed)) == count
        readable = tinyai.partition_for_tinyai(mod, prune=prune)
        assert tvm.ir.structural_equal(sealed, seal(readable))


def test_what_is_sealed_twice_is_sealed_once(partitioned):
    once = seal(partitioned)
    assert tvm.ir.structural_equal(seal(once), once)


def test_unseal_brings_the_module_back(partitioned):
    assert tvm.ir.structural_equal(unseal(seal(partitioned)), partitioned)
    assert tvm.ir.structural_equal(unseal(partitioned), partitioned)


def test_a_sealed_module_survives_being_saved(partitioned):
    loaded = tvm.ir.load_json(tvm.ir.save_json(seal(partitioned)))
    assert sources(loaded) == sources(partitioned)


def test_the_report_looks_into_sealed_composites(partitioned):
    assert str(tinyai.explain(seal(partitioned))) == str(tinyai.explain(partitioned))


def test_a_sealed_module_is_partitioned_already(partitioned):
    sealed = seal(partitioned)
    assert tinyai.partition_for_tinyai(sealed).same_as(sealed)


@pytest.fixture
def shallow():
    """Python as it recurses without TVM, which raises the limit when it is imported."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


def test_a_network_deeper_than_python_recurses_is_sealed(shallow):
    x = nets.data()
    for _ in range(400):
        x = relay.clip(x, -100, 100)
    partitioned = tinyai.partition_for_tinyai(nets.module(nets.requantize(nets.conv(x))))
    assert tvm.ir.structural_equal(unseal(seal(partitioned)), partitioned)


def composite(name):
    x = relay.var("x", shape=(4,))
    inner = relay.var("inner", shape=(4,))
    func = relay.Function([inner], relay.nn.relu(inner)).with_attr("Composite", name)
    return tvm.IRModule({tvm.ir.GlobalVar("main"): relay.Function([x], func(x))})


def test_composites_of_others_keep_their_bodies():
    mod = relay.transform.InferType()(composite("other.relu"))
    assert tvm.ir.structural_equal(seal(mod), mod)


def test_a_composite_without_types_stays_as_it_is():
    mod = composite("tinyai.relu")
    assert tvm.ir.structural_equal(seal(mod), relay.transform.InferType()(mod))
