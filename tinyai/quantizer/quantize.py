"""Quantizes a float model by what its values are on samples, and reports what was lost where."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import MappingProxyType

import numpy as np

from tinyai.errors import EnvironmentProblem, UsageWarning
from tinyai.qdq.operands import NARROW, Grid
from tinyai.quantizer.activation_equalization import equalized
from tinyai.quantizer.adaptive_rounding import MOST_TERMS, MOST_TERMS_OF_TRIALS
from tinyai.quantizer.calibrate import COMPARED, calibrated, points_of
from tinyai.quantizer.calibration import Calibration, Watch, merged
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import CalibrationError, Data, Sample, tell_alike
from tinyai.quantizer.divisors import small_divisors
from tinyai.quantizer.float_runner import FloatModel, Observed
from tinyai.quantizer.layer_row import LayerRow
from tinyai.quantizer.mixed import Mixed, Search, decibels_of
from tinyai.quantizer.observers import Function, Observer, Seen, ValueRange, itself
from tinyai.quantizer.params import Array, configured_grid
from tinyai.quantizer.points import Point, Points
from tinyai.quantizer.ranking import Ranking
from tinyai.quantizer.reconstruction import SAMPLES, looks_at_samples, reconstructed, reconstructs
from tinyai.quantizer.report import (
    NoiseSums,
    OutputRow,
    PrecisionChoices,
    QuantReport,
    decibels,
    output_row,
)
from tinyai.quantizer.separate_results import separated
from tinyai.quantizer.softmax_inputs import limit_of, with_masks_in_reach
from tinyai.quantizer.value_functions import ValueFunction, learned, read_by_functions
from tinyai.quantizer.write import Changes, Written
from tinyai.source import Expr
from tinyai.stages import stage

# In dB, of a result without noise.
_EXACT = 200.0
# So many dB may be lost by equalization on a few samples, by chance: on most networks it gains.
_LOSS = 0.5
_SAME = ValueRange(1.0, 1.0)
NO_GROWTH: Mapping[int, ValueRange] = MappingProxyType({})
NO_FUNCTIONS: Mapping[tuple[int, int], ValueFunction] = MappingProxyType({})
# In dB: so alike are the results of one model in two orders of its sums, or with half its bits.
_READ_ALIKE = 40.0
# Samples by which functions are known.
_TELLING = 8


@dataclass(frozen=True, eq=False)
class Result:
    """The quantized model, with quantize and dequantize around its operators, and how its values
    were ``written``."""

    root: Expr
    report: QuantReport
    written: Written


def quantized(
    model: FloatModel,
    data: Data | Calibration,
    config: QuantConfig,
    *,
    compared: int = COMPARED,
    progress: bool = False,
    rank: bool = False,
    mixed: Mixed | None = None,
) -> Result:
    """Quantizes a front end's float model. The arguments are those of ``tinyai.quantize``."""
    points = points_of(model, config)
    if isinstance(data, Calibration):
        calibration = data
    else:
        every = mixed is not None
        calibration = calibrated(
            model, points, data, compared=compared, progress=progress, every=every
        )
    floats = calibration.floats
    if floats is None or not {*points.places()} <= {*floats.places}:
        floats = Observed.of(model, points)
    samples = [*calibration.first.items()][: SAMPLES + compared]
    tell_alike(calibration.first)
    _tell_without_residuals(points)
    read_alike = _read_alike(model, floats, samples[0][1]) if samples else ""
    # Constants are fitted to the first, so that where there are enough others are shown.
    kept, shown = dict(samples[:SAMPLES]), dict(samples[max(0, len(samples) - compared) :])
    ranges = _Ranges(model.key(points.root), calibration)
    ranges.seen(points)  # a calibration of another model is refused before its samples run
    points = separated(
        points,
        lambda left: model.points(points.root, config, floats=left, sources=points.sources),
        ranges.grids,
    )
    floats = floats.of_these(points)
    plain = _Quantizing(model, floats, ranges, points, shown, kept, [*kept], read_alike)
    plain = plain.with_functions()
    quantizing = _with_less_noise(plain)
    points, changes = quantizing.points, quantizing.own_changes
    if not rank and mixed is None:
        return quantizing.result(points, changes)
    ranking = Ranking(model, points, quantizing.ranges.grids(points), changes, [*shown.values()])
    layers = ranking.layers()
    quantizing = replace(quantizing, alone={point.expr: sqnr for point, sqnr in layers})
    result = quantizing.result(points, changes)
    if mixed is None:
        return result
    search = Search(
        points,
        layers,
        lambda floats, wide: model.points(
            points.root,
            config,
            floats={**points.chosen_floats, **floats},
            wide=wide,
            sources=points.sources,
        ),
        ranking.of,
        mixed.floats,
    )
    while not mixed.reached(result.report.outputs) and search.go_on():
        while not mixed.reached(search.rows) and search.go_on():
            pass
        result = quantizing.result(search.points, quantizing.changes(search.points))
    while not mixed.reached(result.report.outputs) and search.widen(mixed.reached):
        result = quantizing.result(search.points, quantizing.changes(search.points))
    reached = mixed.reached(result.report.outputs)
    choices = PrecisionChoices(str(mixed), reached, tuple(search.steps))
    return replace(result, report=replace(result.report, mixed=choices))


