"""What float .onnx files of language models hold, quantized: every operator becomes integers, with
little noise, and equal to ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from tests.support.qdq_cases import node, normal
from tests.support.quantized_files import quantized
from tinyai import QuantConfig
from tinyai.ir import Array
from tinyai.quantizer.report import QuantReport

LENGTH, WIDTH, LEAST = 12, 8, np.finfo(np.float32).min
SAMPLES = [{"x": normal(1, LENGTH, WIDTH, seed=seed)} for seed in range(6)]
# Each place sees itself and what is before it.
MASK = np.triu(np.full((LENGTH, LENGTH), LEAST), 1)
WAYS: dict[str, tuple[Sequence[NodeProto], int]] = {
    "a sink": ([node("Concat", "masked sink", "whole", axis=-1)], LENGTH + 1),
    "the same for each row": ([node("Identity", "masked", "whole")], LENGTH),
    "rows of each head": ([node("Reshape", "masked rows", "whole")], LENGTH),
    "a softmax of columns": ([node("Transpose", "masked", "whole", perm=[0, 2, 1])], LENGTH),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_mask_takes_no_range_on_its_way_to_a_softmax(way: str, tmp_path: Path) -> None:
    """As gpt-oss joins what attention may rest on to the scores, and OPT counts rows anew."""
    between, count = WAYS[way]
    columns = "columns" in way
    nodes = [
        node("MatMul", "x w", "queries"),
        node("Transpose", "x", "turned", perm=[0, 2, 1]),
        node("MatMul", "queries turned", "scores"),
        node("Add", "scores mask", "masked"),
        *between,
        node("Softmax", "whole", "y", axis=1 if columns else -1),
    ]
    numbers = {"w": normal(WIDTH, WIDTH) / 4, "mask": MASK, "sink": normal(1, LENGTH, 1)}
    numbers["rows"] = np.array([LENGTH, LENGTH])
    if "same" in way:
        numbers["mask"] = MASK[7:8]
    result = (LENGTH, LENGTH) if "rows of" in way else (1, LENGTH, count)
    report = quantized(tmp_path, nodes, SAMPLES, result, **numbers).report
    assert report.sqnr is not None
    assert report.sqnr > 30


MASKED = [
    node("MatMul", "x w", "queries"),
    node("Transpose", "x", "turned", perm=[0, 2, 1]),
    node("MatMul", "queries turned", "scores"),
    node("Add", "scores added", "whole"),
    node("Softmax", "whole", "shares", axis=-1),
    node("MatMul", "shares x", "h"),
    node("MatMul", "h w", "queries2"),
    node("MatMul", "queries2 turned", "scores2"),
    node("Add", "added scores2", "whole2"),
    node("Softmax", "whole2", "shares2", axis=-1),
    node("MatMul", "shares2 h", "y"),
]
MASKS: dict[str, tuple[Sequence[NodeProto], Array, Array]] = {
    "bools, -inf where they are true": (
        [
            node("Where", "mask hidden shown", "chosen"),
            node("Reshape", "chosen row", "moved"),
            node("Expand", "moved square", "added"),
        ],
        np.arange(LENGTH)[None] > 7,
        np.arange(LENGTH)[None] > 9,
    ),
    "numbers, multiplied": (
        [node("Sub", "one mask", "rest"), node("Mul", "rest least", "added")],
        (np.arange(LENGTH)[None, None] < 7).astype(np.float32),
        (np.arange(LENGTH)[None, None] < 9).astype(np.float32),
    ),
    "-inf as an input": (
        [node("Reshape", "mask square", "added")],
        np.triu(np.full((LENGTH, LENGTH), -np.inf, np.float32), 1),
        np.triu(np.full((LENGTH, LENGTH), -np.inf, np.float32), 3),
    ),
}


def of_a_mask(kind: str, folder: Path, **how: Any) -> QuantReport:
    nodes, *masks = MASKS[kind]
    samples = [each | {"mask": masks[number % 2]} for number, each in enumerate(SAMPLES)]
    numbers = {"w": normal(WIDTH, WIDTH) / 4, "row": np.array([1, 1, LENGTH])}
    numbers |= {"hidden": np.array(-np.inf, np.float32), "shown": np.zeros(1, np.float32)}
    numbers |= {"one": np.ones(1, np.float32), "least": np.array(LEAST)}
    numbers["square"] = np.array([1, LENGTH, LENGTH])
    return quantized(folder, [*nodes, *MASKED], samples, **how, **numbers).report


@pytest.mark.parametrize("kind", MASKS)
def test_a_mask_of_run_time_hides_as_in_floats(kind: str, tmp_path: Path) -> None:
    """As torch's TransformerEncoder writes ``src_key_padding_mask`` and BERT its own; each layer
    adds the same one."""
    report = of_a_mask(kind, tmp_path)
    assert report.sqnr is not None
    assert report.sqnr > 30


CONFIGS: dict[str, dict[str, Any]] = {
    "symmetric": {"symmetric": True},
    "uint8": {"dtype": "uint8"},
    "minmax": {"observer": "minmax"},
    "entropy": {"observer": "entropy"},
    "power of two": {"power_of_two": True},
    "common": {"residual": "common"},
}


@pytest.mark.long
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("kind", MASKS)
def test_so_it_does_in_every_configuration(kind: str, name: str, tmp_path: Path) -> None:
    report = of_a_mask(kind, tmp_path, config=QuantConfig(**CONFIGS[name]))
    assert report.sqnr is not None
    assert report.sqnr > 20


@pytest.mark.parametrize("kind", MASKS)
def test_a_mask_does_no_damage_alone(kind: str, tmp_path: Path) -> None:
    """What the search for 16 bits begins with: a mask is quantized to a number that hides as well,
    however far the two are apart."""
    report = of_a_mask(kind, tmp_path, rank=True)
    alone = [row.alone for row in report.layers if row.low < -1e30]
    assert alone
    assert all(each is None or each > 60 for each in alone)


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("keep", [0, 1])
def test_the_logarithm_of_a_sum_of_powers_is_quantized(
    keep: int, opset: int, tmp_path: Path
) -> None:
    """As Granite weighs what a row of masked scores finds."""
    old = opset < 18
    nodes = [
        node("MatMul", "x w", "queries"),
        node("Transpose", "x", "turned", perm=[0, 2, 1]),
        node("MatMul", "queries turned", "scores"),
        node("Add", "scores mask", "masked"),
        node("Softmax", "masked", "shares", axis=-1),
        node("MatMul", "shares x", "found"),
        node("ReduceLogSumExp", "masked" if old else "masked last", "all", keepdims=keep),
        *([] if keep else [node("Unsqueeze", "all last", "all_kept")]),
        node("Sigmoid", "all" if keep else "all_kept", "weight"),
        node("Mul", "found weight", "y"),
    ]
    if old:
        nodes[6].attribute.append(helper.make_attribute("axes", [-1]))
    numbers = {"w": normal(WIDTH, WIDTH) / 4, "mask": MASK, "last": np.array([-1])}
    report = quantized(tmp_path, nodes, SAMPLES, opset=opset, **numbers).report
    assert report.sqnr is not None
    assert report.sqnr > 30


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_place_of_a_token_is_picked(dtype: type, tmp_path: Path) -> None:
    """As CLIP reads a sentence off the place of its last token, which has the largest number."""
    nodes = [
        node("MatMul", "x w", "h"),
        node("ArgMax", "ids", "place", axis=-1, keepdims=0),
        node("Unsqueeze", "place last", "places"),
        node("Concat", "first places", "both", axis=-1),
        node("GatherND", "h both", "y"),
    ]
    rng = np.random.default_rng(0)
    samples = [
        sample | {"ids": rng.integers(0, 49408, (1, LENGTH)).astype(dtype)} for sample in SAMPLES
    ]
    numbers = {"w": normal(WIDTH, WIDTH), "last": np.array([-1]), "first": np.zeros((1, 1), int)}
    report = quantized(tmp_path, nodes, samples, (1, WIDTH), **numbers).report
    assert report.sqnr is not None
    assert report.sqnr > 35


def test_functions_that_have_a_part_in_common_are_a_table_each(tmp_path: Path) -> None:
    """xIELU, the activation of Apertus: a square on one side of 0, a power on the other."""
    nodes = [
        node("MatMul", "x w", "h"),
        node("Mul", "h half", "line"),
        node("Mul", "positive h", "scaled"),
        node("Mul", "scaled h", "square"),
        node("Add", "square line", "above"),
        node("Min", "h small", "below0"),
        node("Exp", "below0", "power"),
        node("Sub", "power one", "less"),
        node("Sub", "less h", "rest"),
        node("Mul", "rest positive", "curve"),
        node("Add", "curve line", "below"),
        node("Greater", "h zero", "side"),
        node("Where", "side above below", "y"),
    ]
    floats = {"half": 0.5, "positive": 0.8, "small": -1e-6, "one": 1.0, "zero": 0.0}
    numbers = {name: np.array([value], np.float32) for name, value in floats.items()}
    report = quantized(tmp_path, nodes, SAMPLES, w=normal(WIDTH, WIDTH), **numbers).report
    assert report.sqnr is not None
    assert report.sqnr > 30


COUNTED = [
    node("Not", "hidden", "seen"),
    node("Cast", "seen", "numbers", to=TensorProto.INT64),
    node("ReduceSum", "numbers last", "length", keepdims=1),
    node("Less", "places length", "inside"),
]


@pytest.mark.parametrize("before", [[], COUNTED], ids=["as it is", "of as many places"])
def test_a_mask_multiplies_tokens_and_counts_them(
    before: Sequence[NodeProto], tmp_path: Path
) -> None:
    """As sentence transformers take the mean of the tokens of a sentence, and XLM numbers them."""
    nodes = [
        *before,
        node("MatMul", "x w", "h"),
        node("Cast", "inside" if before else "hidden", "mask", to=TensorProto.FLOAT),
        node("Unsqueeze", "mask last", "column"),
        node("Mul", "h column", "kept"),
        node("ReduceSum", "kept first", "total", keepdims=0),
        node("ReduceSum", "column first", "count", keepdims=0),
        node("Div", "total count", "y"),
    ]
    places = np.arange(LENGTH)[None]
    samples = [each | {"hidden": places > number} for number, each in enumerate(SAMPLES)]
    numbers = {"w": normal(WIDTH, WIDTH), "places": places, "last": np.array([-1])}
    made = quantized(tmp_path, nodes, samples, (1, WIDTH), first=np.array([1]), **numbers)
    assert made.report.sqnr is not None
    assert made.report.sqnr > 30
