"""Quantize a float module of Relay's: TVM's CPU build runs it, the quantizer decides."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm.contrib import graph_executor

from tinyai.frontends.relay.build import build
from tinyai.frontends.relay.calibrate import COMPARED, calibrated, require_points
from tinyai.frontends.relay.floats import Floats, Model
from tinyai.frontends.relay.partition import module_of
from tinyai.frontends.relay.qdq import integers_from_qdq
from tinyai.frontends.relay.source import source_types
from tinyai.qdq.operands import Grid
from tinyai.quantizer.calibration import Calibration, places
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import Data, Sample
from tinyai.quantizer.observers import Observer, Seen
from tinyai.quantizer.params import Array, grid
from tinyai.quantizer.points import Point, Points
from tinyai.quantizer.report import LayerRow, QuantReport, Sums, output_row
from tinyai.quantizer.write import Written, with_results
from tinyai.source import TVMS_OWN, Rounding


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
) -> Quantized:
    """Quantize the float model ``mod`` by what its values are on the samples ``calibration``.

    ``mod`` may be the path of an .onnx or .tflite file. ``calibration`` is an iterable of dicts of
    arrays by the names of the inputs, an .npz file of arrays with all samples, a folder of .npy
    files or of pictures, or what ``tinyai.calibrate`` made of such. Batch norm is folded; TVM's CPU
    build runs the float model, a sample at a time. The first ``compared`` samples run by the
    integers too, for the report. ``progress`` shows a bar on standard error, where that is a
    terminal. The argument is not changed.
    Raises ``CalibrationError`` for bad samples, ``OptionError`` for a bad module or argument.
    """
    config = config or QuantConfig()
    model = Model(*module_of(mod, params))
    points = Points(model.root, config, model.fold)
    require_points(points, model)
    if not isinstance(calibration, Calibration):
        calibration = calibrated(model, points, calibration, None, compared, progress)
    seen = calibration.grids(points, model.key())
    floats = _floats(calibration, model, points)
    first = [*calibration.first.values()][:compared]
    grids = _grids(points, seen)
    written = Written(points, grids)
    module = model.written(written.result)
    layers, outputs = _compared(model, floats, points, written, grids | points.fixed, seen, first)
    report = QuantReport(
        config.observer, calibration.samples, len(first), layers, outputs, tuple(points.left)
    )
    return Quantized(module, report)


def _floats(calibration: Calibration, model: Model, points: Points) -> Floats:
    """What ran the model, if it is here and shows what is to be compared."""
    known = calibration.floats
    shown = isinstance(known, Floats) and set(places(points)) <= set(known.places)
    return known if shown else Floats.of(model, points)  # type: ignore[return-value]


def _grids(points: Points, seen: dict[int, Seen]) -> dict[int, Grid]:
    found = {}
    for number, state in seen.items():
        config = points.config.of_dtype(points.dtypes[number])
        chosen = Observer(config).range(state)
        found[number] = grid(
            chosen.low,
            chosen.high,
            config.dtype,
            symmetric=config.symmetric,
            power_of_two=config.power_of_two,
        )
    return found


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
