"""What float .onnx files of language models hold, quantized: every operator becomes integers, with
little noise, and equal to ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto

from tests.support.qdq_cases import node, normal
from tests.support.quantized_files import quantized

LENGTH, WIDTH, LEAST = 12, 8, np.finfo(np.float32).min
SAMPLES = [{"x": normal(1, LENGTH, WIDTH, seed=seed)} for seed in range(6)]
# Each place sees itself and what is before it.
MASK = np.triu(np.full((LENGTH, LENGTH), LEAST), 1)
WAYS: dict[str, tuple[Sequence[NodeProto], int]] = {
    "a sink": ([node("Concat", "masked sink", "whole", axis=-1)], LENGTH + 1),
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
    result = (LENGTH, LENGTH) if "rows" in way else (1, LENGTH, count)
    report = quantized(tmp_path, nodes, SAMPLES, result, **numbers).report
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
