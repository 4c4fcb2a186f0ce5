"""The committed digits network: its split, its size, and its float accuracy on TVM."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tvm import relay

import benchmarks.digits.data as digits_data
from benchmarks.digits.data import CLASSES, Split, load_split
from tests.support.oracle import oracle

FOLDER = Path(digits_data.__file__).parent
ONNX_FILE = FOLDER / "digits.onnx"


@pytest.fixture(scope="module")
def split() -> Split:
    return load_split()


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return dict(json.loads((FOLDER / "digits.json").read_text()))


# TVM's own importer reads onnx.mapping, which onnx deprecates (the reason for onnx<1.19).
@pytest.mark.filterwarnings(r"ignore:.mapping\.\w+. is now deprecated:DeprecationWarning")
def test_float_network_on_tvm_gets_as_many_held_out_images_right_as_recorded(
    split: Split, facts: dict[str, Any]
) -> None:
    images, labels = split.held_out.images, split.held_out.labels
    mod, params = relay.frontend.from_onnx(onnx.load(ONNX_FILE), shape={"image": images.shape})
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    (logits,) = oracle(mod, {"image": images})

    assert logits.shape == (len(labels), CLASSES)
    assert np.count_nonzero(logits.argmax(axis=1) == labels) == facts["held_out_correct"]
    assert facts["held_out_images"] == len(labels)
    assert facts["held_out_accuracy"] == round(facts["held_out_correct"] / len(labels), 6)
    assert facts["held_out_accuracy"] >= 0.98


def test_recorded_facts_belong_to_the_committed_file(facts: dict[str, Any]) -> None:
    content = ONNX_FILE.read_bytes()
    assert hashlib.sha256(content).hexdigest() == facts["onnx_sha256"]
    assert len(content) == facts["onnx_bytes"] < 300_000


def test_network_has_static_shapes_and_the_layers_it_is_meant_to_test() -> None:
    model = onnx.load(ONNX_FILE)
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {"image": [1, 1, 8, 8], "logits": [1, CLASSES]}
    operators = [node.op_type for node in model.graph.node]
    assert operators.count("Conv") == 9
    assert operators.count("BatchNormalization") == 9
    assert operators.count("Add") == 2
    assert operators.count("GlobalAveragePool") == 1
    assert operators.count("Gemm") == 1


def test_split_is_the_same_every_time(split: Split) -> None:
    again = load_split()
    for part, part_again in ((split.train, again.train), (split.held_out, again.held_out)):
        np.testing.assert_array_equal(part.images, part_again.images)
        np.testing.assert_array_equal(part.labels, part_again.labels)
        np.testing.assert_array_equal(part.indices, part_again.indices)
    # On every machine, too: this is the split that the committed weights were trained on.
    digest = hashlib.sha256(split.held_out.indices.astype("<i8").tobytes()).hexdigest()
    assert digest == "107c1697cc05007bee3f2d11b2c56e46ad1a9539847592a686a4c0dc7a1f52be"


def test_train_and_held_out_are_disjoint_and_together_complete(split: Split) -> None:
    indices = np.concatenate([split.train.indices, split.held_out.indices])
    np.testing.assert_array_equal(np.sort(indices), np.arange(1797))
    seen = {image.tobytes() for image in split.train.images}
    assert not any(image.tobytes() in seen for image in split.held_out.images)


def test_a_third_of_each_class_is_held_out(split: Split) -> None:
    train = np.bincount(split.train.labels, minlength=CLASSES)
    held_out = np.bincount(split.held_out.labels, minlength=CLASSES)
    np.testing.assert_allclose(held_out / (train + held_out), 1 / 3, atol=0.004)


def test_images_are_float32_nchw_from_0_to_1(split: Split) -> None:
    for part in (split.train, split.held_out):
        assert part.images.dtype == np.float32
        assert part.images.shape == (len(part), 1, 8, 8)
        assert (part.images.min(), part.images.max()) == (0.0, 1.0)
        assert part.labels.dtype == np.int64
        assert part.labels.shape == part.indices.shape == (len(part),)
