"""What became of the values of a model that was quantized: frozen rows, as a table and as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from rich.text import Text

from tinyai.qdq import FloatOperator
from tinyai.qdq.operands import Grid
from tinyai.quantizer.layer_row import LayerRow
from tinyai.quantizer.params import Array
from tinyai.quantizer.plot import plot
from tinyai.report.page import Page
from tinyai.safe_text import safe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RANKED = 5  # layers that the text names
# In dB: of a layer with less the noise is most of what is left.
_LOST = 3.0
# In dB: with results as noisy as that a transformer does not do what it did.
_NOISY = 20.0
SCHEMA = "tinyai.quantization/1"


@dataclass(frozen=True)
class NoiseSums:
    """Sums over samples that compare a float value with its quantized one: squares of the values
    and of the differences, a number a sample; how many values there were, and how many lie outside
    of the grid."""

    signal: tuple[float, ...] = ()
    noise: tuple[float, ...] = ()
    count: int = 0
    outside: int = 0

    def and_sample(self, values: Array, quantized: Array, grid: Grid | None) -> NoiseSums:
        wide = values.astype(np.float64).reshape(-1)
        noise = wide - quantized.reshape(-1)
        outside = self.outside
        if grid is not None:
            limits = np.iinfo(grid.dtype)
            ends = np.array([limits.min - 0.5, limits.max + 0.5]) - grid.zero_point
            low, high = ends * grid.scale
            outside += np.count_nonzero(wide < low) + np.count_nonzero(wide > high)
        return NoiseSums(
            (*self.signal, float(wide @ wide)),
            (*self.noise, float(noise @ noise)),
            self.count + wide.size,
            outside,
        )

    @property
    def sqnr(self) -> float | None:
        """Signal to quantization noise in dB; None where there is no noise."""
        return sqnr_of(math.fsum(self.signal), math.fsum(self.noise))


def sqnr_of(signal: float, noise: float) -> float | None:
    if noise == 0:
        return None
    return 10 * math.log10(signal / noise) if signal else -math.inf


@dataclass(frozen=True)
class OutputRow:
    """A result of the model: ``agreement`` is the share of samples with the same largest value
    along the last axis, ``largest_error`` the largest difference."""

    type: str
    sqnr: float | None
    agreement: float
    largest_error: float

    def of_samples(self, count: int) -> str:
        """The row as a line of text, of so many samples."""
        return (
            f"SQNR {decibels(self.sqnr)}, the same largest value in {self.agreement:.1%} of "
            f"{count} samples, largest error {self.largest_error:.4g}"
        )


@dataclass(frozen=True)
class PrecisionChoice:
    """A layer that has 16 bits or stays float for a goal's sake: its ``dtype`` is that of its
    values."""

    name: str
    operator: str
    dtype: str
    reason: str


@dataclass(frozen=True)
class PrecisionChoices:
    """What has 16 bits or was left in float for a goal, in that order, and whether the integers
    reach it."""

    goal: str
    reached: bool
    layers: tuple[PrecisionChoice, ...]

    def __str__(self) -> str:
        said = "reached" if self.reached else "not reached"
        wide = sum(each.dtype == "int16" for each in self.layers)
        counts = [f"{_layers(wide)} at 16 bits"] if wide else []
        if wide < len(self.layers) or not wide:
            counts.append(f"{_layers(len(self.layers) - wide)} left in float")
        lines = [f"goal: {self.goal}, {said} with {' and '.join(counts)}"]
        lines += [
            f"  {safe(each.name, 60)} ({safe(each.operator, 40)}): {each.reason}"
            for each in self.layers
        ]
        return "\n".join(lines)


def _layers(count: int) -> str:
    return f"{count} layer{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class SmallDivisor:
    """The quotient ``name``, whose divisor has values from ``least`` on in steps of ``scale``."""

    name: str
    least: float
    scale: float

    def __str__(self) -> str:
        return (
            f"{safe(self.name, 60)}: its divisor is {self.least:.4g} and more, in steps of "
            f"{self.scale:.4g}"
        )


@dataclass(frozen=True)
class QuantReport:
    """``samples`` were seen to choose ranges, ``compared`` of them run by the integers that the
    rows are about: the noise on those that constants were ``fitted`` to is less than on others.
    ``left`` are operators that stay float, each with the reason; ``mixed`` says which of them a
    goal asked for. ``kept`` is what the model had in integers already. ``read_alike`` says how near
    the floats as they were read are to those of the model's own framework on the first sample (in
    dB, or "exact"), or why they were "not compared"; "" where nobody asked. ``narrow_sums`` is how
    many values of residual layers have 8 bits, and could have 16. ``in_a_row`` are the results of a
    network with state where the integers read their own state, which ``outputs`` do not; none where
    a calibration was given in place of samples. Divisors that may be 0 as integers are
    ``small_divisors``."""

    observer: str
    samples: int
    compared: int
    layers: tuple[LayerRow, ...]
    outputs: tuple[OutputRow, ...]
    left: tuple[FloatOperator, ...]
    mixed: PrecisionChoices | None = None
    kept: tuple[FloatOperator, ...] = ()
    fitted: int = 0
    read_alike: str = ""
    narrow_sums: int = 0
    in_a_row: tuple[OutputRow, ...] = ()
    small_divisors: tuple[SmallDivisor, ...] = ()

    @property
    def ranking(self) -> tuple[LayerRow, ...]:
        """The layers by the damage that each does alone, the worst first; none if nobody asked."""
        known = [row for row in self.layers if row.alone is not None]
        return tuple(sorted(known, key=lambda row: row.alone or 0.0))

    @property
    def sqnr(self) -> float | None:
        """The SQNR of the worst result; None where all are equal."""
        found = [each.sqnr for each in self.outputs if each.sqnr is not None]
        return min(found, default=None)

    def json(self) -> str:
        facts = {"schema": SCHEMA} | dataclasses.asdict(self)
        return json.dumps(_without_infinities(facts), indent=2)

    def page(self, title: str = "model", made_by: str = "") -> Page:
        """The report as a page of HTML, with the arguments of ``Page``."""
        return Page(title, made_by, quantization=json.loads(self.json()))

    def html(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as a page of HTML: one file, which needs no network, whole or not at
        all. Raises ``OptionError`` where no file can be written."""
        return self.page().write(path)

    def plot(self, where: str | os.PathLike[str] | Sequence[Axes]) -> None:
        """Draw SQNR, ranges, and damage where it is known, a line a layer: into a file (.png, .svg
        or .pdf; whole or not at all), or on axes of matplotlib's, two or three."""
        plot(self.layers, self.ranking, where)

    def table(self) -> Table:
        """A row a layer, in order of computation, and below it the results."""
        table = Table(title=f"{self.samples} samples, ranges by {self.observer}")
        table.add_column("layer", overflow="fold")
        ranking = self.ranking
        ranks = {row.name: rank for rank, row in enumerate(ranking, 1)}
        heads = ("operator", "range", "scale", "zero", "used", "saturated", "SQNR")
        for name in (*heads, *(("alone", "rank") if ranking else ())):
            table.add_column(name, justify="right" if name != "operator" else "left")
        for row in self.layers:
            table.add_row(
                Text(safe(row.name, 60)),
                Text(row.operator),
                f"{row.low:.4g} … {row.high:.4g}",
                f"{row.scale:.4g}",
                str(row.zero_point),
                f"{row.used:.0%}",
                f"{row.saturated:.2%}",
                decibels(row.sqnr),
                *((_alone(row), str(ranks.get(row.name, ""))) if ranking else ()),
            )
        table.add_section()
        for number, output in enumerate(self.outputs):
            table.add_row(f"result {number}", "", "", "", "", "", "", decibels(output.sqnr))
        return table

    def __str__(self) -> str:
        lines = [f"{len(self.layers)} quantized values; ranges by {self.observer}"]
        lines += [
            f"result {n}: {of.of_samples(self.compared)}" for n, of in enumerate(self.outputs)
        ]
        lines += [
            f"calls in a row, result {n}: {decibels(of.sqnr)}, largest error {of.largest_error:.4g}"
            for n, of in enumerate(self.in_a_row)
        ]
        if self.fitted:
            lines.append(
                f"weights and biases are fitted to {self.fitted} of these samples: "
                "others have more noise"
            )
        if self.read_alike.startswith("not"):
            lines.append(f"floats as read, beside the model's own framework: {self.read_alike}")
        lost = [row for row in self.layers if row.sqnr is not None and row.sqnr < _LOST]
        lines += [
            f"lost: {safe(row.name, 60)}: {decibels(row.sqnr)}, in steps of {row.scale:.4g}"
            for row in sorted(lost, key=lambda row: row.sqnr or 0.0)[:_RANKED]
        ]
        lines += [f"lost: {len(lost) - _RANKED} layers more"] if len(lost) > _RANKED else []
        lines += [f"may divide by 0: {each}" for each in self.small_divisors]
        if self.narrow_sums and self.sqnr is not None and self.sqnr < _NOISY:
            lines.append(
                f'to try: --residual int16, in Python residual="int16": 16 bits for '
                f"{self.narrow_sums} values of sums that norms read"
            )
        lines += [
            f"damage {rank}: {safe(row.name, 60)}: {_alone(row)} alone"
            for rank, row in enumerate(self.ranking[:_RANKED], 1)
        ]
        lines += [str(self.mixed)] if self.mixed else []
        lines += [f"left in float: {safe(str(each), 240)}" for each in self.left]
        alike = Counter((each.operator, each.reason) for each in self.kept)
        lines += [
            f"left as it is: {count} {safe(operator, 40)}: {safe(reason, 200)}"
            for (operator, reason), count in alike.items()
        ]
        return "\n".join(lines)


