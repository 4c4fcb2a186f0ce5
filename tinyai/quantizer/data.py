"""Calibration data: samples by the names of the model's inputs, one at a time, checked.

A sample is a dict of an array for each input. What can be known before the long run is told before
it: names, shapes, dtypes, what is not finite, no samples at all. Files are read sample by sample.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from tinyai.errors import EnvironmentProblem, OptionError, TinyAIError, UsageWarning
from tinyai.pictures import is_picture, pixels
from tinyai.quantizer.params import Array
from tinyai.safe_text import safe
from tinyai.stages import display, tracked
from tinyai.tensor_spec import TensorSpec

Sample = Mapping[str, Array]
Data = Iterable[Sample] | str | os.PathLike[str]


class CalibrationError(TinyAIError, ValueError):
    """Calibration data that the model cannot be run on."""


class Samples:
    """The samples of ``data``: a list or any iterable of dicts, an .npz file, or a folder of .npy
    files and pictures (one a sample, in order of their names; for a model with one input).

    What can be read twice is checked whole when this is made, the first sample of anything else;
    the others are checked as they come. Arrays lack or have the batch in front where the shapes
    say so, and a file's arrays hold one sample after the other.
    Raises ``CalibrationError``.
    """

    def __init__(self, data: Data, inputs: Sequence[TensorSpec]) -> None:
        self.inputs = tuple(inputs)
        self.seen = 0  # samples of the last reading
        self._once: Iterator[Sample] | None = None
        self.files: tuple[Path, ...] = ()
        self._again = self._source(data)
        self.count: int | None = None
        if self._again is not None:
            self.count = sum(1 for _ in self)
            _require_some(self.count)
        else:
            assert not isinstance(data, str | os.PathLike)
            rest = iter(data)
            first = next(rest, None)
            _require_some(first is not None)
            assert first is not None
            self._once = itertools.chain([checked(0, first, self.inputs)], rest)

    def parts(self, size: int) -> Iterator[SampleSlice]:
        """All samples, some at a time: as they are, or by the names of their files."""
        held: list[Sample | Path] = []
        start = 0
        for one in self.files or self:
            held.append(one)
            if len(held) == size:
                yield SampleSlice(self.inputs, start, tuple(held))
                start, held = start + size, []
        if held:
            yield SampleSlice(self.inputs, start, tuple(held))
        self.seen = start + len(held)

    def _source(self, data: Data) -> Any:
        """A function that returns a new iterator over all samples, or None for data that can be
        read only once."""
        if isinstance(data, str | os.PathLike):
            path = Path(data)
            if path.is_dir():
                self.files = _files(path, self.inputs)
                return lambda: (_read(file, self.inputs) for file in self.files)
            if path.suffix == ".npz" and path.is_file():
                return lambda: _npz(path, self.inputs)
            raise CalibrationError(
                "calibration data",
                found=f"{str(data)!r}",
                allowed="an .npz file with an array for each input, or a folder of .npy files or "
                "pictures (.png, .jpg)",
                hint="numpy.savez(file, **{input: samples})",
            )
        if isinstance(data, Mapping) or not isinstance(data, Iterable):
            raise CalibrationError(
                "calibration data",
                found=f"a {type(data).__name__}",
                allowed="an iterable of dicts of arrays, or the path of a file or folder",
                hint="[sample] for a single one",
            )
        return (lambda: iter(data)) if isinstance(data, Sequence) else None

    def __iter__(self) -> Iterator[Sample]:
        if self._again is None:
            assert self._once is not None, "samples that come once were read before"
            source, self._once = self._once, None
        else:
            source = self._again()
        self.seen = 0
        for number, sample in enumerate(source):
            self.seen += 1
            yield checked(number, sample, self.inputs)


@dataclass(frozen=True)
class SampleSlice:
    """Samples from the number ``first`` on, of which files may hold one each."""

    inputs: tuple[TensorSpec, ...]
    first: int
    held: tuple[Sample | Path, ...]

    def __iter__(self) -> Iterator[tuple[int, Sample]]:
        for number, one in enumerate(self.held, self.first):
            sample = _read(one, self.inputs) if isinstance(one, Path) else one
            yield number, checked(number, sample, self.inputs)


def shapes_of(data: object) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a sample, by its name: of an .npz file, or of dicts that can be
    read twice. None of any other data, and of what ``Samples`` will refuse."""
    shapes: dict[str, tuple[int, ...]] = {}
    # What is damaged is told where the samples are read.
    with contextlib.suppress(ValueError, EOFError, OSError, RuntimeError, zipfile.BadZipFile):
        if isinstance(data, Sequence) and not isinstance(data, str):
            first = data[0] if data else {}
            shapes |= (
                {n: np.shape(a) for n, a in first.items()} if isinstance(first, Mapping) else {}
            )
        elif isinstance(data, str | os.PathLike) and zipfile.is_zipfile(data):
            with zipfile.ZipFile(data) as archive:
                for member in archive.namelist():
                    with archive.open(member) as file:
                        shapes[member.removesuffix(".npy")] = _header(file)[0][1:]
    return shapes


