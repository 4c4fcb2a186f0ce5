"""Calibration data: three sources give the same samples, and what is wrong is told before a run."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tinyai.quantizer.data import CalibrationError, Samples, tell_alike
from tinyai.quantizer.params import Array
from tinyai.tensor_spec import TensorSpec

IMAGE = TensorSpec("image", (1, 3, 4), "float32")
MASK = TensorSpec("mask", (1, 2), "int8")


def images(count: int = 3) -> Array:
    return np.random.default_rng(0).normal(size=(count, 1, 3, 4)).astype(np.float32)


def read(data: Any, *inputs: TensorSpec) -> list[Array]:
    return [sample["image"] for sample in Samples(data, inputs or (IMAGE,))]


def as_file(folder: Path, values: Array) -> Path:
    np.savez(folder / "data.npz", image=values)
    return folder / "data.npz"


def compressed(folder: Path, values: Array) -> Path:
    np.savez_compressed(folder / "small.npz", image=values)
    return folder / "small.npz"


def as_folder(folder: Path, values: Array) -> Path:
    for number, value in enumerate(values):
        np.save(folder / f"{number:03}.npy", value)
    return folder


SOURCES: dict[str, Callable[[Path, Array], Any]] = {
    "list": lambda _, values: [{"image": value} for value in values],
    "generator": lambda _, values: ({"image": value} for value in values),
    "npz": as_file,
    "compressed npz": compressed,
    "folder": as_folder,
    "path as a string": lambda folder, values: str(as_file(folder, values)),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("batch", [True, False])
def test_every_source_gives_the_same_samples(name: str, batch: bool, tmp_path: Path) -> None:
    values = images()
    data = SOURCES[name](tmp_path, values if batch else values[:, 0])
    np.testing.assert_array_equal(read(data), values)


def test_an_input_is_found_by_its_name(tmp_path: Path) -> None:
    masks = np.arange(6, dtype=np.int8).reshape(3, 2)
    np.savez(tmp_path / "two.npz", mask=masks, image=images())
    samples = [*Samples(tmp_path / "two.npz", (IMAGE, MASK))]
    np.testing.assert_array_equal([each["mask"][0] for each in samples], masks)


def with_nan() -> Array:
    values = images(2)
    values[1, 0, 0, 0] = np.nan
    return values


BAD: dict[str, tuple[Any, str, str, str]] = {
    "no samples": ([], "calibration data", "no samples", "at least one"),
    "an empty generator": (iter(()), "calibration data", "no samples", "at least one"),
    "another name": ([{"img": images(1)[0]}], "sample 0", "img", "image"),
    "a name too many": ([{"image": images(1)[0], "x": 1}], "sample 0", "image, x", "image"),
    "another shape": (
        [{"image": np.zeros((2, 3, 4), "float32")}],
        "shape",
        "[2, 3, 4]",
        "[1, 3, 4]",
    ),
    "another dtype": ([{"image": np.zeros((1, 3, 4))}], "dtype", "float64", "float32"),
    "NaN": ([{"image": v} for v in with_nan()], "sample 1", "1 of 12 are NaN", "numbers"),
    "a bare array": (images(), "calibration sample 0", "a ndarray", "a dict"),
    "a dict": ({"image": images()}, "calibration data", "a dict", "an iterable of dicts"),
    "a number": (7, "calibration data", "a int", "an iterable of dicts"),
    "no such file": ("nowhere.npz", "calibration data", "nowhere.npz", "an .npz file"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_data_is_told_when_it_is_handed_over(name: str) -> None:
    data, *parts = BAD[name]
    with pytest.raises(CalibrationError) as caught:
        Samples(data, (IMAGE,))
    for part in parts:
        assert part in str(caught.value)


def test_a_generators_later_sample_is_told_when_it_comes() -> None:
    samples = Samples(({"image": value} for value in with_nan()), (IMAGE,))
    with pytest.raises(CalibrationError, match="sample 1"):
        list(samples)


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        ({"img": images()}, "found:   img"),
        ({"image": images().astype("float64")}, "float64"),
        ({"image": images()[:, :, :2]}, "[3, 1, 2, 4]"),
        ({"image": images()[:0]}, "no samples"),
        ({"image": with_nan()}, "NaN"),
        ({"image": np.array([None])}, "objects"),
    ],
)
def test_a_bad_file_is_told_before_the_run(
    arrays: dict[str, Array], part: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(CalibrationError) as caught:
        Samples(tmp_path / "data.npz", (IMAGE,))
    assert part in str(caught.value)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    path = as_file(tmp_path, images())
    content = path.read_bytes()
    for damaged in (b"", content[:100], content.replace(b"NUMPY", b"NUMMY")):
        path.write_bytes(damaged)
        with pytest.raises(CalibrationError, match=r"data\.npz"):
            Samples(path, (IMAGE,))


def test_a_folder_is_for_one_input_and_holds_arrays(tmp_path: Path) -> None:
    as_folder(tmp_path, images())
    with pytest.raises(CalibrationError, match="2 inputs"):
        Samples(tmp_path, (IMAGE, MASK))
    (tmp_path / "001.npy").write_bytes(b"no array")
    with pytest.raises(CalibrationError, match=r"001\.npy"):
        Samples(tmp_path, (IMAGE,))


def test_a_file_of_many_samples_is_read_one_by_one(tmp_path: Path) -> None:
    large = TensorSpec("image", (1, 64, 64, 3), "float32")
    np.savez(tmp_path / "data.npz", image=np.zeros((300, 64, 64, 3), "float32"))
    tracemalloc.start()
    samples = Samples(tmp_path / "data.npz", (large,))
    assert sum(1 for _ in samples) == samples.seen == samples.count == 300
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * 64 * 64 * 3 * 4


def drawn(folder: Path, count: int = 3, size: tuple[int, int] = (5, 4)) -> list[Array]:
    """Pictures in a folder, every other one a .jpg, and their pixels."""
    rng, pixels = np.random.default_rng(0), []
    for number in range(count):
        file = folder / f"{number}.{('png', 'jpg', 'JPEG')[number % 3]}"
        Image.fromarray(rng.integers(0, 256, (*size, 3)).astype(np.uint8)).save(file)
        with Image.open(file) as image:
            pixels.append(np.asarray(image))
    return pixels


def test_pictures_are_samples_in_the_inputs_layout(tmp_path: Path) -> None:
    pixels = drawn(tmp_path)
    (tmp_path / "notes.txt").write_text("not a picture")
    wide, deep = (
        TensorSpec("image", (1, 5, 4, 3), "float32"),
        TensorSpec("image", (1, 3, 5, 4), "float32"),
    )
    for found, wanted in zip(read(tmp_path, wide), pixels, strict=True):
        np.testing.assert_array_equal(found[0], wanted.astype(np.float32) / np.float32(255))
    for found, other in zip(read(tmp_path, deep), read(tmp_path, wide), strict=True):
        np.testing.assert_array_equal(found, other.transpose(0, 3, 1, 2))
    (bytes_, *_) = read(tmp_path, TensorSpec("image", (1, 5, 4, 3), "uint8"))
    np.testing.assert_array_equal(bytes_[0], pixels[0])


def test_a_picture_that_does_not_fit_is_told(tmp_path: Path) -> None:
    drawn(tmp_path)
    for of, part in (
        (TensorSpec("image", (1, 6, 4, 3), "float32"), "5 x 4 pixels"),
        (IMAGE, "image"),
    ):
        with pytest.raises(CalibrationError, match=part):
            Samples(tmp_path, (of,))
    (tmp_path / "1.jpg").write_bytes(b"no picture")
    with pytest.raises(CalibrationError, match=r"1\.jpg"):
        Samples(tmp_path, (TensorSpec("image", (1, 5, 4, 3), "float32"),))


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([np.zeros(4)] * 3, "0 everywhere"),
        ([np.ones(4)], "1 everywhere"),
        ([np.arange(4)] * 3, "3 times the same"),
        ([np.arange(4)], ""),
        ([np.zeros(4), np.ones(4)], ""),
        ([], ""),
    ],
)
def test_samples_that_are_all_alike_are_told(samples: Sequence[Array], said: str) -> None:
    given = {n: {"x": each.astype(np.float32)} for n, each in enumerate(samples)}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        tell_alike(given)
    assert [said in str(each.message) for each in found] == [True] * bool(said)


def test_parts_of_a_folder_are_names_and_of_anything_else_arrays(tmp_path: Path) -> None:
    values = images(5)
    as_folder(tmp_path, values)
    for data, kind in ((tmp_path, Path), (iter([{"image": v} for v in values]), dict)):
        samples = Samples(data, (IMAGE,))
        parts = [*samples.parts(2)]
        assert [(part.first, len(part.held)) for part in parts] == [(0, 2), (2, 2), (4, 1)]
        assert all(isinstance(each, kind) for part in parts for each in part.held)
        assert samples.seen == 5
        found = [sample["image"] for part in parts for _, sample in part]
        np.testing.assert_array_equal(found, values)
