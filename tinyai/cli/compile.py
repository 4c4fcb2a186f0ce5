"""``tinyai compile``."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tinyai.cli.quantize import Quantizing, quantized_first, quantizer_options
from tinyai.cli.shared import (
    RequestedTarget,
    backend_option,
    command,
    file_options,
    html_option,
    json_option,
    next_steps,
    note,
    print_json,
    relay_for,
    target_options,
    tell_rounding,
)
from tinyai.errors import OptionError
from tinyai.files import check_place, written_whole
from tinyai.model_file import AS_IT_IS
from tinyai.safe_text import safe
from tinyai.stages import OWN_IMPORTS, stage
from tinyai.target import this_architecture

if TYPE_CHECKING:
    from tinyai.frontends.source_model import SourceModel
    from tinyai.ir import Array
    from tinyai.model_file import FileOptions
    from tinyai.network import Network
    from tinyai.runtime.toolchain import Toolchain

_PACKAGE = "C package"


@command(
    "compile",
    "tinyai compile model.tflite -o net.so",
    "tinyai compile model.tflite -o net.so --isa scalar --arena-limit 100000",
    "tinyai compile model.tflite -o net.so --html net.html",
    "tinyai compile model.tflite -o folder --isa scalar --sample x.npy",
    "tinyai compile model.onnx --calibrate samples.npz -o net.so",
    "tinyai compile model.onnx -o net.relay.so --target 'tinyai -threads=2, llvm'",
    short_help="Turn a model file into a library or a C package.",
)
@click.argument("model", type=click.Path())
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path))
@target_options
@click.option("--name", default="", help="C identifier of the network.  [default: the file's name]")
@click.option(
    "--ends",
    type=click.Choice(["model", "int8"]),
    default="model",
    show_default=True,
    help="int8: without the quantize and dequantize at the ends.",
)
@click.option(
    "--calibrate",
    type=click.Path(),
    help="Quantize a float MODEL first by these samples, as tinyai quantize does. --rounding is "
    "onnx if none is named, or upward where layers have 16 bits.",
)
@click.option(
    "--ports-in-arena",
    is_flag=True,
    help="C package: inputs and outputs live in the arena, where NAME_input() says.",
)
@click.option(
    "--sample",
    type=click.Path(path_type=Path),
    help="C package: the input of NAME_test.c, .npz by the names of MODEL's inputs, or .npy.",
)
@backend_option
@click.option("--cc", help="C compiler with its flags.  [default: CC, or one for --arch]")
@click.option(
    "--strict/--no-strict",
    default=None,
    help="Whether an operator that would stay on the host is an error: always, but for .relay.so.",
)
@quantizer_options
@file_options
@json_option
@html_option
def compile(
    model: str,
    output: Path,
    asked: RequestedTarget,
    name: str,
    ends: str,
    calibrate: str | None,
    ports_in_arena: bool,
    sample: Path | None,
    backend: str,
    cc: str | None,
    strict: bool | None,
    quantizing: Quantizing,
    reading: FileOptions,
    as_json: bool,
    html: Path | None,
) -> None:
    """Compile MODEL (.tflite, .onnx, Relay's text as .relay or .txt) to what OUTPUT's name says.

    \b
    NAME.so        a library with a plain C interface: tinyai run, tinyai.Model
    NAME.relay.so  TVM's library: what tinyai has no code for runs by TVM
    NAME.tar       a C package in an archive
    NAME, NAME/    a C package in a folder
    """
    from tinyai.network import c_name
    from tinyai.runtime.toolchain import Toolchain

    toolchain = Toolchain(cc) if cc is not None else None
    for flag, given in (("--ports-in-arena", ports_in_arena), ("--sample", sample)):
        if given and output.suffix not in ("", ".tar"):
            raise OptionError(flag, found=f"beside {output.name}", allowed="beside a C package")
    for place in (*([output] if output.suffix == ".so" else []), *([html] if html else [])):
        check_place(place)
    for_relay = output.name.endswith(".relay.so")
    quantized = quantized_first(model, calibrate, quantizing, reading, for_relay=for_relay)
    with quantized as (source, reading):
        if not isinstance(source, str):  # which has no name of its own
            name = name or c_name(Path(model).stem)
        asked = asked.for_model(source)
        if isinstance(source, str) and for_relay:
            if name or ends != "model" or backend:
                raise OptionError(
                    "options of TVM's library", found="--name, --ends, --backend", allowed="none"
                )
            facts = _relay_library(source, output, asked, strict, reading, toolchain, html)
        elif strict is False:
            raise OptionError(
                "--no-strict",
                found=f"beside {output.name}, which has no host",
                allowed="beside NAME.relay.so alone",
            )
        elif output.suffix == ".so":
            facts = _library(source, output, asked, name, ends, reading, backend, toolchain, html)
        elif output.suffix in ("", ".tar"):
            facts = _package(
                source,
                output,
                asked,
                name,
                ends,
                reading,
                backend,
                toolchain,
                ports_in_arena=ports_in_arena,
                sample=sample,
                html=html,
            )
        else:
            raise OptionError(
                "output",
                found=repr(str(output)),
                allowed="a name that ends with .so, .relay.so or .tar; without an ending, a folder",
            )
    if as_json:
        print_json(facts)
    else:
        note("\n".join(_lines(facts)))
        tell_rounding(source, asked, aside=False)
        compared = model if calibrate is None and reading == AS_IT_IS else None
        if not for_relay and asked.target.architecture == this_architecture():
            next_steps(*_next(facts, compared))


def _lines(facts: dict[str, Any]) -> list[str]:
    """The facts for a reader: sizes, and what goes in and comes out."""
    lines = [f"{facts['output']}: {facts['kind']}, {facts['size']:,} bytes"]
    sizes = {"weight_bytes": "weights", "arena_bytes": "arena", "state_bytes": "state"}
    for key, what in sizes.items():
        lines += [f"  {what + ':':<8} {facts[key]:,} bytes"] if key in facts else []
    for kind in ("inputs", "outputs"):
        for each in facts.get(kind, ()):
            sign, zero = "+" if (each["zero_point"] or 0) < 0 else "-", abs(each["zero_point"] or 0)
            scale = f", {each['scale']:.6g} * (q {sign} {zero})" if each["scale"] else ""
            shape = ",".join(map(str, each["shape"]))
            lines.append(
                f"  {kind[:-1] + ':':<8} {safe(each['name'], 60)} {each['dtype']}[{shape}]{scale}"
            )
    return lines


def _next(facts: dict[str, Any], model: str | None) -> list[tuple[object, ...]]:
    """Commands that use what was made. ``model`` is what it can be compared with, if anything."""
    output = facts["output"]
    file = "x.npz" if len(facts["inputs"]) > 1 else "x.npy"
    steps: list[tuple[object, ...]] = [("tinyai", "run", output, "--input", file)]
    if model is not None:
        steps.insert(0, ("tinyai", "check", model, "--with", output))
    if facts["kind"] == _PACKAGE and Path(output).is_dir():
        steps.append(("make", "-C", output, "test"))
    return steps


def _library(
    model: str | SourceModel,
    output: Path,
    asked: RequestedTarget,
    name: str,
    ends: str,
    reading: FileOptions,
    backend: str,
    toolchain: Toolchain | None,
    html: Path | None,
) -> dict[str, Any]:
    with stage(OWN_IMPORTS):
        from tinyai.frontends.model import compile
        from tinyai.runtime.library import facts_of_library

    compile(
        model,
        output,
        asked.target,
        name=name,
        ends=ends,
        **asdict(reading),
        backend=backend,
        toolchain=toolchain,
        html=html or "",
    )
    return {"output": str(output), "kind": "library", **facts_of_library(output)}


def _package(
    model: str | SourceModel,
    output: Path,
    asked: RequestedTarget,
    name: str,
    ends: str,
    reading: FileOptions,
    backend: str,
    toolchain: Toolchain | None,
    *,
    ports_in_arena: bool,
    sample: Path | None,
    html: Path | None,
) -> dict[str, Any]:
    """The facts are the report's, ports in the words of ``_lines``."""
    with stage(OWN_IMPORTS):
        from tinyai.frontends.model import network_of
        from tinyai.package import package_of

    network = network_of(
        model,
        asked.target,
        name=name,
        ends=ends,
        **asdict(reading),
        backend=backend,
    )
    package = package_of(
        network,
        asked.target,
        ports_in_arena=ports_in_arena,
        sample=_sample(network, sample) if sample else None,
        toolchain=toolchain,
    )
    if output.suffix:
        package.write_tar(output)
    else:
        package.write(output)
    if html:
        title = Path(model).name if isinstance(model, str) else network.name
        replace(package.page, title=title).write(html)
    report = package.report.to_dict()
    for kind in ("inputs", "outputs"):
        for port in report[kind]:
            scale = port["scale"]
            port["dtype"] = port["c_type"].removesuffix("_t")
            port["scale"] = scale[0] if len(scale) == 1 else None
    size = sum(map(len, package.files.values()))
    return {"output": str(output), "kind": _PACKAGE, "size": size, **report}


def _sample(network: Network, file: Path) -> list[Array]:
    """The one sample in a file."""
    from tinyai.checking.samples import given

    samples = given(network, [file])
    if len(samples) != 1:
        raise OptionError("--sample", found=f"{file}: {len(samples)} samples", allowed="one")
    return list(samples[0])


def _relay_library(
    model: str,
    output: Path,
    asked: RequestedTarget,
    strict: bool | None,
    reading: FileOptions,
    toolchain: Toolchain | None,
    html: Path | None,
) -> dict[str, Any]:
    with relay_for("compile"):
        from tinyai.frontends.relay.build import build
        from tinyai.frontends.relay.load import load_model
        from tinyai.frontends.relay.partition import partition_for_tinyai
    mod, params = load_model(model, reading.shapes_for_tvm())
    if strict:
        with stage("partition"):
            partition_for_tinyai(mod, params, strict=True, **asked.options)
    if html:
        from tinyai.frontends.relay.explain import explain

        with stage("regions and their C"):
            report = explain(mod, params, **asked.options)
        report.page(Path(model).name, "tinyai compile").write(html)
    words = "".join(f" -{key}={value}" for key, value in asked.options.items())
    with stage("relay.build and C compiler"):
        factory = build(mod, params, target=f"tinyai{words}, {asked.host}", toolchain=toolchain)
    with stage("export"), written_whole(output) as beside:
        factory.export_library(str(beside))
    facts = {"output": str(output), "kind": "TVM's library", "size": output.stat().st_size}
    return {**facts, "rounding": asked.options["rounding"]}
