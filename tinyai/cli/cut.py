"""``tinyai cut``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tinyai.cli.shared import (
    command,
    json_option,
    next_steps,
    note,
    print_json,
    shapes_option,
    signature_option,
)
from tinyai.safe_text import safe


@command(
    "cut",
    "tinyai cut detector.onnx -o body.onnx",
    "tinyai cut detector.onnx -o body.onnx --outputs boxes --outputs scores",
    "tinyai cut voice.tflite -o body.tflite --inputs spectrogram",
    short_help="Write a part of a model as a file of its own.",
)
@click.argument("model", type=click.Path())
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True)
@click.option(
    "--inputs",
    multiple=True,
    metavar="NAME",
    help="A value of MODEL that becomes an input. Once for each.  [default: MODEL's]",
)
@click.option(
    "--outputs",
    multiple=True,
    metavar="NAME",
    help="A value of MODEL that becomes an output. Once for each.  [default: MODEL's]",
)
@shapes_option
@signature_option
@json_option
def cut(
    model: str,
    output: Path,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    input_shapes: str,
    signature: str,
    as_json: bool,
) -> None:
    """Write the part of MODEL (.onnx, .tflite) between some of its values as a file of the same
    format; operators, weights and names stay as they are.

    Without --inputs and --outputs it is the largest part between operators of which tinyai makes no
    integers, such as spectrograms at the beginning and the choice of boxes at the end: what compile
    and quantize take, while the rest stays with the framework. With --outputs alone, the part in
    front of them; with --inputs alone, what follows.
    """
    from tinyai.frontends.cut import cut_file

    part = cut_file(
        model,
        output,
        inputs=inputs,
        outputs=outputs,
        input_shapes=input_shapes,
        signature=signature,
    )
    if as_json:
        print_json({**asdict(part), "file": str(part.file)})
        return
    click.echo(f"{safe(str(part.file))}: {part.operators:,} of {part.of:,} operators")
    for what, named in (("input: ", part.inputs), ("output:", part.outputs)):
        for name, kind in named.items():
            click.echo(f"  {what}  {safe(name)} {kind}")
    note(f"left out: {part.of - part.operators:,} operators")
    next_steps(("tinyai", "explain", output))
