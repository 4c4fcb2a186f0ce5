"""A back end of one's own in Relax: its composites and kernels in tinyai's regions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

import tinyai
from tests.relax.nets import built, imported, regions, run
from tests.support.magnitudes import KERNEL, REALS, ROW, Magnitude
from tests.support.onnx_models import Model, quantized
from tinyai.backend import TinyAIBackend
from tinyai.errors import OptionError, UsageWarning
from tinyai.match import AnyConstant, op
from tinyai.relax import build, explain, partition_for_tinyai
from tinyai.source import Refusal


@pytest.fixture(autouse=True)
def _registered() -> None:
    tinyai.register_backend("magnitudes", TinyAIBackend, [ROW], kernels=[KERNEL])


@pytest.fixture(scope="module")
def model():
    """The model, an input for it, and what the back end makes of that."""
    nodes = (helper.make_node("Abs", ["x"], ["y"]),)
    proto, inputs = quantized(Model(nodes, {"x": (7, 9)}), "int8")
    (zero_point,) = (
        t.int32_data[0] if t.int32_data else np.frombuffer(t.raw_data, np.int8)[0]
        for t in proto.graph.initializer
        if t.name == "x_zero"
    )
    return proto, inputs["x"], Magnitude(int(zero_point)).reference(inputs["x"])


@pytest.mark.parametrize("sealed", [True, False])
def test_a_region_has_the_composites_and_kernels_of_ones_own(model, sealed) -> None:
    proto, data, wanted = model
    mod = partition_for_tinyai(imported(proto), sealed=sealed, backend="magnitudes")
    assert len(regions(mod)) == 1
    np.testing.assert_array_equal(run(built(mod), [data])[0], wanted)


def test_a_build_has_them_and_without_the_name_has_not(model) -> None:
    proto, data, wanted = model
    with_it = run(build(imported(proto), backend="magnitudes"), [data])[0]
    np.testing.assert_array_equal(with_it, wanted)
    assert (run(build(imported(proto)), [data])[0] != wanted).any(), "the scale is another"


def test_a_report_says_what_is_a_region_with_it(model) -> None:
    report = explain(imported(model[0]), backend="magnitudes")
    assert len(report.regions) == 1
    assert not report.host


def test_what_a_builder_refuses_is_said_and_goes_to_tinyai(model) -> None:
    def refuses(*_):
        raise Refusal("colour", "red", "blue")

    tinyai.register_backend("choosy", TinyAIBackend, [replace(ROW, build=refuses)])
    with pytest.warns(UserWarning, match=r"(?s)magnitude is not made at .*colour.*red.*blue"):
        report = explain(imported(model[0]), backend="choosy")
    assert len(report.regions) == 1
    assert not report.host


def test_an_unknown_back_end_is_refused_with_those_that_there_are(model) -> None:
    for way in partition_for_tinyai, explain:
        with pytest.raises(OptionError, match=r"(?s)'other'.*magnitudes"):
            way(imported(model[0]), backend="other")


def test_a_back_end_that_takes_nothing_says_what_came_nearest(model) -> None:
    sign = op("quantize", op("sign", REALS), AnyConstant(), AnyConstant())
    tinyai.register_backend("choosy", TinyAIBackend, [replace(ROW, pattern=sign)])
    for way in partition_for_tinyai, explain:
        with pytest.warns(
            UsageWarning, match=r"(?s)'choosy' takes nothing.*nearest.*allowed: *sign"
        ):
            way(imported(model[0]), backend="choosy")
