"""Activations' channels are made alike by samples, and the float network stays the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tinyai
from benchmarks.float_networks import sqnr
from tests.support.random_onnx import run
from tinyai import QuantConfig
from tinyai.frontends.files import read_file
from tinyai.frontends.onnx.float_model import FileModel
from tinyai.qdq.operands import is_call
from tinyai.quantizer.activation_equalization import LARGEST, MARGIN, equalized
from tinyai.quantizer.calibrate import points_of
from tinyai.quantizer.channels import Channels
from tinyai.quantizer.float_runner import Observed
from tinyai.quantizer.params import Array

CHANNELS = 12


def network(folder: Path, *, gate: bool = False, second: float | None = None) -> Path:
    """Channels of sizes from 1 to 1/50 go through a relu6, a depthwise layer, a PRelu, a sum and a
    dense layer; with a ``gate`` a sigmoid reads them before that. The ``second`` plane of the input
    goes to all channels alike, if it is given."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(-4, 0, CHANNELS))

    def each(*shape: int, by: Array | float = 1.0) -> Array:
        return rng.normal(size=shape) * np.reshape(by, (-1, *[1] * (len(shape) - 1)))

    constants = {
        "w0": each(CHANNELS, 3, 1, 1, by=sizes),
        "b0": each(CHANNELS, by=sizes),
        "low": np.zeros(()),
        "high": np.full((), 6.0),
        "w1": each(CHANNELS, 1, 3, 3),
        "slope": np.abs(each(CHANNELS, 1, 1)),
        "w2": each(CHANNELS, CHANNELS, 1, 1, by=sizes) / sizes[:, None, None],
        "w3": each(5, CHANNELS) / sizes,
        "b3": each(5),
    }
    if second is not None:
        constants["w0"][:, 1] = second
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["a"]),
        node("Clip", ["a", "low", "high"], ["b"]),
        node("Conv", ["b", "w1"], ["c"], group=CHANNELS, pads=[1, 1, 1, 1]),
        node("PRelu", ["c", "slope"], ["d"]),
        node("Conv", ["d", "w2"], ["e"]),
        node("Add", ["d", "e"], ["f"]),
        *([node("Sigmoid", ["f"], ["g"])] if gate else []),
        node("GlobalAveragePool", ["g" if gate else "f"], ["mean"]),
        node("Flatten", ["mean"], ["flat"]),
        node("Gemm", ["flat", "w3", "b3"], ["y"], transB=1, name="last"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, 6, 6))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 5))],
        [
            onnx.numpy_helper.from_array(value.astype("float32"), name)
            for name, value in constants.items()
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    file = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), file)
    return file


def samples(count: int, seed: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(1, 3, 6, 6)).astype("float32")} for _ in range(count)]


def of_points(file: Path) -> tuple[Any, Any, list[dict[int, Array]]]:
    """The float model, its points, and their values on samples."""
    model = FileModel(read_file(file))
    points = points_of(model, QuantConfig())
    observed, numbers = Observed.of(model, points), {p: n for n, p in enumerate(points.places())}
    values = []
    for sample in samples(16, 1):
        observed.runner.run(sample)
        values.append({numbers[place]: value for place, value in observed.values()})
    return model, points, values


def test_floats_stay_the_same_and_no_range_grows(tmp_path: Path) -> None:
    model, points, values = of_points(network(tmp_path))
    found = equalized(points, values)
    assert found is not None
    before, after = (model.runner(root) for root in (points.root, found.root))
    for sample in samples(16, 1):
        np.testing.assert_allclose(after.run(sample)[0], before.run(sample)[0], rtol=1e-4)
    assert found.factors
    for number, factor in found.factors.items():
        assert factor.max() <= 1
        seen = np.concatenate([each[number] for each in values])
        assert np.abs(seen / factor).max() <= np.abs(seen).max() * (1 + 1e-6)


def test_channels_of_a_depthwise_layer_use_the_whole_range(tmp_path: Path) -> None:
    _, points, values = of_points(network(tmp_path))
    found = equalized(points, values)
    assert found is not None
    (number,) = (n for n, point in enumerate(points.points) if is_call(point.expr, "clip"))
    seen = np.concatenate([each[number] for each in values])
    whole = np.abs(seen).max(axis=(0, 2, 3))
    assert whole.min() < 0.05 * whole.max()
    alike = np.abs(seen / found.factors[number]).max(axis=(0, 2, 3))
    share = np.clip(MARGIN * whole / whole.max(), 1 / LARGEST, 1)
    np.testing.assert_allclose(alike, whole / share, rtol=1e-5)


def test_channels_that_a_sigmoid_reads_keep_their_values(tmp_path: Path) -> None:
    _, points, _ = of_points(network(tmp_path, gate=True))
    channels = Channels(points)
    names = {"".join(getattr(e, "op", "")): e for e in channels.numbers}
    assert (channels.numbers[names["add"]] == 0).all()
    assert (channels.numbers[names["prelu"]] == 0).all()
    assert (channels.numbers[names["clip"]] > 0).all()
    assert "sigmoid" not in names


