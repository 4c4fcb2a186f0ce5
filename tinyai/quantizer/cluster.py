"""Calibration as a map and a reduction on a cluster of dask's.

The client cuts the samples into parts, hands out some of them at a time, and merges what comes
back, so that neither it nor the scheduler ever has all samples. A part and the float model stay
with the scheduler until their result is here: what a worker that dies had is done again by another.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyai.errors import EnvironmentProblem, OptionError
from tinyai.quantizer.calibration import Calibration, Watch, merged
from tinyai.quantizer.data import Sample, Samples, SampleSlice, bar
from tinyai.quantizer.float_runner import FloatModel, FloatRunner, Recipe
from tinyai.quantizer.observers import Seen
from tinyai.quantizer.points import Points
from tinyai.stages import stage
from tinyai.tensor_spec import TensorSpec

_PART = 16  # samples at most, and files always
_PART_BYTES = 2**22  # of samples, unless one is larger
_WAITING = 2  # parts for each thread of a worker


def mapped(
    client: Any,
    model: FloatModel,
    points: Points,
    samples: Samples,
    compared: int,
    progress: bool,
) -> Calibration:
    """The calibration of a model by the workers of ``client``, which keeps ``compared`` samples."""
    as_completed = _require_client(client)
    recipe = model.recipe(points.root, [point.expr for point in points.points])
    work = _Work(recipe, tuple(points.places()), Watch.of(points, every=True))
    first: dict[int, Sample] = {}
    seen: dict[int, Seen] = {}
    # Each worker gets it once; where all that had it are gone, the scheduler has it still.
    shared = _submitted(client, _same, work)
    waiting = as_completed(loop=client.loop)

    def taken() -> None:
        nonlocal seen
        future = next(waiting)
        seen = merged(seen, future.result())

    with bar(
        samples.parts(_PART if samples.files else part_size(model.inputs)), None, progress
    ) as parts:
        for part in parts:
            if part.first < compared:
                few = part.held[: compared - part.first]
                first |= dict(SampleSlice(part.inputs, part.first, few))
            if waiting.count() >= _WAITING * max(1, sum(client.nthreads().values())):
                taken()
            waiting.add(_submitted(client, _observed, shared, part))
    while waiting.count():
        taken()
    return Calibration(model.key(points.root), seen, samples.seen, first)


def _require_client(client: Any) -> Any:
    """dask's ``as_completed``."""
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise EnvironmentProblem(
            "the package dask.distributed, which runs clusters, is missing",
            found=str(error),
            allowed="an installed one",
            hint='pip install "tinyai[cluster]"',
        ) from None
    if not isinstance(client, Client) or client.asynchronous:
        found = "one that is asynchronous" if isinstance(client, Client) else repr(client)[:200]
        raise OptionError(
            "client",
            found=found,
            allowed="a dask.distributed.Client",
            hint="dask.distributed.Client(address of the scheduler), or of a LocalCluster",
        )
    return as_completed


def part_size(inputs: tuple[TensorSpec, ...]) -> int:
    """How many samples a part has."""
    size = sum(np.dtype(each.dtype).itemsize * int(np.prod(each.shape)) for each in inputs)
    return max(1, min(_PART, _PART_BYTES // max(size, 1)))


def _submitted(client: Any, work: Any, *args: Any) -> Any:
    import dask

    # What the scheduler gets is large on purpose.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        return client.submit(work, *args, pure=False)


# --- On a worker ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """What a worker needs to know of the model, once for all parts."""

    recipe: Recipe
    places: tuple[int, ...]
    watch: Watch


def _same(work: _Work) -> _Work:
    return work


def _observed(work: _Work, part: SampleSlice) -> dict[int, Seen]:
    """The states after the samples of a part."""
    with _building:  # the first thread of a process builds
        runner, alone = _built(work.recipe)
    seen: dict[int, Seen] = {}
    for number, sample in part:
        with alone:
            runner.run(sample)
            values = zip(work.places, runner.values(), strict=True)
            seen = merged(seen, work.watch.seen(number, values))
    return seen


_building = threading.Lock()


@functools.lru_cache(maxsize=1)
def _built(recipe: Recipe) -> tuple[FloatRunner, threading.Lock]:
    """The model of a process, and the lock of the thread that runs it."""
    with stage("build of the float model"):
        return recipe.runner(), threading.Lock()