def checked(number: int, sample: Any, inputs: Sequence[TensorSpec]) -> Sample:
    """The arrays of a sample, as the model takes them."""
    where = f"calibration sample {number}"
    if not isinstance(sample, Mapping):
        raise CalibrationError(where, found=f"a {type(sample).__name__}", allowed="a dict")
    names = [each.name for each in inputs]
    if sample.keys() != set(names):
        raise CalibrationError(
            f"inputs of {where}",
            found=", ".join(sorted(map(str, sample))) or "none",
            allowed=", ".join(names),
            hint="an array for each input of the model, by its name",
        )
    return {each.name: _array(where, each, sample[each.name]) for each in inputs}


def _require_some(some: object) -> None:
    if not some:
        raise CalibrationError(
            "calibration data",
            found="no samples",
            allowed="at least one",
            hint="a hundred samples of what the model will see are a good start",
        )


def _array(where: str, of: TensorSpec, value: Any) -> Array:
    array: Array = np.asarray(value)
    if array.shape == of.shape[1:] and of.shape[:1] == (1,):
        array = array[None]
    if array.shape != of.shape:
        raise CalibrationError(
            f"shape of {of.name} in {where}", found=list(array.shape), allowed=list(of.shape)
        )
    if (array.dtype.name, of.dtype) == ("float16", "float32"):  # which loses nothing
        array = array.astype(np.float32)
    if array.dtype != of.dtype:
        raise CalibrationError(
            f"dtype of {of.name} in {where}",
            found=array.dtype,
            allowed=of.dtype,
            hint=f"array.astype({of.dtype!r}), if its values are those that the model expects",
        )
    # A mask may be infinite where a softmax alone reads it: who watches the values knows.
    if array.dtype.kind == "f" and (bad := int(np.isnan(array).sum())):
        raise CalibrationError(
            f"values of {of.name} in {where}",
            found=f"{bad} of {array.size} are NaN",
            allowed="numbers",
        )
    return array


# --- Files --------------------------------------------------------------------------------------


def _npz(path: Path, inputs: tuple[TensorSpec, ...]) -> Iterator[Sample]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            names = [each.name for each in inputs]
            if members.keys() != set(names):
                raise CalibrationError(
                    f"arrays of {path.name}",
                    found=", ".join(sorted(members)) or "none",
                    allowed=", ".join(names),
                    hint="numpy.savez(file, **{input: samples})",
                )
            arrays = [_rows(archive, members[each.name], each) for each in inputs]
            for values in zip(*arrays, strict=True):
                yield dict(zip(names, values, strict=True))
    except (zipfile.BadZipFile, EOFError, ValueError) as error:
        if isinstance(error, CalibrationError):
            raise
        raise CalibrationError(
            f"calibration file {path.name}",
            found=str(error),
            allowed="an .npz file of arrays of as many samples each",
        ) from error


