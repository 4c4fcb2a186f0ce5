"""Quantize a float module of Relay's: TVM's CPU build runs it, the quantizer decides."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
from tvm.contrib import graph_executor

from tinyai.frontends.relay.alone import Alone
from tinyai.frontends.relay.build import build
from tinyai.frontends.relay.calibrate import COMPARED, calibrated, require_points
from tinyai.frontends.relay.floats import Floats, Model
from tinyai.frontends.relay.partition import module_of
from tinyai.frontends.relay.qdq import integers_from_qdq
from tinyai.frontends.relay.source import source_types
from tinyai.qdq.operands import Grid
from tinyai.quantizer.calibration import Calibration, places
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import CalibrationError, Data, Sample
from tinyai.quantizer.layer_row import LayerRow
from tinyai.quantizer.mixed import Mixed, Search
from tinyai.quantizer.observers import Observer, Seen
from tinyai.quantizer.params import Array, grid
from tinyai.quantizer.points import Point, Points
from tinyai.quantizer.reconstruction import SAMPLES, read, reconstructed, reconstructs
from tinyai.quantizer.report import Choices, QuantReport, Sums, output_row
from tinyai.quantizer.write import Changes, Written, with_results
from tinyai.source import TVMS_OWN, Expr, Rounding
from tinyai.stages import stage


@dataclass(frozen=True, eq=False)
class Quantized:
    """``module`` has quantize and dequantize around its operators and its weights as constants;
    ``params`` is empty, for who hands on module and parameters together. ``report`` says what was
    lost where."""

    module: tvm.IRModule
    report: QuantReport
    params: dict[str, Any] = field(default_factory=dict)

    def integers(self, rounding: Rounding = TVMS_OWN) -> tvm.IRModule:
        """The module with integer operators, as ``partition_for_tinyai`` makes it for itself."""
        return integers_from_qdq(self.module, rounding)


def quantize(
    mod: tvm.IRModule | str | os.PathLike[str],
    params: dict[str, Any] | None = None,
    calibration: Data | Calibration = (),
    config: QuantConfig | None = None,
    *,
    compared: int = COMPARED,
    progress: bool = False,
    rank: bool = False,
    mixed: Mixed | None = None,
) -> Quantized:
    """Quantize the float model ``mod`` by what its values are on the samples ``calibration``.

    ``mod`` may be the path of an .onnx or .tflite file. ``calibration`` is an iterable of dicts of
    arrays by the names of the inputs, an .npz file of arrays with all samples, a folder of .npy
    files or of pictures, or what ``tinyai.calibrate`` made of such. Batch norm is folded; TVM's CPU
    build runs the float model, a sample at a time. The first ``compared`` samples run by the
    integers too, for the report. ``progress`` shows a bar on standard error, where that is a
    terminal. The argument is not changed.

    ``rank`` quantizes each layer alone too, and the report says what damage it does to the results.
    ``mixed`` is a goal for the results on the samples that are compared: layers get 16 bits, or are
    left in float where that gains much more, the worst first, until the integers reach it. The
    report says which, why, and whether they do.
    Raises ``CalibrationError`` for bad samples, ``OptionError`` for a bad module or argument.
    """
    config = config or QuantConfig()
    model = Model(*module_of(mod, params), equalize=config.equalize)
    points = Points(model.root, config, model.fold)
    require_points(points, model)
    if not isinstance(calibration, Calibration):
        every = mixed is not None
        calibration = calibrated(model, points, calibration, None, compared, progress, every)
    floats = _floats(calibration, model, points)
    first = [*calibration.first.values()][:compared]
    ranges, alone = _Ranges(model, calibration), dict[Expr, float]()
    search, changes = None, _changes(floats, points, ranges)
    if rank or mixed is not None:
        trial = Alone(model, points, ranges.of(points), changes.steps, first)
        ranking = trial.ranking()
        alone = {point.expr: sqnr for point, sqnr in ranking}
        search = Search(
            points,
            ranking,
            lambda floats, wide: Points(model.root, config, model.fold, floats, wide),
            lambda some: trial.rows(trial.switched.on(some)),
        )
    made = _made(model, floats, points, ranges, changes, first, alone)
    while mixed is not None and search is not None and not mixed.reached(made.report.outputs):
        if not search.go_on():
            break
        while not mixed.reached(search.rows) and search.go_on():
            pass
        changes = _changes(floats, search.points, ranges)
        made = _made(model, floats, search.points, ranges, changes, first, alone)
    if mixed is None or search is None:
        return made
    reached = mixed.reached(made.report.outputs)
    choices = Choices(str(mixed), reached, tuple(search.steps))
    return replace(made, report=replace(made.report, mixed=choices))


def _made(
    model: Model,
    floats: Floats,
    points: Points,
    ranges: _Ranges,
    changes: Changes,
    first: Sequence[Sample],
    alone: Mapping[Expr, float],
) -> Quantized:
    """The quantized model; its report compares its integers on the samples ``first``."""
    seen, grids = ranges.seen(points), ranges.of(points)
    written = Written(points, grids, changes)
    module = model.written(written.result)
    layers, outputs = _compared(model, floats, points, written, grids | points.fixed, seen, first)
    layers = tuple(
        replace(row, alone=alone.get(point.expr))
        for row, point in zip(layers, points.points, strict=True)
    )
    observer, left = points.config.observer, tuple(points.left)
    samples = ranges.calibration.samples
    there = tuple(points.kept())
    report = QuantReport(observer, samples, len(first), layers, outputs, left, kept=there)
    return Quantized(module, report)


def _floats(calibration: Calibration, model: Model, points: Points) -> Floats:
    """What ran the model, if it is here and shows what is to be compared."""
    known = calibration.floats
    shown = isinstance(known, Floats) and set(places(points)) <= set(known.places)
    return known if shown else Floats.of(model, points)  # type: ignore[return-value]


class _Ranges:
    """The ranges that a calibration's states lead to; found once for each state."""

    def __init__(self, model: Model, calibration: Calibration) -> None:
        self.calibration, self._key = calibration, model.key()
        self._found: dict[tuple[int, str], tuple[Seen, Grid]] = {}

    def seen(self, points: Points) -> dict[int, Seen]:
        return self.calibration.grids(points, self._key)

    def of(self, points: Points) -> dict[int, Grid]:
        found = {}
        for number, state in self.seen(points).items():
            key = id(state), points.dtypes[number]
            if key not in self._found:
                self._found[key] = state, _grid(points.config.of_dtype(key[1]), state)
            found[number] = self._found[key][1]
        return found


