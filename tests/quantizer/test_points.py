"""Where quantize and dequantize go: what the rows take together, what shares a grid, what stays
float. Nothing runs here; small modules of Relay's are read, quantized on made-up grids, and what
``tinyai.qdq`` makes of them is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relay

from tinyai.frontends.relay.float_model import RelayModel
from tinyai.frontends.relay.qdq import float_operators, integers_from_qdq
from tinyai.qdq.operands import Grid
from tinyai.quantizer import QuantConfig
from tinyai.quantizer.folding import Folding
from tinyai.quantizer.points import Points, Shares
from tinyai.quantizer.write import Written

RNG = np.random.default_rng(0)
X = relay.var("x", shape=(1, 8, 6, 6))


def constant(*shape: int) -> relay.Constant:
    return relay.const(RNG.normal(size=shape).astype("float32"))


def conv(data: relay.Expr, channels: int = 8, kernel: int = 3, inputs: int = 8) -> relay.Expr:
    weight = constant(channels, inputs, kernel, kernel)
    pad = kernel // 2
    return relay.nn.conv2d(data, weight, padding=(pad, pad))


def norm(data: relay.Expr, channels: int = 8) -> relay.Expr:
    numbers = [constant(channels) for _ in range(3)]
    variance = relay.const(RNG.uniform(0.5, 2, channels).astype("float32"))
    return relay.nn.batch_norm(data, *numbers, variance)[0]


def swish(data: relay.Expr) -> relay.Expr:
    return data * relay.sigmoid(data)


def hard_swish(data: relay.Expr) -> relay.Expr:
    bounded = relay.clip(data + relay.const(3.0), 0, 6)
    return data * bounded / relay.const(6.0)


def dense(data: relay.Expr) -> relay.Expr:
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(data))
    return relay.nn.dense(flat, constant(5, 8)) + constant(5)


def twice(of: Callable[[relay.Expr], relay.Expr]) -> relay.Expr:
    value = relay.nn.relu(conv(X))
    return of(value)


def split(data: relay.Expr) -> relay.Expr:
    left, right = relay.split(data, 2, axis=1)
    return relay.concatenate([right, relay.nn.relu(left)], axis=1)


SHARES = Grid("int8", 1 / 256, -128)  # of a softmax

# Each with the number of quantizations in its integers' place: groups of operators that are one.
NETWORKS: dict[str, tuple[relay.Expr, int]] = {
    "convolution, norm, bounds": (relay.clip(norm(conv(X)), 0, 6), 2),
    "bias and norm and bias": (
        norm(relay.nn.bias_add(conv(X), constant(8))) + constant(8, 1, 1),
        2,
    ),
    "norm of the input": (conv(relay.nn.relu(norm(X))), 3),
    "residual": (relay.nn.relu(twice(lambda v: v + norm(conv(v)))), 4),
    "swish is one table": (conv(swish(norm(conv(X)))), 4),
    "hard-swish is one table": (conv(hard_swish(norm(conv(X)))), 4),
    "bounds, then a table": (relay.tanh(relay.nn.relu(conv(X))), 3),
    "a chain of functions": (relay.exp(relay.negative(relay.abs(conv(X)))), 3),
    "max pooling": (conv(relay.nn.max_pool2d(conv(X), (2, 2), (2, 2))), 4),
    "dense and softmax": (relay.nn.softmax(dense(conv(X))), 6),
    "concatenation": (relay.concatenate([conv(X), X, relay.nn.relu(conv(X))], axis=1), 4),
    "split": (split(conv(X)), 6),
    "squeeze and excite": (
        twice(lambda v: v * relay.sigmoid(conv(relay.nn.global_avg_pool2d(v), kernel=1))),
        6,
    ),
    "a factor a channel": (twice(lambda v: relay.nn.relu(v) * constant(1, 1, 6, 1)), 3),
    "transposes": (relay.transpose(conv(relay.transpose(X, (0, 1, 3, 2))), (0, 2, 3, 1)), 4),
    "two users of bounds": (twice(lambda v: conv(v) + relay.sigmoid(v)), 5),
    "resize": (conv(relay.image.resize2d(X, (12, 12), method="nearest_neighbor")), 3),
}


def quantized(body: relay.Expr, config: QuantConfig | None = None) -> tuple[Points, tvm.IRModule]:
    model = RelayModel(
        tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)), None
    )
    root = Folding(model.root, model.fold).result
    points = Points(root, config or QuantConfig(), model.fold)
    # Different scales, so that what shares one is known by it.
    grids = {point.grid: Grid("int8", 0.05 * (1 + point.grid), 0) for point in points.points}
    return points, model.written(Written(points, grids).result)


def count(mod: tvm.IRModule, name: str) -> int:
    found: list[relay.Expr] = []
    relay.analysis.post_order_visit(
        mod["main"].body,
        lambda e: found.append(e) if isinstance(e, relay.Call) and e.op.name == name else None,
    )
    return len(found)


@pytest.mark.parametrize("name", NETWORKS)
def test_all_becomes_integers_between_one_quantize_and_one_dequantize(name: str) -> None:
    body, wanted = NETWORKS[name]
    points, mod = quantized(body)
    assert [str(each) for each in points.left] == []
    assert len(points.points) == count(mod, "qnn.quantize") == wanted
    assert [str(each) for each in float_operators(mod)] == []
    integers = integers_from_qdq(mod)
    tables = sum(name in str(integers) for name in ("sigmoid", "tanh", "exp", "softmax", "clip(%"))
    # A table keeps its dequantize and quantize; nothing else does.
    assert count(integers, "qnn.dequantize") <= 1 + 2 * tables
    assert set(points.fixed.values()) == ({SHARES} if "softmax" in name else set())


def test_a_softmax_has_the_grid_that_kernels_want_where_it_is_its_own() -> None:
    softmax = relay.nn.softmax(dense(conv(X)))
    unsigned, _ = quantized(softmax, QuantConfig(dtype="uint8"))
    assert [*unsigned.fixed.values()] == [Grid("uint8", 1 / 256, 0)]
    for body, config in (
        (softmax, QuantConfig(symmetric=True)),
        (relay.nn.log_softmax(dense(conv(X))), QuantConfig()),
        (relay.concatenate([softmax, dense(conv(X))], axis=1), QuantConfig()),
    ):
        points, _ = quantized(body, config)
        assert points.fixed == {}


def test_shares_that_an_operator_reads_have_the_grid_of_the_largest_of_them() -> None:
    body = relay.nn.softmax(dense(conv(X))) + dense(conv(X))
    for wide in ((), (quantized(body)[0].points[-1].name,)):
        points, _ = quantized(body, QuantConfig(int16_layers=wide))
        assert points.fixed == {}
        ((number, shares),) = points.shares.items()
        assert points.dtypes[number] == shares.dtype == "int8"
    long = Shares("uint8", 1000)
    for largest, halvings in ((1.0, 0), (0.6, 0), (0.5, 1), (0.007, 7), (0.001, 7), (0.0, 0)):
        assert long.grid(largest) == Grid("uint8", 2.0 ** -(8 + halvings), 0)
    assert Shares("int8", 2).grid(0.1) == SHARES


def test_what_only_moves_values_shares_the_grid_of_its_input() -> None:
    points, _ = quantized(relay.nn.max_pool2d(relay.transpose(conv(X), (0, 1, 3, 2)), (2, 2)))
    numbers = [point.grid for point in points.points]
    assert numbers == [0, 1, 1, 1]
    assert [point.observed for point in points.points] == [True, True, False, False]


def test_the_parts_of_a_concatenation_share_its_grid() -> None:
    points, _ = quantized(conv(NETWORKS["concatenation"][0], inputs=24))
    assert [point.grid for point in points.points] == [0, 0, 0, 0, 1]
    assert [point.observed for point in points.points] == [True, True, True, False, True]


def test_what_leaves_the_model_in_a_concatenation_does_not_give_its_grid_to_what_others_read() -> (
    None
):
    points, _ = quantized(NETWORKS["concatenation"][0])
    assert len({point.grid for point in points.points}) == 4
    read_by_nobody_else = relay.concatenate([conv(X), relay.nn.relu(conv(X))], axis=1)
    points, _ = quantized(read_by_nobody_else)
    assert len({point.grid for point in points.points}) == 2


def test_a_residual_sum_has_three_grids_or_one() -> None:
    body = NETWORKS["residual"][0]
    own, _ = quantized(body)
    assert [point.grid for point in own.points] == [0, 1, 2, 3]
    common, _ = quantized(body, QuantConfig(residual="common"))
    assert [point.grid for point in common.points] == [0, 1, 1, 1]


def test_an_average_has_a_grid_of_its_own_or_its_inputs() -> None:
    body = dense(conv(X))
    own, _ = quantized(body)
    assert [point.grid for point in own.points] == [0, 1, 2, 2, 3]
    shared, _ = quantized(body, QuantConfig(shared_averages=True))
    assert [point.grid for point in shared.points] == [0, 1, 1, 1, 2]


def test_a_layer_has_the_name_of_the_model() -> None:
    named = tvm.relay.Span(relay.SourceName("stem"), 0, 0, 0, 0)
    first = conv(X)
    first = relay.Call(first.op, first.args, first.attrs, None, named)
    points, _ = quantized(relay.nn.relu(norm(first)))
    assert [(point.name, point.operator) for point in points.points] == [
        ("input", "input"),
        ("stem", "nn.conv2d"),
    ]


def test_weights_are_int8_with_a_scale_a_channel_or_one() -> None:
    for per_channel, wanted in ((True, 8), (False, 1)):
        _, mod = quantized(conv(X), QuantConfig(per_channel=per_channel))
        weights: list[relay.Expr] = []
        relay.analysis.post_order_visit(
            mod["main"].body,
            lambda e, found=weights: (
                found.append(e)
                if isinstance(e, relay.Call)
                and e.op.name == "qnn.dequantize"
                and isinstance(e.args[0], relay.Constant)
                else None
            ),
        )
        (made,) = weights
        assert made.args[0].data.dtype == "int8"
        assert made.args[1].data.numpy().size == wanted


@pytest.mark.parametrize(
    ("config", "floats"),
    [
        (QuantConfig(float_first=True), ["nn.conv2d", "nn.relu"]),
        (QuantConfig(float_last=True), ["nn.dense", "add"]),
        (QuantConfig(float_operators=("dense",)), ["nn.dense", "add"]),
        (QuantConfig(operators=("dense", "global_avg_pool2d")), ["nn.conv2d", "nn.relu"] * 2),
    ],
)
def test_what_is_left_in_float_is_told_and_the_rest_becomes_integers(
    config: QuantConfig, floats: list[str]
) -> None:
    body = dense(relay.nn.relu(conv(relay.nn.relu(conv(X)))))
    points, mod = quantized(body, config)
    assert [each.operator for each in points.left] == floats
    assert "QuantConfig." in points.left[0].reason
    left = [each.operator for each in float_operators(mod)]
    assert left == floats
    everything = QuantConfig(float_operators=("conv2d", "dense", "global_avg_pool2d"))
    nothing, same = quantized(body, everything)
    assert nothing.points == []
    assert count(same, "qnn.quantize") == 0


def test_a_named_layer_is_left_in_float() -> None:
    span = relay.Span(relay.SourceName("middle"), 0, 0, 0, 0)
    middle = conv(relay.nn.relu(conv(X)))
    middle = relay.Call(middle.op, middle.args, middle.attrs, None, span)
    points, mod = quantized(conv(relay.nn.relu(middle)), QuantConfig(float_layers=("middle",)))
    assert (points.left[0].name, points.left[0].operator) == ("middle", "nn.conv2d")
    assert [each.operator for each in float_operators(mod)] == ["nn.conv2d", "nn.relu"]


def test_an_operator_without_a_row_stays_float_and_its_result_is_quantized() -> None:
    points, mod = quantized(conv(relay.nn.lrn(conv(X))))
    assert [(each.operator, each.name) for each in points.left] == [("nn.lrn", "")]
    assert [each.operator for each in float_operators(mod)] == ["nn.lrn"]
    assert len(points.points) == 4


def test_what_is_quantized_already_is_left_as_it_is() -> None:
    scale, zero = relay.const(0.5), relay.const(3)
    given = relay.qnn.quantize(relay.nn.relu(conv(X)), scale, zero, out_dtype="int8")
    inner = relay.qnn.dequantize(given, scale, zero)
    pooled = relay.nn.max_pool2d(inner, (2, 2))
    points, mod = quantized(conv(pooled))
    # The input, what is pooled on the grid that it has, and the last convolution.
    assert [point.operator for point in points.points] == ["input", "nn.max_pool2d", "nn.conv2d"]
    assert [*points.fixed.values()] == [Grid("int8", 0.5, 3)]
    (kept,) = points.kept()
    assert "a value that is quantized already: it keeps its int8" in str(kept)
    assert [str(each) for each in float_operators(mod)] == []


def test_weights_that_are_quantized_already_keep_their_integers() -> None:
    steps = RNG.integers(-90, 90, (8, 8, 3, 3)).astype("int8")
    weight = relay.qnn.dequantize(relay.const(steps), relay.const(0.01), relay.const(0))
    points, mod = quantized(relay.nn.conv2d(X, weight, padding=(1, 1)))
    (kept,) = points.kept()
    assert "weights that are quantized already" in str(kept)
    constants: list[np.ndarray] = []
    relay.analysis.post_order_visit(
        integers_from_qdq(mod)["main"].body,
        lambda e: constants.append(e.data.numpy()) if isinstance(e, relay.Constant) else None,
    )
    assert any(each.shape == steps.shape and (each == steps).all() for each in constants)


def test_the_module_that_is_handed_over_is_not_changed() -> None:
    body = NETWORKS["residual"][0]
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    before = tvm.ir.structural_hash(mod)
    RelayModel(mod, None)
    assert tvm.ir.structural_hash(mod) == before


def test_equal_models_are_written_equally() -> None:
    def text() -> str:
        return str(tvm.ir.save_json(quantized(NETWORKS["residual"][0])[1]))

    assert text() == text()
    assert replace(QuantConfig(), observer="mse") == QuantConfig()
