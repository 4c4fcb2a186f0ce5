"""Activations of 16 bits: what has integers of them, the width of sums, two widths in one network.
Integers are compared with TVM's bit for bit."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

import tinyai
from tests.support.oracle import oracle, runner
from tinyai import QuantConfig
from tinyai.errors import OptionError
from tinyai.frontends.relay import regions
from tinyai.frontends.relay.float_model import RelayModel
from tinyai.frontends.relay.quantize import Quantized
from tinyai.quantizer.calibrate import points_of

SHAPE = (1, 8, 6, 6)
X = relay.var("x", shape=SHAPE)


def constant(*shape: int, scale: float = 1.0) -> relay.Constant:
    values = np.random.default_rng(shape).normal(size=shape)
    return relay.const((scale * values).astype("float32"))


def named(name: str, call: relay.Call) -> relay.Call:
    span = relay.Span(relay.SourceName(name), 0, 0, 0, 0)
    return relay.Call(call.op, call.args, call.attrs, None, span)


def conv(
    data: relay.Expr,
    name: str,
    channels: int = 8,
    kernel: int = 3,
    inputs: int = 8,
    groups: int = 1,
) -> relay.Expr:
    weight = constant(channels, inputs // groups, kernel, kernel, scale=0.3)
    pad = kernel // 2
    sums = named(name, relay.nn.conv2d(data, weight, padding=(pad, pad), groups=groups))
    return relay.nn.bias_add(sums, constant(channels))


def dense(data: relay.Expr, name: str, k: int) -> relay.Expr:
    flat = relay.reshape(data, (-1, k))
    return named(name, relay.nn.dense(flat, constant(5, k))) + constant(5)


def even(data: relay.Expr, name: str) -> relay.Expr:
    """Sums of 576 products by weights as large as they may be: of more than 32 bits."""
    weight = relay.const(np.full((1, 576), 0.25, "float32"))
    return named(
        name, relay.nn.dense(relay.reshape(relay.tile(data, (1, 2, 1, 1)), (1, 576)), weight)
    )


def hard_swish(data: relay.Expr) -> relay.Expr:
    return data * relay.clip(data + relay.const(3.0), 0, 6) / relay.const(6.0)


def gelu(data: relay.Expr) -> relay.Expr:
    return data * relay.const(0.5) * (relay.erf(data * relay.const(0.7071)) + relay.const(1.0))


def pool(data: relay.Expr, include: bool) -> relay.Expr:
    return relay.nn.avg_pool2d(data, (3, 3), (2, 2), padding=(1, 1), count_include_pad=include)


def branches() -> list[relay.Expr]:
    stem = relay.nn.relu(conv(X, "stem"))
    same = conv(stem, "same")
    few = conv(relay.nn.max_pool2d(stem, (2, 2), (2, 2)), "few")
    return [
        relay.clip(conv(stem, "depthwise", groups=8), 0, 6),
        conv(stem, "grouped", groups=2),
        relay.nn.relu(named("sum", stem + same)),
        stem - same,
        stem * same,
        same * constant(1, 1, 6, 1),
        relay.concatenate([stem, conv(stem, "part"), X], axis=1),
        pool(stem, True),
        pool(same, False),
        dense(relay.nn.global_avg_pool2d(same), "average", 8),
        relay.mean(stem, (2, 3)),
        dense(relay.tile(stem, (1, 2, 1, 1)), "many", 576),
        even(X, "even"),
        hard_swish(same),
        relay.nn.leaky_relu(few, 0.1),
        relay.strided_slice(relay.nn.pad(same, ((0, 0), (0, 0), (1, 1), (2, 0))), [0, 1], [1, 7]),
        relay.image.resize2d(few, (6, 6), None, "NCHW", "nearest_neighbor"),
        relay.sigmoid(same),
        conv(stem * relay.sigmoid(stem), "behind swish"),
        relay.tanh(few),
        gelu(same),
        relay.exp(relay.clip(few, -4, 1)),
        relay.sqrt(stem + relay.const(0.5)),
    ]


WITHOUT_16_BITS = {
    "nn.softmax": lambda data: relay.nn.softmax(data, axis=1),
    "nn.conv2d_transpose": lambda data: relay.nn.conv2d_transpose(
        data, constant(8, 8, 1, 1), channels=8, kernel_size=(1, 1), data_layout="NCHW"
    ),
    "nn.batch_matmul": lambda data: relay.nn.batch_matmul(
        relay.reshape(data, (8, 6, 6)), relay.reshape(data, (8, 6, 6))
    ),
}


def samples(count: int = 4) -> list[dict[str, Any]]:
    """The last one is the largest value everywhere."""
    rng = np.random.default_rng(1)
    found = [{"x": rng.normal(size=SHAPE).astype("float32")} for _ in range(count)]
    return [*found, {"x": np.full(SHAPE, max(each["x"].max() for each in found))}]


def quantized(body: relay.Expr, **options: Any) -> Quantized:
    config = QuantConfig(observer="minmax", **options)
    return tinyai.quantize(module(body), None, samples(), config, compared=5)


def module(body: relay.Expr) -> tvm.IRModule:
    return tvm.IRModule.from_expr(relay.Function([X], body))


@functools.cache
def every() -> Quantized:
    return quantized(relay.Tuple(branches()), dtype="int16")


def require_one_region_equal_to_tvm(found: Quantized) -> None:
    assert len(regions(tinyai.partition_for_tinyai(found.module, strict=True))) == 1
    require_equal_to_tvm(found)


def require_equal_to_tvm(found: Quantized) -> None:
    run, integers = runner(tinyai.build(found.module)), found.integers()
    for sample in (*samples(2), {"x": -9 * samples(1)[0]["x"]}):
        for ours, theirs in zip(run(sample), oracle(integers, sample), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.long
def test_networks_of_16_bits_are_one_region_equal_to_tvm() -> None:
    found = every()
    assert found.report.left == ()
    assert {(row.dtype, row.zero_point) for row in found.report.layers} == {("int16", 0)}
    require_one_region_equal_to_tvm(found)


@pytest.mark.long
def test_sums_have_the_width_that_they_need() -> None:
    """Those that may be beyond 32 bits by their weights have 64, and are rescaled as float64."""
    found = every()
    calls: list[relay.Call] = []
    relay.analysis.post_order_visit(
        found.integers()["main"].body,
        lambda e: calls.append(e) if isinstance(e, relay.Call) else None,
    )
    wide = [e for e in calls if e.op.name == "qnn.dense" and e.checked_type.dtype == "int64"]
    assert [e.args[1].data.shape for e in wide] == [(1, 576)]
    doubles = [
        e for e in calls if e.op.name == "qnn.requantize" and e.attrs.compute_dtype == "float64"
    ]
    assert len(doubles) == 1
    (row,) = (row for row in found.report.layers if row.name == "even")
    assert row.sqnr is not None
    assert row.sqnr > 70


def test_16_bits_lose_less_than_8() -> None:
    """Rounding of activations alone is left: all weights are steps of their scale."""
    steps = np.random.default_rng(2).integers(-127, 128, (8, 8, 3, 3)).astype("float32")
    steps[:, 0, 0, 0] = 127
    body = relay.nn.relu(relay.nn.conv2d(X, relay.const(steps), padding=(1, 1)))
    eight, sixteen = quantized(body).report.sqnr, quantized(body, dtype="int16").report.sqnr
    assert eight is not None
    assert sixteen is not None
    assert sixteen > eight + 35


@pytest.mark.long
def test_what_has_no_16_bits_stays_float_with_the_reason() -> None:
    before = conv(X, "before")
    results = (relay.reshape(make(before), SHAPE) for make in WITHOUT_16_BITS.values())
    after = [
        conv(each, f"after {name}") for name, each in zip(WITHOUT_16_BITS, results, strict=True)
    ]
    found = quantized(relay.Tuple(after), dtype="int16")
    left = {each.operator: each.reason for each in found.report.left}
    assert all("int16" in left[name] for name in WITHOUT_16_BITS)
    assert found.report.sqnr is not None
    assert found.report.sqnr > 30
    require_equal_to_tvm(found)


def layers() -> relay.Expr:
    first = relay.nn.relu(conv(X, "first"))
    second = relay.nn.relu(conv(first, "second"))
    both = named("sum", first + second)
    joined = named("joined", relay.concatenate([both, conv(first, "third")], axis=1))
    return conv(relay.nn.max_pool2d(joined, (2, 2)), "last", inputs=16)


WIDE = {
    "first": {"input", "first"},
    "second": {"first", "second"},
    # The parts of a concatenation have its grid, as what only moves values.
    "sum": {"first", "second", "sum", "third", "joined", "nn.max_pool2d"},
    "joined": {"sum", "third", "joined", "nn.max_pool2d"},
    "last": {"sum", "third", "joined", "nn.max_pool2d", "last"},
}


@pytest.mark.parametrize("name", WIDE)
def test_a_named_layers_operands_and_results_have_16_bits_and_others_8(name: str) -> None:
    model = RelayModel(module(layers()), None)
    points = points_of(model, QuantConfig(int16_layers=(name,)))
    dtypes = {point.name: points.dtypes[point.grid] for point in points.points}
    assert {each for each, dtype in dtypes.items() if dtype == "int16"} == WIDE[name]


@pytest.mark.long
def test_layers_of_8_and_of_16_bits_are_one_region_equal_to_tvm_and_nearer_to_floats() -> None:
    mixed = quantized(layers(), int16_layers=("second", "last"))
    assert {row.dtype for row in mixed.report.layers} == {"int8", "int16"}
    require_one_region_equal_to_tvm(mixed)

    def noise(found: Quantized) -> float:
        return next(row.sqnr for row in found.report.layers if row.name == "second") or 0.0

    assert noise(quantized(layers())) + 1.5 < noise(mixed)


@pytest.mark.parametrize("name", ["nowhere", ""])
@pytest.mark.parametrize("option", ["int16_layers", "float_layers"])
def test_a_name_that_no_layer_has_is_told(option: str, name: str) -> None:
    with pytest.raises(OptionError, match=rf"{option}(?s:.*)'{name}'(?s:.*)first, second"):
        quantized(layers(), **{option: (name,)})