def _rows(archive: zipfile.ZipFile, member: str, of: TensorSpec) -> Iterator[Array]:
    """The samples of one array in a file, read one at a time."""
    with archive.open(member) as file:
        shape, fortran, dtype = _header(file)
        if fortran or dtype.hasobject:
            raise ValueError(f"{member}: an array in Fortran's order, or of objects")
        batch = of.shape[:1] == (1,) and shape[1:] == of.shape[1:]
        if not shape or not (shape[1:] == of.shape or batch):
            raise CalibrationError(
                f"shape of {of.name} in calibration data",
                found=list(shape),
                allowed=f"[samples,{','.join(map(str, of.shape))}], or without its batch of 1",
            )
        row = shape[1:]
        size = int(np.prod(row, dtype=np.int64)) * dtype.itemsize
        for _ in range(shape[0]):
            content = file.read(size)
            if len(content) != size:
                raise ValueError(f"{member} ends too early")
            yield np.frombuffer(content, dtype).reshape(row)


def _header(file: IO[bytes]) -> Any:
    """Shape, order and dtype of the array in an .npy file."""
    formats: Any = np.lib.format
    first = formats.read_magic(file) == (1, 0)
    read = formats.read_array_header_1_0 if first else formats.read_array_header_2_0
    return read(file)


def _files(path: Path, inputs: tuple[TensorSpec, ...]) -> tuple[Path, ...]:
    """The files of a folder, one a sample, in order of their names."""
    if len(inputs) != 1:
        raise CalibrationError(
            f"calibration folder {path.name}",
            found=f"a model of {len(inputs)} inputs",
            allowed="one, for a folder has one file a sample",
            hint="an .npz file with an array for each input",
        )
    files = (file for file in path.iterdir() if file.suffix == ".npy" or is_picture(file))
    return tuple(sorted(files))


def _read(file: Path, inputs: tuple[TensorSpec, ...]) -> Sample:
    (of,) = inputs
    try:
        if is_picture(file):
            return {of.name: pixels(file, "calibration file", of.name, of.shape, of.dtype)}
        return {of.name: np.load(file, allow_pickle=False)}
    except OptionError as error:
        raise CalibrationError(
            error.what, found=error.found, allowed=error.allowed, hint=error.hint
        ) from error
    except EnvironmentProblem:
        raise
    except Exception as error:  # numpy and Pillow raise exceptions of any kind
        raise CalibrationError(
            f"calibration file {file.name}",
            found=" ".join(str(error).split())[:200] or type(error).__name__,
            allowed="an image" if is_picture(file) else "an array",
        ) from error


@contextmanager
def bar(samples: Iterable[Any], count: int | None, progress: bool) -> Iterator[Iterable[Any]]:
    """The samples, or parts of them, with a progress bar on standard error where that is a
    terminal: that of the stages, or one of its own."""
    if display() is not None:
        yield tracked(samples, count)
        return
    from rich.console import Console
    from rich.progress import track

    console = Console(file=sys.stderr)
    if not progress or not console.is_terminal:
        yield samples
        return
    yield track(samples, "calibrating", total=count, console=console)


def tell_alike(samples: Mapping[int, Sample]) -> None:
    """Warn of real inputs that are the same in all samples, or one number in the only one: ranges
    fit nothing else. ``samples`` are those that are kept, by their numbers."""
    first, others = [*samples.values()][:1], [*samples.values()][1:]
    for name, value in (pair for sample in first for pair in sample.items()):
        flat = value.reshape(-1)
        one = flat.size > 1 and bool((flat == flat[0]).all())
        same = all(np.array_equal(value, other[name]) for other in others)
        if value.dtype.kind == "f" and same and (others or one):
            told = UsageWarning(
                f"calibration samples of {safe(name)}",
                found=f"{flat[0]:.6g} everywhere" if one else f"{len(samples)} times the same",
                allowed="what the model will see, in its variety",
                hint="nothing, where the input is the same in every call",
            )
            warnings.warn(told, stacklevel=2)
