"""Inputs to compare on: the user's, and drawn ones."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinyai.errors import OptionError
from tinyai.files import no_file
from tinyai.ir import NARROW, Array, Graph
from tinyai.network import Network, Port
from tinyai.safe_text import safe

Sample = tuple[Array, ...]


def given(network: Network, files: Sequence[Path]) -> list[Sample]:
    """The inputs of .npz files, by the names of the network's inputs, and of .npy files, where it
    has one. An array may hold several samples, one after the other along its first dimension.

    Raises ``OptionError`` for a file, name, shape or type that does not fit.
    """
    return [sample for file in files for sample in _samples(network, file)]


def drawn(network: Network, count: int, seed: int = 0) -> Iterator[Sample]:
    """Random inputs, the same each time: integers of the whole range of their type, or within their
    limits; floats a little beyond those that the network's quantization tells apart."""
    rng = np.random.default_rng(seed)
    names = network.graph.inputs[: len(network.inputs)]
    ranges = [
        port.limits or _range(network.graph, name)
        for port, name in zip(network.inputs, names, strict=True)
    ]
    for _ in range(count):
        sample = []
        for port, (low, high) in zip(network.inputs, ranges, strict=True):
            if port.type.dtype.is_float:
                value: Array = rng.uniform(low, high, port.type.shape)
            else:
                value = rng.integers(int(low), int(high), port.type.shape, endpoint=True)
            sample.append(value.astype(port.type.dtype.numpy))
        yield tuple(sample)


def _range(graph: Graph, name: str) -> tuple[float, float]:
    """What an input may be."""
    of = graph.type(name)
    if not of.dtype.is_float:
        return of.dtype.range
    for node in graph.readers[name]:
        made = graph.tensors[node.output]
        if made.quant and made.quant.axis is None and made.type.dtype in NARROW:
            (scale,), zero = made.quant.scale, made.quant.zero_point
            low, high = (scale * (end - zero) for end in made.type.dtype.range)
            beyond = (high - low) / 20
            return low - beyond, high + beyond
    return -3.0, 3.0


def _samples(network: Network, file: Path) -> Iterator[Sample]:
    arrays = _read(network, file)
    parts = [_cut(file, port, arrays[port.name]) for port in network.inputs]
    counts = {len(each) for each in parts}
    if len(counts) > 1:
        raise _unfit(
            file, f"{', '.join(map(str, sorted(counts)))} samples", "as many of each input"
        )
    yield from zip(*parts, strict=True)


def _read(network: Network, file: Path) -> dict[str, Array]:
    names = [port.name for port in network.inputs]
    shown = ", ".join(f"{port.name}: {port.type}" for port in network.inputs)
    if file.exists() and no_file(file):
        raise _unfit(file, no_file(file), ".npz or .npy of numpy")
    try:
        with file.open("rb") as opened:
            loaded = np.load(opened, allow_pickle=False)
            found: dict[str, Any] = {"": loaded} if hasattr(loaded, "dtype") else dict(loaded)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise _unfit(file, f"{type(error).__name__}: {error}", ".npz or .npy of numpy") from None
    if len(found) == len(names) == 1 and set(found) <= {"", "arr_0"}:
        return {names[0]: next(iter(found.values()))}
    if set(found) != set(names):
        raise _unfit(file, f"arrays {', '.join(sorted(found)) or 'none'}", shown)
    return found


def _cut(file: Path, port: Port, value: Array) -> list[Array]:
    """The samples in an array."""
    shape = port.type.shape
    if value.dtype != port.type.dtype.numpy:
        raise _unfit(file, f"{port.name}: {value.dtype}", port.type.dtype)
    if value.shape == shape:
        return [value]
    inner = shape[1:] if shape[:1] == (1,) else shape
    if value.shape[1:] != inner:
        raise _unfit(
            file, f"{port.name}: shape {list(value.shape)}", f"{list(shape)}, or several of them"
        )
    return [each.reshape(shape) for each in value]


def _unfit(file: Path, found: object, allowed: object) -> OptionError:
    return OptionError(
        f"input file {safe(str(file))}",
        found=safe(str(found), 240),
        allowed=safe(str(allowed), 240),
        hint="numpy.savez(file, name=array): names, shapes and types are the model's inputs'",
    )
