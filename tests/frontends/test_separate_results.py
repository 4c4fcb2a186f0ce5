"""Results that are put together of parts in ranges far apart: boxes in pixels and their scores."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tinyai
from tests.support.random_onnx import run
from tinyai import Mixed, QuantConfig
from tinyai.errors import OptionError
from tinyai.frontends.quantize import QuantizedFile

# Two levels, each of 4 sides of boxes and 3 scores a place.
DETECTOR = """
    <ir_version: 8, opset_import: ["" : 17]>
    detector (float[1,3,16,16] image) => (float[1,80,7] found) {
        fine = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(image, first)
        fine_seen = Relu(fine)
        coarse = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(fine_seen, second)
        coarse_seen = Relu(coarse)
        fine_sides = Conv(fine_seen, sides)
        fine_logits = Conv(fine_seen, classes)
        fine_scores = Sigmoid(fine_logits)
        fine_found = Concat<axis = 1>(fine_sides, fine_scores)
        fine_rows = Reshape(fine_found, rows)
        coarse_sides = Conv(coarse_seen, sides)
        coarse_logits = Conv(coarse_seen, classes)
        coarse_scores = Sigmoid(coarse_logits)
        coarse_found = Concat<axis = 1>(coarse_sides, coarse_scores)
        coarse_rows = Reshape(coarse_found, rows)
        all = Concat<axis = 2>(fine_rows, coarse_rows)
        found = Transpose<perm = [0, 2, 1]>(all)
    }
"""


def detector(text: str = DETECTOR, pixels: float = 200.0) -> onnx.ModelProto:
    """Boxes are ``pixels`` wide or so."""
    made, rng = onnx.parser.parse_model(text), np.random.default_rng(3)
    for name, shape, size in (
        ("first", (8, 3, 3, 3), 0.3),
        ("second", (8, 8, 3, 3), 0.2),
        ("sides", (4, 8, 1, 1), pixels),
        ("classes", (3, 8, 1, 1), 0.5),
    ):
        weights = (size * rng.normal(size=shape)).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(weights, name))
    made.graph.initializer.append(numpy_helper.from_array(np.array([1, 7, -1]), "rows"))
    return made


def samples(count: int = 40) -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    return [{"image": rng.normal(size=(1, 3, 16, 16)).astype(np.float32)} for _ in range(count)]


def quantized(
    proto: onnx.ModelProto, folder: Path, config: QuantConfig | None = None, **asked: Any
) -> QuantizedFile:
    onnx.save(proto, folder / "net.onnx")
    return tinyai.quantize_file(folder / "net.onnx", samples(), config, **asked)


def decibels_of_scores(proto: onnx.ModelProto, made: QuantizedFile, folder: Path) -> float:
    """By a library of tinyai's, which computes what ONNX Runtime makes of the file with pairs."""
    made.save(folder / "pairs.onnx")
    model = tinyai.Model(tinyai.compile(folder / "pairs.onnx", folder / "net.so"))
    signal = noise = 0.0
    for sample in samples(4):
        (wanted,), (pairs,) = run(proto, sample), run(onnx.load(folder / "pairs.onnx"), sample)
        (found,) = model(sample["image"])
        np.testing.assert_array_equal(found, pairs)
        signal += float(np.square(wanted[..., 4:]).sum())
        noise += float(np.square(wanted[..., 4:] - found[..., 4:]).sum())
    return 10 * math.log10(signal / noise)


def left(made: QuantizedFile) -> list[str]:
    return [each.name for each in made.report.left]


def operators(made: QuantizedFile) -> list[str]:
    return [each.operator for each in made.report.layers]


@pytest.mark.parametrize("config", [QuantConfig(), QuantConfig(equalize_activations=False)])
def test_scores_beside_boxes_keep_a_scale_of_their_own(config: QuantConfig, tmp_path: Path) -> None:
    proto = detector()
    made = quantized(proto, tmp_path, config)
    assert len(left(made)) == 3
    assert {each.operator for each in made.report.left} == {"Concat"}
    assert all("scales of its parts" in each.reason for each in made.report.left)
    assert decibels_of_scores(proto, made, tmp_path) > 20


def test_who_wants_one_scale_gets_it(tmp_path: Path) -> None:
    proto = detector()
    made = quantized(proto, tmp_path, QuantConfig(separate_results=False))
    assert not left(made)
    assert operators(made).count("Concat") == 3
    assert decibels_of_scores(proto, made, tmp_path) < 5
    one = tinyai.compile(made.model, tmp_path / "int8.so", ends="int8")
    assert [each.dtype for each in tinyai.Model(one).outputs] == ["int8"]


def test_parts_in_ranges_alike_share_one(tmp_path: Path) -> None:
    made = quantized(detector(pixels=0.03), tmp_path)
    assert not left(made)
    assert operators(made).count("Concat") == 3


@pytest.mark.parametrize(("pixels", "apart"), [(0.2, False), (200.0, True)])
def test_parts_of_16_bits_may_be_further_apart(pixels: float, apart: bool, tmp_path: Path) -> None:
    """A factor of 9 takes 3 of 16 bits; more than a quarter of them is too much here, too."""
    made = quantized(detector(pixels=pixels), tmp_path, QuantConfig(dtype="int16"))
    assert bool(left(made)) == apart
    assert bool(left(quantized(detector(pixels=pixels), tmp_path)))


def test_only_what_lies_behind_parts_that_are_far_apart_stays_float(tmp_path: Path) -> None:
    """Of each level the sides alone are put together, in ranges alike."""
    text = DETECTOR.replace("(fine_sides, fine_scores)", "(fine_sides, fine_more)").replace(
        "fine_scores = Sigmoid(fine_logits)", "fine_more = Conv(fine_seen, more)"
    )
    proto = detector(text)
    more = np.random.default_rng(5).normal(size=(3, 8, 1, 1)).astype(np.float32) * 200
    proto.graph.initializer.append(numpy_helper.from_array(more, "more"))
    made = quantized(proto, tmp_path)
    assert operators(made).count("Concat") == 1
    assert len(left(made)) == 2


def test_parts_that_are_alike_stay_together_beside_others(tmp_path: Path) -> None:
    """As masks of three levels do, which come beside boxes."""
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        detector (float[1,3,16,16] image) => (float[1,10,8,8] found) {
            seen = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(image, first)
            boxes = Conv(seen, sides)
            some = Conv(seen, classes)
            others = Neg(some)
            masks = Concat<axis = 1>(some, others)
            found = Concat<axis = 1>(boxes, masks)
        }
    """
    made = quantized(detector(text), tmp_path)
    assert [each.name for each in made.report.left] == ["found"]
    assert operators(made).count("Concat") == 1


def test_a_concatenation_that_is_read_again_stays_quantized(tmp_path: Path) -> None:
    text = DETECTOR.replace("found = Transpose", "moved = Transpose").replace(
        "(all)\n", "(all)\n        found = Relu(moved)\n"
    )
    assert not left(quantized(detector(text), tmp_path))


def test_a_goal_counts_from_there(tmp_path: Path) -> None:
    proto = detector()
    made = quantized(proto, tmp_path, mixed=Mixed(sqnr=60, floats=False))
    assert made.report.mixed is not None
    assert made.report.mixed.layers
    assert len(left(made)) == 3


def test_integers_at_the_end_need_one_scale(tmp_path: Path) -> None:
    made = quantized(detector(), tmp_path)
    with pytest.raises(OptionError, match="separate_results=False"):
        tinyai.compile(made.model, tmp_path / "net.so", ends="int8")