def decibels(value: float | None) -> str:
    return "exact" if value in (None, math.inf) else f"{value:.2f} dB"


def _alone(row: LayerRow) -> str:
    return "" if row.alone is None else decibels(row.alone)


def output_row(of: str, values: Sequence[Array], quantized: Sequence[Array]) -> OutputRow:
    """The row of one result of the model, over all samples. Where a loop ends may depend on the
    values in it: what is missing from the shorter result counts as zeros."""
    sums, same, largest = NoiseSums(), [], 0.0
    for one in zip(values, quantized, strict=True):
        shape = [*map(max, *(each.shape for each in one))]
        value, other = full = np.zeros(shape), np.zeros(shape)
        for each, to in zip(one, full, strict=True):
            to[tuple(map(slice, each.shape))] = each
        sums = sums.and_sample(value, other, None)
        largest = max(largest, float(np.abs(value.astype(np.float64) - other).max(initial=0.0)))
        if value.size:  # a state may have no elements
            rows = value.size // (value.shape[-1] if value.ndim else 1)
            first, second = (each.reshape(rows, -1) for each in (value, other))
            same += (first.argmax(axis=1) == second.argmax(axis=1)).tolist()
    return OutputRow(of, sums.sqnr, fmean(same) if same else 1.0, largest)


def _without_infinities(value: object) -> object:
    """A value for JSON, which has no infinity: infinities become strings."""
    if isinstance(value, dict):
        return {key: _without_infinities(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
