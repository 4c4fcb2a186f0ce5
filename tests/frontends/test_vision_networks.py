"""What float .onnx files of vision transformers and of networks like ConvNeXt V2 hold, quantized:
every operator becomes integers, with little noise, and equal to ONNX Runtime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support.qdq_cases import node, normal
from tests.support.quantized_files import quantized
from tinyai.errors import BoundaryError
from tinyai.frontends.onnx import reader
from tinyai.ir import Array

PLACES, WIDTH = 130, 8
SAMPLES = [{"x": normal(1, PLACES, WIDTH, seed=seed)} for seed in range(6)]
IMAGES = [{"x": normal(1, 8, 6, 6, seed=seed)} for seed in range(6)]


def test_small_shares_of_a_softmax_have_a_fine_scale(tmp_path: Path) -> None:
    """Of 130 places each has about 1/130 of a row: one or two steps of 1/256."""
    nodes = [
        node("MatMul", "x w", "q"),
        node("Transpose", "x", "turned", perm=[0, 2, 1]),
        node("MatMul", "q turned", "scores"),
        node("Softmax", "scores", "shares", axis=-1),
        node("MatMul", "shares x", "y"),
    ]
    report = quantized(tmp_path, nodes, SAMPLES, w=normal(WIDTH, WIDTH) / 20).report
    shares = next(row for row in report.layers if row.operator == "Softmax")
    assert shares.scale in {2.0**-places for places in range(9, 15)}
    assert shares.sqnr > 30
    assert report.sqnr is not None
    assert report.sqnr > 25


def test_a_softmax_of_one_value_is_one(tmp_path: Path) -> None:
    """As of attention to one place alone. ONNX Runtime's integers of it are infinite."""
    nodes = [
        node("ReduceMean", "x places", "key", keepdims=1),
        node("Transpose", "key", "turned", perm=[0, 2, 1]),
        node("MatMul", "x turned", "scores"),
        node("Softmax", "scores", "shares", axis=-1),
        node("MatMul", "shares key", "found"),
        node("Add", "found x", "y"),
    ]
    report = quantized(tmp_path, nodes, SAMPLES, places=np.array([1])).report
    assert report.sqnr is not None
    assert report.sqnr > 35


def test_a_bias_behind_a_small_factor_fits_the_sums(tmp_path: Path) -> None:
    """The layer scale of CaiT is 1e-5: in steps of the sums the constant behind it is as large."""
    nodes = [
        node("MatMul", "x w", "sums"),
        node("Add", "sums bias", "layer"),
        node("Mul", "layer gamma", "scaled"),
        node("Add", "scaled token", "y"),
    ]
    numbers = {"w": normal(WIDTH, WIDTH) / 20, "bias": np.zeros(WIDTH, np.float32)}
    numbers |= {"gamma": np.full(WIDTH, 1e-7, np.float32), "token": normal(1, 1, WIDTH)}
    quantized(tmp_path, nodes, SAMPLES, **numbers)


@pytest.mark.parametrize("factor", [0.3, normal(WIDTH, seed=1)], ids=["all", "each channel"])
def test_the_factor_behind_a_layer_of_batches_is_in_its_weights(
    factor: float | Array, tmp_path: Path
) -> None:
    """Queries of attention and layer scales: beside a factor ONNX Runtime multiplies floats."""
    nodes = [
        node("MatMul", "x w", "sums"),
        node("Add", "sums bias", "layer"),
        node("Mul", "layer factor", "y"),
    ]
    numbers = {"w": normal(WIDTH, WIDTH), "bias": normal(WIDTH), "factor": np.float32(factor)}
    report = quantized(tmp_path, nodes, SAMPLES, **numbers).report
    assert "Mul" not in {n.op_type for n in onnx.load(tmp_path / "q.onnx").graph.node}
    assert report.sqnr is not None
    assert report.sqnr > 35


@pytest.mark.parametrize("shape", [(1, 2, WIDTH), (WIDTH,)], ids=["rows", "vector"])
def test_what_a_network_asks_for_may_be_constant(shape: tuple[int, ...], tmp_path: Path) -> None:
    """As SigLIP's and AIMv2's attention at the end does, with a query of its own."""
    nodes = [
        node("Transpose", "x", "turned", perm=[0, 2, 1]),
        node("MatMul", "query turned", "scores"),
        node("Softmax", "scores", "shares", axis=-1),
        node("MatMul", "shares x", "y"),
    ]
    result = (1, *shape[1:-1], WIDTH)
    report = quantized(tmp_path, nodes, SAMPLES, result, query=normal(*shape)).report
    assert report.sqnr is not None
    assert report.sqnr > 30


