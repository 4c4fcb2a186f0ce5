"""Quantize a float module of Relay's: TVM's CPU build runs it, the quantizer decides."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay.build_module import bind_params_by_name

from tinyai.doctor import cpu_description, instruction_sets
from tinyai.errors import OptionError
from tinyai.frontends.relay.build import build
from tinyai.frontends.relay.partition import module_of
from tinyai.frontends.relay.qdq import folding, integers_from_qdq, is_plain
from tinyai.frontends.relay.source import Source, source_types
from tinyai.frontends.relay.writer import Writer
from tinyai.qdq.operands import Grid
from tinyai.quantizer import QuantConfig
from tinyai.quantizer.data import CalibrationError, Data, Input, Sample, Samples
from tinyai.quantizer.folding import Folding
from tinyai.quantizer.observers import Observer, Seen
from tinyai.quantizer.params import Array, grid
from tinyai.quantizer.points import Point, Points
from tinyai.quantizer.report import LayerRow, QuantReport, Sums, output_row
from tinyai.quantizer.write import Written, with_results
from tinyai.source import TVMS_OWN, Expr, Rounding

COMPARED = 8


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
    calibration: Data = (),
    config: QuantConfig | None = None,
    *,
    compared: int = COMPARED,
    progress: bool = False,
) -> Quantized:
    """Quantize the float model ``mod`` by what its values are on the samples ``calibration``.

    ``mod`` may be the path of an .onnx or .tflite file. ``calibration`` is an iterable of dicts of
    arrays by the names of the inputs, an .npz file of arrays with all samples, or a folder of .npy
    files. Batch norm is folded; TVM's CPU build runs the float model, a sample at a time. The first
    ``compared`` samples run by the integers too, for the report. ``progress`` shows a bar on
    standard error, where that is a terminal. The argument is not changed.
    Raises ``CalibrationError`` for bad samples, ``OptionError`` for a bad module or argument.
    """
    config = config or QuantConfig()
    model = Model(*module_of(mod, params))
    points = Points(model.root, config, model.fold)
    _require_points(points, model)
    samples = Samples(calibration, model.inputs)
    # Every value that is quantized, after the results.
    floats = _Run(model.written(with_results(model.root, [p.expr for p in points.points])))
    first: list[Sample] = []
    seen = _observed(floats, points, samples, first, compared, progress)
    grids = _grids(points, seen)
    written = Written(points, grids)
    module = model.written(written.result)
    layers, outputs = _compared(model, floats, points, written, grids | points.fixed, seen, first)
    report = QuantReport(
        config.observer, samples.seen, len(first), layers, outputs, tuple(points.left)
    )
    return Quantized(module, report)


class Model:
    """A float module in neutral form, with batch norm folded."""

    def __init__(self, mod: tvm.IRModule, params: dict[str, Any] | None) -> None:
        mod = tvm.IRModule({**mod.functions}, mod.type_definitions, mod.attrs)
        if params:
            bound = {name: tvm.nd.array(_numpy(value)) for name, value in params.items()}
            mod["main"] = bind_params_by_name(mod["main"], bound)
        mod = relay.transform.InferType()(mod)
        mod = relay.transform.SimplifyInference()(mod)
        self.main: relay.Function = relay.transform.InferType()(mod)["main"]
        if not is_plain(self.main):
            raise OptionError(
                "module to quantize",
                found="let, if, regions or inner functions in main",
                allowed="a plain graph of operators",
                hint="quantize before anything is partitioned",
            )
        self.inputs = tuple(map(_input, self.main.params))
        self._source = Source()
        self.fold = folding(self._source)
        self.root = Folding(self._source(self.main.body), self.fold).result

    def written(self, root: Expr) -> tvm.IRModule:
        body = Writer(self._source)(root)
        main = relay.Function(self.main.params, body, None, [], self.main.attrs, self.main.span)
        return relay.transform.InferType()(tvm.IRModule.from_expr(main))

    def outputs(self) -> int:
        return len([*source_types(self.main.ret_type)])


def _numpy(value: Any) -> Array:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _input(param: relay.Var) -> Input:
    (of,) = source_types(param.checked_type)
    shape = tuple(dim for dim in of.shape if dim is not None)
    if len(shape) != len(of.shape):
        raise OptionError(
            f"input {param.name_hint}",
            found=of,
            allowed="a fixed shape",
            hint="import the model with shapes (the importers' shape=, --input-shapes)",
        )
    return Input(param.name_hint, shape, of.dtype)


def _require_points(points: Points, model: Model) -> None:
    if not points.points:
        raise OptionError(
            "model to quantize",
            found=f"no float operator with integers, of inputs {'; '.join(map(str, model.inputs))}",
            allowed="a float model, some of whose operators are quantized",
            hint="a model that is quantized already goes to tinyai.build as it is; QuantConfig's "
            "operators and float_... leave others in float",
        )


# --- Runs ---------------------------------------------------------------------------------------


class _Run:
    """A module that TVM's CPU build runs."""

    def __init__(self, mod: tvm.IRModule) -> None:
        with tvm.transform.PassContext(opt_level=2):
            built = relay.build(mod, target=_target())
        self._executor = graph_executor.GraphModule(built["default"](tvm.cpu()))

    def __call__(self, sample: Sample) -> Iterator[Array]:
        return _results(self._executor, sample)

    def of_points(self, sample: Sample, points: Points) -> Iterator[tuple[Point, Array]]:
        """The points' values, which come after the model's results."""
        self._executor.run(**sample)
        first = self._executor.get_num_outputs() - len(points.points)
        for place, point in enumerate(points.points, first):
            yield point, np.asarray(self._executor.get_output(place).numpy())


