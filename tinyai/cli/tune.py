"""``tinyai tune``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tinyai.cli.shared import (
    RequestedTarget,
    backend_option,
    command,
    console,
    file_options,
    json_option,
    next_steps,
    note,
    print_json,
    relay_for,
    require_no_backend,
    target_options,
    tell_rounding,
)
from tinyai.stages import stage, tracked

if TYPE_CHECKING:
    from tinyai.ir import Graph
    from tinyai.model_file import FileOptions
    from tinyai.target import Target


@command(
    "tune",
    "tinyai tune model.tflite -o tuning.json --seconds 0.01",
    short_help="Measure how layers run best on this machine.",
)
@click.argument("file", type=click.Path())
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path, dir_okay=False))
@target_options
@file_options
@backend_option
@click.option(
    "--seconds",
    default=0.5,
    show_default=True,
    type=click.FloatRange(min=0),
    help="How long a layer runs.",
)
@json_option
def tune(
    file: str,
    output: Path,
    asked: RequestedTarget,
    reading: FileOptions,
    backend: str,
    seconds: float,
    as_json: bool,
) -> None:
    """Measure on this machine how the layers of FILE are best cut up.

    FILE is .onnx, .tflite, or Relay's text (.relay, .txt). The schedules go to a JSON file for the
    option --tuning, after each layer; layers that are in it already are not measured again, so
    that a run that was stopped goes on.
    """
    asked = asked.for_model(file)
    graphs = _graphs(file, asked, reading, backend)
    from tinyai.own import own_of
    from tinyai.runtime.tuner import tune_layers

    with stage("measure"):
        kernels = own_of(backend).kernels
        measured = tune_layers(graphs, output, seconds=seconds, kernels=kernels, track=tracked)
    tell_rounding(file, asked, aside=as_json)
    if as_json:
        print_json([dataclasses.asdict(each) for each in measured])
    elif measured:
        from tinyai.runtime.tuner import tuning_table

        console().print(tuning_table(measured))
    else:
        note(f"{output} has every layer that leaves a choice")
    if not as_json:
        next_steps(("tinyai", "compile", file, "--tuning", output, "-o", "net.so"))


def _graphs(
    file: str, asked: RequestedTarget, reading: FileOptions, backend: str
) -> list[tuple[Graph, Target]]:
    from tinyai.frontends.files import is_read, network_of_file
    from tinyai.own import own_of

    if is_read(file):
        network = network_of_file(file, asked.target, options=reading, own=own_of(backend))
        return [(network.graph, asked.target)]
    require_no_backend(backend, file)
    with relay_for("tune"):
        from tinyai.frontends.relay.bench import region_graphs
        from tinyai.frontends.relay.load import load_model
    mod, params = load_model(file, reading.shapes_for_tvm())
    with stage("regions"):
        return list(region_graphs(mod, params, asked.options).values())