@pytest.mark.parametrize("attrs", [{}, {"transA": 1, "alpha": 0.5}], ids=["plain", "turned"])
@pytest.mark.parametrize("inputs", ["w x", "w x bias"])
def test_a_layer_may_multiply_the_other_way_round(
    inputs: str, attrs: dict[str, float], tmp_path: Path
) -> None:
    rows, numbers = [{"x": sample["x"][0, :16]} for sample in SAMPLES], {"bias": normal(WIDTH)}
    numbers["w"] = normal(16, 3) if attrs else normal(3, 16)
    report = quantized(
        tmp_path, [node("Gemm", inputs, "y", **attrs)], rows, (3, WIDTH), **numbers
    ).report
    assert report.sqnr is not None
    assert report.sqnr > 30


@pytest.mark.parametrize("border", [-np.inf, np.finfo(np.float32).min])
def test_a_border_that_no_largest_value_is_takes_no_range(border: float, tmp_path: Path) -> None:
    """As timm pads before a pooling like TensorFlow's."""
    nodes = [
        node("Conv", "x w", "h"),
        node("Pad", "h widths border", "padded"),
        node("MaxPool", "padded", "y", kernel_shape=[3, 3]),
    ]
    widths = np.array([0, 0, 1, 0, 0, 0, 1, 2])
    numbers = {"w": normal(8, 8, 1, 1), "widths": widths, "border": np.array(border, np.float32)}
    report = quantized(tmp_path, nodes, IMAGES, **numbers).report
    assert report.sqnr is not None
    assert report.sqnr > 35


def test_lengths_that_are_no_norm_are_quantized(tmp_path: Path) -> None:
    """The global response norm of ConvNeXt V2: lengths of planes beside the mean of all."""
    nodes = [
        node("ReduceL2", "x over", "lengths", keepdims=1),
        node("ReduceMean", "lengths channels", "mean", keepdims=1),
        node("Add", "mean small", "bounded"),
        node("Div", "lengths bounded", "shares"),
        node("Mul", "x shares", "scaled"),
        node("Add", "scaled x", "y"),
    ]
    numbers = {"over": np.array([2, 3]), "channels": np.array([1])}
    small = np.array(1e-6, np.float32)
    report = quantized(tmp_path, nodes, IMAGES, **numbers, small=small).report
    assert report.sqnr is not None
    assert report.sqnr > 35


def test_numbers_of_each_place_may_divide(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "h"), node("Div", "h counts", "y")]
    counts = np.random.default_rng(0).integers(2, 9, (6, 6)).astype(np.float32)
    quantized(tmp_path, nodes, IMAGES, counts=counts)


ENCODED = [
    # As torch writes it, whose padding onnx's inference does not always understand.
    node("Conv", "waves w", "code", auto_pad="NOTSET", dilations=[1, 1]),
    node("Reshape", "code sizes", "places"),
    node("Relu", "x", "h"),
    node("Add", "h places", "y"),
]
WAVES = {
    "waves": normal(1, 4, 6, 6),
    "w": normal(8, 4, 1, 1),
    "sizes": np.array([1, 8, 6, 6]),
}


def test_a_convolution_of_constants_is_a_constant(tmp_path: Path) -> None:
    """As EdgeNeXt encodes places."""
    quantized(tmp_path, ENCODED, IMAGES, **WAVES)


def test_a_constant_that_is_too_large_to_fold_is_an_error_of_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has pairs: other programs compute it."""
    monkeypatch.setattr(reader, "MOST_FOLDED", 16)
    with pytest.raises(BoundaryError, match="not all of the model can be compiled"):
        quantized(tmp_path, ENCODED, IMAGES, **WAVES)
    assert (tmp_path / "q.onnx").exists()


@pytest.mark.parametrize(("least", "told"), [(0.001, True), (0.5, False)])
def test_a_divisor_that_may_be_0_as_an_integer_is_told(
    least: float, told: bool, tmp_path: Path
) -> None:
    """As sums of linear attention, of which some are next to nothing."""
    rng = np.random.default_rng(0)
    samples = [
        {"x": normal(4, 8, seed=k), "d": rng.uniform(least, 50, (4, 8)).astype(np.float32)}
        for k in range(4)
    ]
    samples[0]["d"][0, 0] = least
    nodes = [node("Sigmoid", "x", "s"), node("Relu", "d", "r"), node("Div", "s r", "y")]
    report = quantized(tmp_path, nodes, samples).report
    assert [each.name for each in report.small_divisors] == ["div_y"] * told
    assert ("may divide by 0: div_y: its divisor is 0.001 and more" in str(report)) == told
