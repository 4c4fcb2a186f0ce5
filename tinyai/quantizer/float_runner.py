"""What a front end brings to the quantizer: a float model, and what runs it a sample at a time.

The quantizer knows a model as expressions of the vocabulary. It names the values that it wants to
see by their expressions, and gets them in that order: how a framework finds them (as further
results of the model, by the names of its tensors) is the front end's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tinyai.qdq.operands import Fold
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import Sample
from tinyai.quantizer.params import Array
from tinyai.quantizer.points import Points
from tinyai.source import Expr, SourceType
from tinyai.stages import stage
from tinyai.tensor_spec import TensorSpec

# What runs a model as it is, from a sample in the order of its inputs to its results. Raises
# ``EnvironmentProblem`` where it does not run here.
Framework = Callable[[Sample], list[Array]]


class FloatRunner(Protocol):
    """A compiled model whose inputs and results are floats. It has the values of its last run only,
    so that memory does not grow with the samples."""

    def set(self, switch: str, value: Array) -> None:
        """Sets an input that no sample has, for all runs after this."""

    def run(self, sample: Sample) -> list[Array]:
        """The model's own results on a sample."""

    def values(self) -> Iterator[Array]:
        """The values that were asked for, of the last run, one after the other."""


class Recipe(Protocol):
    """Plain data, to be pickled and hashed, of which another process makes the same runner."""

    def __hash__(self) -> int: ...

    def runner(self) -> FloatRunner:
        """Raises ``EnvironmentProblem`` where the same floats cannot be computed here."""


class FloatModel(Protocol):
    """A front end's float model: its inputs, the types of its results, its expression ``root``, and
    what computes constants; ``image_channels`` are the dimensions that may be channels of images,
    None where no operator is folded into another.
    A ``root`` that is handed over is this one, rewritten."""

    inputs: tuple[TensorSpec, ...]
    results: tuple[SourceType, ...]
    root: Expr
    fold: Fold | None
    image_channels: tuple[int, ...] | None

    def points(self, root: Expr, config: QuantConfig, **chosen: Any) -> Points:
        """The points of ``root``; ``chosen`` are further arguments of ``Points``."""

    def key(self, root: Expr) -> str:
        """Which model this is: its operators and weights."""

    def original(self, sample: Sample) -> list[Array] | None:
        """The results on a sample of what this model was read from, computed by its framework; None
        where nobody asks it. Raises ``EnvironmentProblem`` where that does not run it."""

    def runner(
        self, root: Expr, values: Sequence[Expr] = (), switches: Mapping[Expr, str] | None = None
    ) -> FloatRunner:
        """The float model, compiled; ``switches`` are the names of inputs beside the model's."""

    def recipe(self, root: Expr, values: Sequence[Expr]) -> Recipe:
        """What makes ``runner(root, values)`` in another process. Raises ``OptionError`` where
        none does."""

    def integers(self, root: Expr, values: Sequence[Expr]) -> FloatRunner:
        """A quantized model, compiled by tinyai."""

    def attempt(self, root: Expr) -> FloatRunner:
        """A quantized model that is one of several: its integers, or its pairs as floats, which
        round as these do but for the last bit; whichever is made sooner."""


@dataclass(frozen=True, eq=False)
class Observed:
    """A float model that runs, and the place in the model's order of each of its values; those
    without one are left out. A value with ``factors``, by its place, is divided by them."""

    runner: FloatRunner = field(repr=False)
    places: tuple[int | None, ...]
    factors: Mapping[int, Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model: FloatModel, points: Points) -> Observed:
        """The model with the values of all points."""
        with stage("build of the float model"):
            runner = model.runner(points.root, [point.expr for point in points.points])
        return cls(runner, tuple(points.places()))

    def of_these(self, points: Points) -> Observed:
        """The same without values that are no points any more."""
        known = {*points.places()}
        return replace(self, places=tuple(at if at in known else None for at in self.places))

    def values(self) -> Iterator[tuple[int, Array]]:
        """The places and values of the last run, in the model's order."""
        for place, value in zip(self.places, self.runner.values(), strict=True):
            if place is not None:
                yield place, value / self.factors[place] if place in self.factors else value