def _tell_without_residuals(points: Points) -> None:
    """Warn where 16 bits were asked for sums that the model does not have."""
    if points.config.residual == "int16" and not points.residuals():
        told = UsageWarning(
            'residual="int16"',
            found="no sum of two values that norms alone read",
            allowed="transformers, whose LayerNormalization or the like is one operator",
            hint="QuantConfig.int16_layers for others",
        )
        warnings.warn(told, stacklevel=3)


def _read_alike(model: FloatModel, floats: Observed, sample: Sample) -> str:
    """How near the results of what was read are to those of the model's own framework; warns of
    more than floats that are rounded in another order: all noise is told beside what was read."""
    try:
        original = model.original(sample)
    except EnvironmentProblem as error:
        return f"not compared: {error.what}: {error.found}"
    if original is None:
        return ""
    read = floats.runner.run(sample)
    shapes = [[each.shape for each in results] for results in (original, read)]
    if shapes[0] != shapes[1]:
        _warn_of_misread(f"results of the shapes {shapes[1]}, where", f"has {shapes[0]}")
        return f"of the shapes {shapes[1]}, not {shapes[0]}"
    worst: float | None = None
    for number, (wanted, found) in enumerate(zip(original, read, strict=True)):
        if wanted.dtype.kind != "f":
            continue  # an index may be another where two values are nearly the same
        finite = np.isfinite(wanted)
        wanted, found = (each[finite].astype(np.float64) for each in (wanted, found))
        noise = NoiseSums().and_sample(wanted, found, None).sqnr
        if noise is not None and not noise >= _READ_ALIKE:
            share = f"{noise:.1f} dB beside that of"
            _warn_of_misread(f"result {number} on the first sample is {share}", "")
        if noise is not None:
            worst = noise if worst is None else min(worst, noise)
    return decibels(worst)


def _warn_of_misread(found: str, original: str) -> None:
    told = UsageWarning(
        "the float model as it was read",
        found=f"{found} the model's own framework {original}".strip(),
        allowed="the same floats, but for their last bits",
        hint="the report's noise is beside what was read: compare the quantized model with your "
        "own, and tell tinyai's authors, unless the model draws random numbers",
    )
    warnings.warn(told, stacklevel=5)


def _with_less_noise(plain: _Quantizing) -> _Quantizing:
    """The model with its activations equalized, or as it is where the results have more noise for
    that: on every fourth of the samples that were kept by what the others give; where these are
    few, on all of them by what all give, too."""
    samples = [*plain.kept]
    fitted = [each for n, each in enumerate(samples) if n % 4] or samples
    one = replace(plain, fitted=fitted, most_terms=MOST_TERMS_OF_TRIALS)
    other = one.equalized()
    if other is None or other.loss(one, samples[::4]) > _LOSS:
        return plain
    new = plain.equalized()
    if new is None or (len(samples) < SAMPLES and new.loss(plain, samples) > 0):
        return plain
    return new


class _Ranges:
    """The grids that a calibration's states lead to; found once for each state. ``functions`` read
    some values alone, by the places of these and of their results. The ranges of some values, by
    place, grow to so many times their ends, for samples that their states lack."""

    def __init__(
        self,
        model: str,
        calibration: Calibration,
        growth: Mapping[int, ValueRange] = NO_GROWTH,
        functions: Mapping[tuple[int, int], ValueFunction] = NO_FUNCTIONS,
    ) -> None:
        self.calibration, self._model, self._growth = calibration, model, growth
        self._functions = functions
        self._found: dict[tuple[int, str, Function, bool], tuple[Seen, Grid]] = {}

    def with_functions(self, functions: Mapping[tuple[int, int], ValueFunction]) -> _Ranges:
        return _Ranges(self._model, self.calibration, self._growth, functions)

    def seen(self, points: Points) -> dict[int, Seen]:
        return self.calibration.grids(points, self._model)

    def grids(self, points: Points) -> dict[int, Grid]:
        found = {}
        growth, functions = self._growth_of(points), self._functions_of(points)
        read_by_softmax = {p.grid for p in points.points if points.softmax_axis(p.expr) is not None}
        for number, state in self.seen(points).items():
            if number in points.shares:
                found[number] = points.shares[number].grid(state.whole.high)
                continue
            dtype, function = points.dtypes[number], functions.get(number, itself)
            key = id(state), dtype, function, number in read_by_softmax
            if key not in self._found:
                config = points.config.of_dtype(dtype)
                chosen, by = Observer(config).range(state, function), growth.get(number, _SAME)
                # What has no share must not get one: nothing is cut off below.
                low = state.whole.low if number in read_by_softmax else chosen.low
                ends = low * by.low, chosen.high * by.high
                self._found[key] = state, configured_grid(*ends, config)
            found[number] = self._found[key][1]
        largest = {number: state.whole.high for number, state in self.seen(points).items()}
        return with_masks_in_reach(points, found, largest)

    def _functions_of(self, points: Points) -> dict[int, ValueFunction]:
        """The function that alone reads a grid's values, where there is one."""
        places = points.places()
        return {
            points.points[value].grid: known
            for value, result in read_by_functions(points).items()
            if (known := self._functions.get((places[value], places[result]))) is not None
        }

    def _growth_of(self, points: Points) -> dict[int, ValueRange]:
        """The largest growth of each grid's values."""
        found: dict[int, ValueRange] = {}
        for point, place in zip(points.points, points.places(), strict=True):
            by, most = self._growth.get(place, _SAME), found.get(point.grid, _SAME)
            found[point.grid] = ValueRange(max(by.low, most.low), max(by.high, most.high))
        return found


