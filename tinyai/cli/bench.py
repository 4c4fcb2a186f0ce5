"""``tinyai bench``."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tinyai.cli.shared import (
    RequestedTarget,
    backend_option,
    command,
    console,
    file_options,
    html_option,
    json_option,
    print_json,
    relay_for,
    require_no_backend,
    target_options,
    tell_rounding,
)
from tinyai.errors import OptionError
from tinyai.files import check_place
from tinyai.stages import stage
from tinyai.target import Target

if TYPE_CHECKING:
    from tinyai.model_file import FileOptions
    from tinyai.report.page import Page
    from tinyai.runtime.layers import LayerTime


@command(
    "bench",
    "tinyai bench model.tflite",
    "tinyai bench --layers --threads 2 model.tflite",
    "tinyai bench --layers model.tflite --html times.html",
    short_help="Time the layers of a model, or the model beside other programs.",
)
@click.argument("file", type=click.Path())
@target_options
@file_options
@backend_option
@click.option("--runs", type=click.IntRange(min=1), help="Without --peers. [default: 100]")
@click.option("--layers", is_flag=True, help="One row a layer, under the source model's names.")
@click.option(
    "--peers",
    is_flag=True,
    help="Time whole calls beside the framework of FILE and OpenVINO, in turns.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="With --peers: time for each program. [default: 2]",
)
@json_option
@html_option
def bench(
    file: str,
    asked: RequestedTarget,
    reading: FileOptions,
    backend: str,
    runs: int | None,
    layers: bool,
    peers: bool,
    seconds: float | None,
    as_json: bool,
    html: Path | None,
) -> None:
    """Time the regions of FILE on random input, by a clock after every layer.

    FILE is .onnx, .tflite, or Relay's text (.relay, .txt). Times are medians of all runs. With
    --peers no layer is timed, but the whole call beside LiteRT or ONNX Runtime, and OpenVINO.
    """
    asked = asked.for_model(file)
    alone = {"--runs": runs, "--layers": layers or None, "--html": html}
    _require_fitting(alone, peers, "without --peers")
    if html:
        check_place(html)
    _require_fitting({"--seconds": seconds}, not peers, "with --peers")
    if peers:
        _print_beside(file, asked, reading, backend, seconds or 2.0, as_json=as_json)
        return
    page, times = _times(file, asked, reading, backend, runs or 100)
    if html:
        from tinyai.frontends.page import with_times

        with_times(page(), times, _peak(asked)).write(html)
    tell_rounding(file, asked, aside=as_json)
    if as_json:
        print_json(
            {name: [dataclasses.asdict(each) for each in row] for name, row in times.items()}
        )
        return
    from tinyai.runtime.layers import times_table

    peak = _peak(asked)
    for name, row in times.items():
        console().print(times_table(name, row, layers=layers, peak=peak))


def _peak(asked: RequestedTarget) -> float | None:
    from tinyai.runtime.peak import product_peak

    target = Target.from_options(asked.options)
    return product_peak(target.threads, target.isa)[0]


def _times(
    file: str, asked: RequestedTarget, reading: FileOptions, backend: str, runs: int
) -> tuple[Callable[[], Page], dict[str, tuple[LayerTime, ...]]]:
    """What makes the page of the regions, and their times by symbol."""
    from tinyai.frontends.files import is_read, network_of_file
    from tinyai.frontends.page import page_of_network
    from tinyai.own import own_of

    words = Path(file).name, "tinyai bench"
    if is_read(file):
        from tinyai.runtime.layers import timed_layers

        network = network_of_file(file, asked.target, options=reading, own=own_of(backend))
        with stage("compile and measure"):
            compiled, times = timed_layers(
                network.graph, asked.target, runs=runs, kernels=network.kernels
            )
        page = functools.partial(page_of_network, network, compiled, asked.target, *words)
        return page, {network.name: times}
    require_no_backend(backend, file)
    with relay_for("bench"):
        from tinyai.frontends.relay.bench import bench_layers
        from tinyai.frontends.relay.explain import explain
        from tinyai.frontends.relay.load import load_model
    mod, params = load_model(file, reading.shapes_for_tvm())
    with stage("compile and measure"):
        found = bench_layers(mod, params, asked.options, runs=runs)
    return lambda: explain(mod, params, **asked.options).page(*words), found


def _require_fitting(options: Mapping[str, object], wrong: bool, allowed: str) -> None:
    """Raises ``OptionError`` for an option that is given where it means nothing."""
    for name, value in options.items():
        if wrong and value is not None:
            raise OptionError(name, found=f"{name} with what it is not for", allowed=allowed)


def _print_beside(
    file: str,
    asked: RequestedTarget,
    reading: FileOptions,
    backend: str,
    seconds: float,
    *,
    as_json: bool,
) -> None:
    from tinyai.checking.beside import beside_table, time_beside
    from tinyai.frontends.files import is_read, network_of_file
    from tinyai.own import own_of

    shapes = reading.input_shapes and Path(file).suffix.lower() == ".tflite"
    if shapes or not is_read(file):
        raise OptionError(
            "--peers",
            found=f"{file}{' with --input-shapes' if shapes else ''}",
            allowed=".tflite files as they are, and .onnx files: what other programs run",
        )
    network = network_of_file(file, asked.target, options=reading, own=own_of(backend))
    with stage("compile and measure"):
        found = time_beside(
            network,
            Path(file),
            asked.target,
            seconds=seconds,
            signature=reading.signature,
            input_shapes=reading.input_shapes,
        )
    tell_rounding(file, asked, aside=as_json)
    if as_json:
        print_json(dataclasses.asdict(found))
        return
    console().print(beside_table(found))
    for note in found.absent:
        console().print(note, markup=False)
