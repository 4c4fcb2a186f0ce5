"""``tinyai quantize``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tinyai.cli.shared import (
    command,
    console,
    file_options,
    html_option,
    is_quiet,
    json_option,
    next_steps,
    note,
    relay_for,
)
from tinyai.errors import BoundaryError, OptionError
from tinyai.files import check_place, written_whole
from tinyai.model_file import AS_IT_IS, IMPORTED, RELAY_TEXT, FileOptions, check_model
from tinyai.stages import OWN_IMPORTS, stage

if TYPE_CHECKING:
    from tinyai.frontends.quantize import QuantizedFile, QuantizeKeywords
    from tinyai.frontends.relay.quantize import Quantized
    from tinyai.frontends.source_model import SourceModel
    from tinyai.quantizer.config import QuantConfig
    from tinyai.quantizer.data import Sample
    from tinyai.quantizer.mixed import Mixed
    from tinyai.quantizer.report import QuantReport

_COMPARED = "Samples that run by the integers too, for the report: those behind the first 32."
F = TypeVar("F", bound=Callable[..., Any])

_HELP = {
    "dtype": "int8, uint8 or int16: of activations.",
    "symmetric": "Zero points in the middle.",
    "observer": "minmax, average, percentile, mse or entropy: what chooses ranges.",
    "momentum": "Of observer average: what stays at a sample.",
    "percentile": "Of observer percentile: what stays within, in per cent.",
    "per_channel": "A scale for each channel of weights.",
    "reduce_range": "Weights of 7 bits: two products fit into 16, where some programs saturate.",
    "power_of_two": "Scales that are powers of two.",
    "residual": "own or common: scales of a sum's operands and result; int16: sums before norms.",
    "shared_averages": "An average has its input's scale.",
    "separate_results": "Parts of a result keep scales that are far apart.",
    "operators": "Quantize this operator, and others that are named so, alone.",
    "float_operators": "Leave an operator in float, by tinyai's name.",
    "float_layers": "Leave a layer in float, by the model's name.",
    "float_first": "Leave the first layer with weights in float.",
    "rounding": "nearest or adaptive: weights, each after what was rounded before it.",
    "correct_bias": "Mean errors of layers on samples go into their biases.",
    "equalize": "Make ranges of channels between layers alike first; not through relu6.",
    "equalize_activations": "Make ranges of channels of activations alike where that helps.",
    "float_last": "Leave the last layer with weights in float.",
    "int16_layers": "Give a layer's operands and result 16 bits, by the model's name.",
}


# Beside --rounding, which is of integers, this one is of weights.
_FLAGS = {"rounding": "round-weights"}


@dataclasses.dataclass(frozen=True)
class Quantizing:
    """What options ask of the quantizer."""

    config: QuantConfig
    mixed: Mixed | None
    compared: int
    rank: bool = False

    @property
    def asked(self) -> QuantizeKeywords:
        """The arguments of ``tinyai.quantize`` and ``tinyai.quantize_file`` by name."""
        asked: QuantizeKeywords = {
            "rank": self.rank,
            "mixed": self.mixed,
            "compared": self.compared,
        }
        return {**asked, "progress": True}


def quantizer_options(function: F) -> F:
    """A flag for each field of ``QuantConfig``, and those of a goal; the function gets them as
    ``quantizing``."""
    from tinyai.quantizer.config import QuantConfig

    fields = dataclasses.fields(QuantConfig)

    @functools.wraps(function)
    def run(
        *args: Any,
        mixed_sqnr: float | None,
        mixed_agreement: float | None,
        compared: int,
        **kwargs: Any,
    ) -> Any:
        config = QuantConfig(**{each.name: kwargs.pop(f"config_{each.name}") for each in fields})
        mixed = None
        if mixed_sqnr is not None or mixed_agreement is not None:
            from tinyai.quantizer.mixed import Mixed

            mixed = Mixed(mixed_sqnr, mixed_agreement)
        return function(*args, quantizing=Quantizing(config, mixed, compared), **kwargs)

    decorated: Any = run
    for each in reversed(fields):
        word, default = _FLAGS.get(each.name, each.name.replace("_", "-")), each.default
        many, settings = isinstance(default, tuple), {"show_default": default != ()}
        flag = f"--{word}/--no-{word}" if isinstance(default, bool) else f"--{word}"
        dest = f"config_{each.name}"
        decorated = click.option(
            flag, dest, default=default, multiple=many, help=_HELP[each.name], **settings
        )(decorated)
    for option in reversed(_GOAL):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


_GOAL = (
    click.option(
        "--mixed-sqnr",
        type=float,
        help="Give the worst layers 16 bits, or float, until results have so many dB.",
    ),
    click.option(
        "--mixed-agreement",
        type=float,
        help="... until results have the same largest value in that share of samples: 0 to 1.",
    ),
    click.option(
        "--compared", type=click.IntRange(min=1), default=8, show_default=True, help=_COMPARED
    ),
)


@command(
    "quantize",
    "tinyai quantize model.onnx --calibrate samples.npz --observer percentile",
    "tinyai quantize model.onnx --calibrate pictures --rank --plot report.png --html report.html",
    "tinyai quantize model.onnx --calibrate pictures -o model_int8.onnx --mixed-sqnr 30",
    "tinyai quantize model.onnx --calibrate samples.npz -o model.relay",
    short_help="Quantize a float model by samples of its input.",
)
@click.argument("model", type=click.Path())
@click.option(
    "--calibrate",
    required=True,
    type=click.Path(),
    help="Samples: .npz with an array for each input; a folder of .npy, .png, .jpg, one a sample.",
)
@click.option("--output", "-o", type=click.Path(path_type=Path))
@click.option("--rank", is_flag=True, help="Quantize each layer alone too: its damage, in dB.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw: .png, .svg or .pdf.")
@quantizer_options
@file_options
@json_option
@html_option
def quantize(
    model: str,
    calibrate: str,
    output: Path | None,
    rank: bool,
    plot: Path | None,
    quantizing: Quantizing,
    reading: FileOptions,
    as_json: bool,
    html: Path | None,
) -> None:
    """Quantize the float MODEL (.onnx, .tflite, Relay's text) by the values on samples.

    Printed is a row a layer: its range, scale, and ratio of signal to noise. OUTPUT may be

    \b
    NAME.onnx   an .onnx MODEL with pairs put in, as ONNX Runtime's quantizer writes
                them; printed is how many of its values differ from tinyai's
    NAME.relay  Relay's text, with the weights and the layers' names

    Relay's text, as MODEL or OUTPUT, needs a TVM with Relay; ONNX Runtime runs other files.
    """
    if output is not None:
        allowed = (".onnx", ".relay") if check_model(model) == ".onnx" else (".relay",)
        if output.suffix not in allowed:
            found, names = str(output), " or ".join(allowed)
            raise OptionError("output", found=found, allowed=f"a name that ends with {names}")
        check_place(output)
    if html is not None:
        check_place(html)
    if plot is not None:
        from tinyai.quantizer.plot import require_place

        require_place(plot)
    quantizing = dataclasses.replace(quantizing, rank=rank)
    differences, is_whole = "", True
    if check_model(model) in RELAY_TEXT or (output and output.suffix == ".relay"):
        report = relay_quantized(model, calibrate, output, quantizing, reading).report
    else:
        quantized = file_quantized(model, calibrate, quantizing, reading)
        report = quantized.report
        if output is not None:
            with stage("write"):
                quantized.save(output)
            differences, is_whole = _differences(output, calibrate, quantized, reading)
    if plot is not None:
        report.plot(plot)
    if html is not None:
        report.page(Path(model).name, "tinyai quantize").write(html)
    if as_json:
        click.echo(report.json())
    else:
        console().print(report.table())
        click.echo(str(report))
    if differences:
        click.echo(differences, err=as_json)
    if output is not None and not as_json:
        in_tvms = not report.left and any(row.dtype == "int16" for row in report.layers)
        compiled: tuple[str | Path, ...] = ("compile", output, "-o", output.with_suffix(".so"))
        compiled += ("--rounding", "upward") if in_tvms else ()
        for pair in reading.state.items():
            compiled += ("--state", "=".join(pair))
        next_steps(("tinyai", *(compiled if is_whole or in_tvms else ("explain", output))))


def _differences(
    file: Path, calibrate: str, quantized: QuantizedFile, reading: FileOptions
) -> tuple[str, bool]:
    """How a quantized .onnx file in ONNX Runtime differs from tinyai's code, on the samples of the
    report; where not all of it becomes code (False), from the float model."""
    import numpy as np

    from tinyai.checking.check import check
    from tinyai.frontends.calls_in_a_row import calls_in_a_row
    from tinyai.quantizer.reconstruction import SAMPLES

    count = quantized.report.compared
    calls = calls_in_a_row(quantized.floats, calibrate, reading.state)
    samples = [*itertools.islice(calls, SAMPLES + count)][-count:]
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        given = []
        for number, sample in enumerate(samples):
            given.append(Path(folder) / f"{number}.npz")
            np.savez(given[-1], **sample)
        try:
            return str(check(file, samples=0, inputs=given)), True
        except BoundaryError as error:
            rows = _in_onnx_runtime(file, quantized, samples)
            told = str(error).partition("\n\n")[0]  # without the report
            return f"not compared with tinyai's code: {told}\n{rows}", False


def _in_onnx_runtime(file: Path, quantized: QuantizedFile, samples: Sequence[Sample]) -> str:
    """How far the results of a quantized .onnx file are from those of the float model."""
    from tinyai.checking.onnxruntime import OnnxRuntimeOracle
    from tinyai.quantizer.report import output_row

    floats = quantized.floats.runner(quantized.floats.root)
    names = [each.name for each in quantized.floats.inputs]
    wanted = [floats.run(sample) for sample in samples]
    oracle = OnnxRuntimeOracle(file, names)
    found = oracle.results([tuple(sample[name] for name in names) for sample in samples])
    columns = zip(zip(*wanted, strict=True), zip(*found, strict=True), strict=True)
    rows = [
        f"result {n} in ONNX Runtime: {output_row('', *both).of_samples(len(samples))}"
        for n, both in enumerate(columns)
    ]
    return "\n".join([*rows, *oracle.saturation()])


_STAGE = "ranges, pairs and the report"


def file_quantized(
    model: str, calibrate: str, quantizing: Quantizing, reading: FileOptions, *, whole: bool = False
) -> QuantizedFile:
    """A model file that is quantized without TVM; ``whole`` for a compiler without a host."""
    with stage(OWN_IMPORTS):
        from tinyai.frontends.quantize import quantize_file
    with stage(_STAGE):
        return quantize_file(
            model,
            calibrate,
            quantizing.config,
            input_shapes=reading.input_shapes,
            signature=reading.signature,
            state=reading.state,
            whole=whole,
            **quantizing.asked,
        )


def relay_quantized(
    model: str,
    calibrate: str,
    output: Path | None,
    quantizing: Quantizing,
    reading: FileOptions,
) -> Quantized:
    """A model file that is quantized by TVM, and written as Relay's text, whole or not at all."""
    check_model(model)
    with relay_for("quantize"):
        from tinyai.frontends.relay.load import load_model
        from tinyai.frontends.relay.quantize import quantize
        from tinyai.frontends.relay.text import text_of
    mod, params = load_model(model, reading.shapes_for_tvm())
    with stage(_STAGE):
        quantized = quantize(mod, params, calibrate, quantizing.config, **quantizing.asked)
    if output is not None:
        with stage("write"), written_whole(output) as beside:
            beside.write_text(text_of(quantized.module))
    return quantized


@contextlib.contextmanager
def quantized_first(
    model: str,
    calibrate: str | None,
    quantizing: Quantizing,
    reading: FileOptions,
    *,
    for_relay: bool,
) -> Iterator[tuple[str | SourceModel, FileOptions]]:
    """The model to compile, with its options: the file ``model``, or what is quantized of it by the
    samples ``calibrate``, as Relay's text where TVM is to build it."""
    from tinyai.quantizer.config import QuantConfig

    if calibrate is None:
        if quantizing != Quantizing(QuantConfig(), None, quantizing.compared):
            raise OptionError(
                "options of the quantizer", found="some", allowed="beside --calibrate SAMPLES"
            )
        yield model, reading
        return
    if quantizing.mixed is not None and not for_relay:
        mixed = dataclasses.replace(quantizing.mixed, floats=False)
        quantizing = dataclasses.replace(quantizing, mixed=mixed)
    if not for_relay and check_model(model) in IMPORTED:
        quantized = file_quantized(model, calibrate, quantizing, reading, whole=True)
        _tell(quantized.report)
        yield quantized.model, AS_IT_IS
        return
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        made = Path(folder) / f"{Path(model).stem}.relay"
        _tell(relay_quantized(model, calibrate, made, quantizing, reading).report)
        yield str(made), AS_IT_IS


def _tell(report: QuantReport) -> None:
    """What was lost, on standard error; whether a goal was reached is told those who asked for
    quiet, too."""
    note(str(report), aside=True)
    if is_quiet() and report.mixed is not None:
        click.echo(str(report.mixed), err=True)