@dataclass(frozen=True, eq=False)
class _Quantizing:
    """A float model with its ranges, the samples to compare by (``shown``) and those to choose
    constants by (``kept``), by number, and the numbers of those that constants are ``fitted`` to:
    weights of sums of at most ``most_terms``. ``read_alike`` is told in the report; ``alone`` is
    the damage that each value's layer does by itself, where it is known."""

    model: FloatModel
    floats: Observed
    ranges: _Ranges
    points: Points
    shown: Mapping[int, Sample]
    kept: Mapping[int, Sample]
    fitted: Sequence[int]
    read_alike: str
    most_terms: int = MOST_TERMS
    alone: Mapping[Expr, float] = field(default_factory=dict)

    def _values(self, points: Points, samples: Iterable[int]) -> Iterator[dict[int, Array]]:
        """The values of the points on each of the samples that were kept, by the point's number."""
        numbers = {place: number for number, place in enumerate(points.places())}
        for sample in samples:
            self.floats.runner.run(self.kept[sample])
            yield {numbers[place]: v for place, v in self.floats.values() if place in numbers}

    def with_functions(self) -> _Quantizing:
        """The same with ranges by what functions make of the values that they alone read."""
        if self.points.config.observer != "mse":
            return self
        samples = [*self.kept][:_TELLING]
        functions = learned(self.points, self._values(self.points, samples))
        return replace(self, ranges=self.ranges.with_functions(functions))

    def equalized(self) -> _Quantizing | None:
        """The same with ranges of channels made more alike, whose values are seen anew on the
        samples that were kept; None where nothing becomes another."""
        points, config, calibration = self.points, self.points.config, self.ranges.calibration
        if not (config.equalize_activations and config.per_channel and config.dtype in NARROW):
            return None
        with stage("equalization of activations"):
            found = equalized(points, self._values(points, self.fitted))
            if found is None:
                return None
            moved = {source: found.new[e] for source, e in points.sources.items() if e in found.new}
            left = {found.new[expr]: why for expr, why in points.chosen_floats.items()}
            new = self.model.points(found.root, config, floats=left, sources=moved)
            places = dict(zip(points.places(), new.places(), strict=True))
            factors = {new.places()[number]: by for number, by in found.factors.items()}
            of_runner = tuple(None if p is None else places.get(p) for p in self.floats.places)
            floats = Observed(self.floats.runner, of_runner, factors)
            again = self._seen_by_kept(floats, new, {*factors})
            growth = self._growth({old: at for old, at in places.items() if at in again})
        seen = {places[at]: each for at, each in calibration.seen.items() if at in places}
        ranges = _Ranges(calibration.model, replace(calibration, seen=seen | again), growth)
        return replace(self, floats=floats, ranges=ranges, points=new).with_functions()

    def _seen_by_kept(self, floats: Observed, points: Points, places: set[int]) -> dict[int, Seen]:
        """The states of the values at places by the samples that were kept."""
        watch, found = Watch(points, places), dict[int, Seen]()
        for number, sample in self.kept.items():
            floats.runner.run(sample)
            found = merged(found, watch.seen(number, floats.values()))
        return found

    def _growth(self, places: Mapping[int, int]) -> dict[int, ValueRange]:
        """How much farther each end of a value's range is by all samples than by those that were
        kept; ``places`` are its own, and those under which it is told."""
        calibration, observer = self.ranges.calibration, Observer(self.points.config)
        if calibration.samples <= len(self.kept):
            return {}
        observed = {old for old in places if old in calibration.seen}
        by_kept = self._seen_by_kept(self.floats, self.points, observed)
        return {
            places[old]: observer.range(calibration.seen[old]).growth_of(observer.range(state))
            for old, state in by_kept.items()
        }

    def loss(self, other: _Quantizing, samples: Sequence[int]) -> float:
        """How many dB less the results have than another's on samples that were kept."""
        with stage("noise with and without equalization"):
            return other.decibels(samples) - self.decibels(samples)

    def decibels(self, samples: Iterable[int]) -> float:
        """The mean SQNR of each result on each of the samples that were kept."""
        written = Written(self.points, self.ranges.grids(self.points), self.own_changes)
        attempt = self.model.attempt(written.result)
        found = []
        for number in samples:
            sample = self.kept[number]
            ends = zip(self.floats.runner.run(sample), attempt.run(sample), strict=True)
            found += [output_row("", [value], [other]) for value, other in ends]
        return fmean(min(decibels_of(row), _EXACT) for row in found)

    @functools.cached_property
    def own_changes(self) -> Changes:
        """What becomes of its own points' constants."""
        return self.changes(self.points)

    def changes(self, points: Points) -> Changes:
        """What becomes of weights and biases by the floats of the samples to fit to."""
        if not reconstructs(points.config):
            return Changes()
        if not self.fitted:
            raise CalibrationError(
                "samples that were kept",
                found="none",
                allowed=f"at least one, {SAMPLES} are used, for rounding and correct_bias",
                hint=f"tinyai.calibrate(..., compared={SAMPLES})",
            )
        with stage("reconstruction of layers"):
            grids = self.ranges.grids(points) | points.fixed
            values = self._values(points, self.fitted)
            return reconstructed(points, grids, values, self.most_terms)

    def result(self, points: Points, changes: Changes) -> Result:
        """The quantized model, and the report, which compares its integers with the floats."""
        seen, grids = self.ranges.seen(points), self.ranges.grids(points)
        written = Written(points, grids, changes)
        grids |= points.fixed
        sums, outputs = self._compared(points, written, grids)
        report = QuantReport(
            points.config.observer,
            self.ranges.calibration.samples,
            len(self.shown),
            tuple(
                self._row(point, each, grids[point.grid], seen.get(point.grid))
                for point, each in zip(points.points, sums, strict=True)
            ),
            outputs,
            tuple(points.left),
            kept=tuple(points.kept()),
            fitted=len({*self.shown} & {*self.fitted}) if looks_at_samples(points.config) else 0,
            read_alike=self.read_alike,
            small_divisors=tuple(small_divisors(points, seen, grids)),
            narrow_sums=sum(points.dtypes[p.grid] in NARROW for p in points.residuals()),
        )
        return Result(written.result, report, written)

    def _compared(
        self, points: Points, written: Written, grids: Mapping[int, Grid]
    ) -> tuple[list[NoiseSums], tuple[OutputRow, ...]]:
        """The sums of each point, and the rows of the results: floats beside the integers that
        tinyai's own code computes."""
        integers, places = self.model.integers(written.result, written.values), {*points.places()}
        sums = [NoiseSums() for _ in points.points]
        limits = [limit_of(points, each.expr, grids[each.grid]) for each in points.points]
        floats_of_samples, integers_of_samples = [], []
        for sample in self.shown.values():
            integers_of_samples.append(integers.run(sample))
            floats_of_samples.append(self.floats.runner.run(sample))
            # Both are in the model's order.
            floats = (value for place, value in self.floats.values() if place in places)
            pairs = zip(points.points, floats, integers.values(), strict=True)
            for number, (point, value, other) in enumerate(pairs):
                limit, at = limits[number], grids[point.grid]
                sums[number] = sums[number].and_sample(limit(value), limit(other), at)
        outputs = (
            output_row(
                str(of),
                [each[number] for each in floats_of_samples],
                [each[number] for each in integers_of_samples],
            )
            for number, of in enumerate(self.model.results)
        )
        return sums, tuple(outputs)

    def _row(self, point: Point, sums: NoiseSums, grid: Grid, seen: Seen | None) -> LayerRow:
        limits = np.iinfo(grid.dtype)
        low, high = ((limit - grid.zero_point) * grid.scale for limit in (limits.min, limits.max))
        least, largest = (seen.whole.low, seen.whole.high) if seen else (low, high)
        inside = max(0.0, min(high, largest) - max(low, least))
        return LayerRow(
            name=point.name,
            operator=point.operator,
            type=str(point.expr.type),
            dtype=grid.dtype,
            scale=grid.scale,
            zero_point=grid.zero_point,
            low=least,
            high=largest,
            used=inside / (high - low),
            saturated=sums.outside / max(sums.count, 1),
            sqnr=sums.sqnr,
            alone=self.alone.get(point.expr),
        )