def _grid(config: QuantConfig, state: Seen) -> Grid:
    chosen = Observer(config).range(state)
    return grid(
        chosen.low,
        chosen.high,
        config.dtype,
        symmetric=config.symmetric,
        power_of_two=config.power_of_two,
    )


def _changes(floats: Floats, points: Points, ranges: _Ranges) -> Changes:
    """Of weights and biases, by the floats of the samples that were kept."""
    if not reconstructs(points.config):
        return Changes()
    samples = [*ranges.calibration.first.values()][:SAMPLES]
    if not samples:
        raise CalibrationError(
            "samples that were kept",
            found="none",
            allowed=f"at least one, {SAMPLES} are used, for rounding and correct_bias",
            hint=f"tinyai.calibrate(..., compared={SAMPLES})",
        )
    order, wanted = places(points), read(points)
    at = {order[number]: number for number in wanted}

    def values(sample: Sample) -> dict[int, Array]:
        floats.run(sample)
        return {at[place]: value for place, value in floats.values() if place in at}

    with stage("reconstruction of layers"):
        return reconstructed(points, ranges.of(points) | points.fixed, map(values, samples))


def _compared(
    model: Model,
    floats: Floats,
    points: Points,
    written: Written,
    grids: dict[int, Grid],
    seen: dict[int, Seen],
    first: Sequence[Sample],
) -> tuple[tuple[LayerRow, ...], tuple[Any, ...]]:
    """The report's rows: floats beside the integers that tinyai's own code computes."""
    library = build(model.written(with_results(written.result, written.values)))
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    at = {place: number for number, place in enumerate(places(points))}
    sums = [Sums() for _ in points.points]
    results: tuple[list[list[Array]], list[list[Array]]] = ([], [])
    for sample in first:
        executor.run(**sample)
        integers = [executor.get_output(n).numpy() for n in range(model.outputs())]
        results[0].append(floats.run(sample))
        results[1].append([np.asarray(each) for each in integers])
        for place, value in floats.values():
            if place in at:
                number = at[place]
                other = executor.get_output(model.outputs() + number).numpy()
                grid = grids[points.points[number].grid]
                sums[number] = sums[number].and_sample(value, np.asarray(other), grid)
    rows = tuple(
        _row(point, of, grids[point.grid], seen.get(point.grid))
        for point, of in zip(points.points, sums, strict=True)
    )
    types = [*source_types(model.main.ret_type)]
    outputs = tuple(
        output_row(str(of), *([each[i] for each in kept] for kept in results))
        for i, of in enumerate(types)
    )
    return rows, outputs


def _row(point: Point, sums: Sums, at: Grid, seen: Seen | None) -> LayerRow:
    limits = np.iinfo(at.dtype)
    low, high = ((limit - at.zero_point) * at.scale for limit in (limits.min, limits.max))
    least, largest = (seen.whole.low, seen.whole.high) if seen else (low, high)
    inside = max(0.0, min(high, largest) - max(low, least))
    return LayerRow(
        name=point.name,
        operator=point.operator,
        type=str(point.expr.type),
        dtype=at.dtype,
        scale=at.scale,
        zero_point=at.zero_point,
        low=least,
        high=largest,
        used=inside / (high - low),
        saturated=sums.outside / max(sums.count, 1),
        sqnr=sums.sqnr,
    )
