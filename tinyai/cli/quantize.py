"""``tinyai quantize``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tinyai.cli.shared import command, console, json_option, relay_for, shapes_option
from tinyai.errors import OptionError
from tinyai.files import check_place, written_whole
from tinyai.model_file import check_model
from tinyai.stages import stage

if TYPE_CHECKING:
    from tinyai.frontends.relay.quantize import Quantized
    from tinyai.quantizer.config import QuantConfig

_COMPARED = "Samples that run by the integers too, for the report and the ranking."
F = TypeVar("F", bound=Callable[..., Any])

_HELP = {
    "dtype": "int8, uint8 or int16: of activations.",
    "symmetric": "Zero points in the middle.",
    "observer": "minmax, average, percentile, mse or entropy: what chooses ranges.",
    "momentum": "Of observer average: what stays at a sample.",
    "percentile": "Of observer percentile: what stays within, in per cent.",
    "per_channel": "A scale for each channel of weights.",
    "power_of_two": "Scales that are powers of two.",
    "residual": "own or common: scales of a sum's operands and result.",
    "shared_averages": "An average has its input's scale.",
    "operators": "Quantize this operator, and others that are named so, alone.",
    "float_operators": "Leave an operator in float, by tinyai's name.",
    "float_layers": "Leave a layer in float, by the model's name.",
    "float_first": "Leave the first layer with weights in float.",
    "rounding": "nearest or adaptive: weights, each after what was rounded before it.",
    "correct_bias": "Mean errors of layers on samples go into their biases.",
    "equalize": "Make ranges of channels between layers alike first; not through relu6.",
    "float_last": "Leave the last layer with weights in float.",
    "int16_layers": "Give a layer's operands and result 16 bits, by the model's name.",
}


def config_options(function: F) -> F:
    """A flag for each field of ``QuantConfig``; the function gets it as ``config``."""
    from tinyai.quantizer.config import QuantConfig

    fields = dataclasses.fields(QuantConfig)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = {each.name: kwargs.pop(each.name) for each in fields}
        return function(*args, config=QuantConfig(**given), **kwargs)

    decorated: Any = run
    for each in reversed(fields):
        flag, default = f"--{each.name.replace('_', '-')}", each.default
        many, settings = isinstance(default, tuple), {"show_default": default != ()}
        if isinstance(default, bool):
            flag += f"/--no-{each.name.replace('_', '-')}"
        decorated = click.option(
            flag, each.name, default=default, multiple=many, help=_HELP[each.name], **settings
        )(decorated)
    return decorated  # type: ignore[no-any-return]


@command(
    "quantize",
    "tinyai quantize model.onnx --calibrate samples.npz -o model.relay --observer percentile",
    "tinyai quantize model.onnx --calibrate pictures -o model.relay --rank --plot report.png",
    "tinyai quantize model.onnx --calibrate pictures -o model.relay --mixed-sqnr 30",
)
@click.argument("model", type=click.Path())
@click.option(
    "--calibrate",
    required=True,
    type=click.Path(),
    help="Samples: .npz with an array for each input; a folder of .npy, .png, .jpg, one a sample.",
)
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path))
@click.option("--rank", is_flag=True, help="Quantize each layer alone too: its damage, in dB.")
@click.option(
    "--mixed-sqnr",
    type=float,
    help="Give the worst layers 16 bits, or float, until results have so many dB.",
)
@click.option(
    "--mixed-agreement",
    type=float,
    help="... until results have the same largest value in that share of samples: 0 to 1.",
)
@click.option(
    "--compared", type=click.IntRange(min=1), default=8, show_default=True, help=_COMPARED
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw: .png, .svg or .pdf.")
@config_options
@shapes_option
@json_option
def quantize(
    model: str,
    calibrate: str,
    output: Path,
    rank: bool,
    mixed_sqnr: float | None,
    mixed_agreement: float | None,
    compared: int,
    plot: Path | None,
    config: Any,
    input_shapes: str,
    as_json: bool,
) -> None:
    """Quantize the float MODEL (.onnx, .tflite, Relay's text) by the values on samples.

    OUTPUT (.relay) is Relay's text with quantize and dequantize, the weights and the layers' names,
    which the other commands read. Printed is a row a layer: its range, scale, and ratio of signal
    to noise.
    """
    if output.suffix != ".relay":
        raise OptionError("output", found=str(output), allowed="a name that ends with .relay")
    check_place(output)
    mixed = None
    if mixed_sqnr is not None or mixed_agreement is not None:
        from tinyai.quantizer.mixed import Mixed

        mixed = Mixed(mixed_sqnr, mixed_agreement)
    if plot is not None:
        from tinyai.quantizer.plot import require_place

        require_place(plot)
    asked = {"rank": rank, "mixed": mixed, "compared": compared}
    quantized = write_quantized(model, calibrate, output, config, input_shapes, **asked)
    if plot is not None:
        quantized.report.plot(plot)
    if as_json:
        click.echo(quantized.report.json())
    else:
        console().print(quantized.report.table())
        click.echo(str(quantized.report))


def write_quantized(
    model: str,
    calibrate: str,
    output: Path,
    config: QuantConfig,
    input_shapes: str,
    **asked: Any,
) -> Quantized:
    """Quantize a model file and write it as Relay's text, whole or not at all."""
    check_model(model)
    with relay_for("quantize"):
        from tinyai.frontends.relay.load import load_model
        from tinyai.frontends.relay.quantize import quantize
        from tinyai.frontends.relay.text import text_of
    mod, params = load_model(model, input_shapes)
    with stage("ranges, pairs and the report"):
        quantized = quantize(mod, params, calibrate, config, progress=True, **asked)
    with stage("write"), written_whole(output) as beside:
        text = text_of(quantized.module)
        beside.write_text(text)
    return quantized


@contextlib.contextmanager
def quantized_first(
    model: str, calibrate: str | None, input_shapes: str
) -> Iterator[tuple[str, str]]:
    """The model file to compile and the shapes of its inputs: ``model``, or what is quantized of it
    by the samples ``calibrate``."""
    if calibrate is None:
        yield model, input_shapes
        return
    from tinyai.quantizer.config import QuantConfig

    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        made = Path(folder) / f"{Path(model).stem}.relay"
        write_quantized(model, calibrate, made, QuantConfig(), input_shapes)
        yield str(made), ""
