"""Programs whose results code is compared with, each behind the same names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import islice
from typing import Protocol, TypeVar

from tinyai.errors import EnvironmentProblem
from tinyai.ir import Array

Sample = tuple[Array, ...]
T = TypeVar("T")
# Samples that are in memory at once, with their results.
BATCH = 8


class Opponent(Protocol):
    """A model in another program. Samples are arrays in the order of the model's inputs.

    ``results`` are the model's outputs for each sample, one call after the other from the model's
    initial state. ``tensors`` are values on the way for one,
    by names of the program's; ``tensor_of`` is the name of the one that the source model's operator
    of that name makes, None where the program shows none.
    """

    name: str

    def results(self, samples: Sequence[Sample]) -> list[list[Array]]: ...

    def tensors(self, sample: Sample) -> Mapping[str, Array]: ...

    def tensor_of(self, source: str) -> str | None: ...


def need(module: str, package: str, program: str, extra: str = "check") -> str:
    """The program with its version. Raises ``EnvironmentProblem`` where it is not installed, which
    names the ``extra`` of tinyai that brings it."""
    try:
        found = find_spec(module) is not None
    except Exception:  # what is broken raises exceptions of any kind
        found = False
    if not found:
        raise EnvironmentProblem(
            f"{program} is missing, which tinyai's code is compared with",
            found=f"no module {module}",
            allowed=f"the package {package}",
            hint=f'pip install "tinyai[{extra}]"',
        )
    try:
        return f"{program} {version(package)}"
    except PackageNotFoundError:  # brought along by something else
        return program


def batches(samples: Iterator[T], size: int = BATCH) -> Iterator[list[T]]:
    while batch := list(islice(samples, size)):
        yield batch