def _results(executor: Any, sample: Sample) -> Iterator[Array]:
    executor.run(**sample)
    for number in range(executor.get_num_outputs()):
        yield np.asarray(executor.get_output(number).numpy())


def _target() -> str:
    """TVM's own CPU code; as LLVM 10 knows this CPU, if it has what nearly all have."""
    return "llvm -mcpu=core-avx2" if "avx2" in instruction_sets(cpu_description()) else "llvm"


def _observed(
    floats: _Run,
    points: Points,
    samples: Samples,
    first: list[Sample],
    compared: int,
    progress: bool,
) -> dict[int, Seen]:
    """What each grid's values are, by the grid's number."""
    observer, seen = Observer(points.config), dict[int, Seen]()
    with _bar(samples, samples.count, progress) as shown:
        for number, sample in enumerate(shown):
            if number < compared:
                first.append(sample)
            for point, values in floats.of_points(sample, points):
                if not np.isfinite(values).all():
                    raise CalibrationError(
                        f"float values of layer {point.name!r} at calibration sample {number}",
                        found="NaN or infinite",
                        allowed="finite numbers",
                        hint="the model on this sample, before it is quantized",
                    )
                if not point.observed:
                    continue
                state = observer.see(number, values)
                seen[point.grid] = seen[point.grid].merge(state) if point.grid in seen else state
    return seen


@contextmanager
def _bar(
    samples: Iterable[Sample], count: int | None, progress: bool
) -> Iterator[Iterable[Sample]]:
    from rich.console import Console
    from rich.progress import track

    console = Console(file=sys.stderr)
    if not progress or not console.is_terminal:
        yield samples
        return
    yield track(samples, "calibrating", total=count, console=console)


def _grids(points: Points, seen: dict[int, Seen]) -> dict[int, Grid]:
    config, observer = points.config, Observer(points.config)
    found = {}
    for number, state in seen.items():
        chosen = observer.range(state)
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
    floats: _Run,
    points: Points,
    written: Written,
    grids: dict[int, Grid],
    seen: dict[int, Seen],
    first: Sequence[Sample],
) -> tuple[tuple[LayerRow, ...], tuple[Any, ...]]:
    """The report's rows: floats beside the integers that tinyai's own code computes."""
    library = build(model.written(with_results(written.result, written.values)))
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    sums = [Sums() for _ in points.points]
    results: tuple[list[list[Array]], list[list[Array]]] = ([], [])
    for sample in first:
        pairs = zip(floats(sample), _results(executor, sample), strict=True)
        for kept in results:
            kept.append([])
        for number, (value, other) in enumerate(pairs):
            place = number - model.outputs()
            if place < 0:
                results[0][-1].append(value)
                results[1][-1].append(other)
            else:
                at = grids[points.points[place].grid]
                sums[place] = sums[place].and_sample(value, other, at)
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