def test_the_default_is_nearer_to_floats_than_without_and_writes_pairs(tmp_path: Path) -> None:
    file = network(tmp_path)
    shown, noise = samples(32, 3), {}
    model = onnx.load(file)
    for config in (QuantConfig(), QuantConfig(equalize_activations=False)):
        found = tinyai.quantize_file(file, samples(32, 2), config)
        assert not found.report.left
        ours = tinyai.Model(found.model)
        found.save(tmp_path / "pairs.onnx")
        pairs = tinyai.Model(tmp_path / "pairs.onnx")
        floats = [run(model, sample)[0] for sample in shown]
        results = [[each.run(sample)[0] for sample in shown] for each in (ours, pairs)]
        np.testing.assert_array_equal(*results)
        noise[config] = sqnr(floats, results[0])
    with_it, without = noise.values()
    assert with_it > without + 3


@pytest.mark.parametrize("shown", [True, False])
def test_what_loses_on_samples_that_it_was_not_fitted_to_is_not_done(
    tmp_path: Path, shown: bool
) -> None:
    """Every fourth sample has large values in channels that the others leave small."""
    file, given = network(tmp_path, second=1.0), samples(32, 2)
    for number, sample in enumerate(given):
        sample["x"][:, [0, 2] if number % 4 == 0 and shown else 1] = 0
    with_it, without = (
        tinyai.quantize_file(file, given, QuantConfig(equalize_activations=on)).report.json()
        for on in (True, False)
    )
    assert (with_it == without) == shown


def test_ranges_are_those_of_all_samples_although_few_give_the_factors(tmp_path: Path) -> None:
    file, few = network(tmp_path), samples(32, 2)
    more = [*few, *({"x": 2 * each["x"]} for each in few)]

    def rows(given: list[dict[str, Array]], *, on: bool) -> Any:
        config = QuantConfig(observer="minmax", equalize_activations=on)
        return tinyai.quantize_file(file, given, config).report.layers

    assert rows(few, on=True) != rows(few, on=False)
    growth = [
        [
            new.scale / old.scale
            for new, old in zip(rows(more, on=on), rows(few, on=on), strict=True)
        ]
        for on in (True, False)
    ]
    assert max(growth[1]) > 1.5
    np.testing.assert_allclose(*growth, rtol=1e-4)


def test_a_layer_that_stays_float_has_the_equalized_weights_in_the_file(tmp_path: Path) -> None:
    """Of a goal that leaves layers in float the layer before has divided its channels."""
    file = network(tmp_path)
    goal = tinyai.Mixed(sqnr=200)  # nothing but floats
    found = tinyai.quantize_file(file, samples(32, 2), mixed=goal)
    left = {each.operator for each in found.report.left}
    assert left
    found.save(tmp_path / "pairs.onnx")
    made = onnx.load(tmp_path / "pairs.onnx")
    for sample in samples(8, 3):
        wanted = run(onnx.load(file), sample)[0]
        assert sqnr([wanted], [run(made, sample)[0]]) > 20


@pytest.mark.parametrize("option", [{"per_channel": False}, {"dtype": "int16"}])
def test_where_scales_do_not_ask_for_it_nothing_is_equalized(
    tmp_path: Path, option: dict[str, Any]
) -> None:
    file = network(tmp_path)
    both = [
        tinyai.quantize_file(file, samples(4, 2), QuantConfig(**option, equalize_activations=on))
        for on in (False, True)
    ]
    assert both[0].report.json() == both[1].report.json()


def test_channels_that_a_dense_layer_reads_as_rows_are_left_alone(tmp_path: Path) -> None:
    """A Gemm that transposes: what were channels are samples to it."""
    rng = np.random.default_rng(7)
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        turned (float[3,23] x) => (float[11,10] y) {
            a = MatMul(x, w0)
            b = Gemm<transA = 1, transB = 1>(a, w1)
            y = MatMul(b, w2)
        }
    """
    proto = onnx.parser.parse_model(text)
    sizes = np.exp(rng.uniform(-4, 0, 10))
    for name, weights in (
        ("w0", rng.normal(size=(23, 11))),
        ("w1", rng.normal(size=(10, 3)) * sizes[:, None]),
        ("w2", rng.normal(size=(10, 10)) / sizes[:, None]),
    ):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weights.astype("f"), name))
    file = tmp_path / "net.onnx"
    onnx.save(proto, file)
    rows = [{"x": rng.normal(size=(3, 23)).astype("float32")} for _ in range(16)]
    made = tinyai.quantize_file(file, rows)
    assert made.report.outputs[0].sqnr > 30
    made.save(tmp_path / "pairs.onnx")
    floats = [run(proto, row)[0] for row in rows]
    found = [run(onnx.load(tmp_path / "pairs.onnx"), row)[0] for row in rows]
    assert sqnr(floats, found) > 30
