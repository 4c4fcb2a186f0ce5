"""``tinyai run``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tinyai.cli.shared import (
    RequestedTarget,
    backend_option,
    command,
    console,
    file_options,
    json_option,
    print_json,
    target_options,
    tell_rounding,
)
from tinyai.errors import OptionError, TinyAIError
from tinyai.files import check_place, no_file, written_whole
from tinyai.pictures import is_picture, pixels
from tinyai.safe_text import safe
from tinyai.stages import OWN_IMPORTS, stage

if TYPE_CHECKING:
    from tinyai.model_file import FileOptions
    from tinyai.runtime.library import Array, Library
    from tinyai.tensor_spec import TensorSpec

_PRINTED = 16  # values of an output


@command(
    "run",
    "tinyai run net.so --input x.npy",
    "tinyai run net.so --input x.npz --scaled -o outputs.npz",
    "tinyai run net.tar --input x.npy",
    "tinyai run model.tflite --input x.npy --top 3 --labels labels.txt",
    short_help="Run a model, a library or a C package on inputs.",
)
@click.argument("model", type=click.Path())
@click.option(
    "--input",
    "-i",
    "inputs",
    multiple=True,
    type=click.Path(),
    help="An array of .npy, .png or .jpg; all of .npz by name. Once an input.",
)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write outputs as .npz.")
@click.option("--scaled", is_flag=True, help="Real numbers in and out, by scale and zero point.")
@click.option("--top", type=click.IntRange(min=1), help="The classes of the largest values.")
@click.option("--labels", type=click.Path(), help="Names of classes: a text file, one a line.")
@click.option("--method", default="", help="Of a bundle, where it has several.")
@target_options
@file_options
@backend_option
@json_option
def run(
    model: str,
    inputs: tuple[str, ...],
    output: Path | None,
    scaled: bool,
    top: int | None,
    labels: str | None,
    asked: RequestedTarget,
    reading: FileOptions,
    backend: str,
    as_json: bool,
    method: str,
) -> None:
    """Run MODEL: a library (.so) or C package (a folder or .tar) of tinyai compile, a bundle of
    tinyai.lower (.tinyai), or a model file. What is no library is compiled first.

    Prints the outputs, or writes them to a file. A picture has the height, width and channels of
    the input; without --scaled its bytes are taken as they are for uint8, and less 128 for int8;
    with it, they are divided by 255. Under --scaled too, integers of the input's own dtype are
    taken as they are.
    """
    with stage(OWN_IMPORTS):
        from tinyai.frontends.model import Model, is_compiled

    if output is not None and output.suffix != ".npz":
        raise OptionError("--output", found=str(output), allowed="a name that ends with .npz")
    if output is not None:
        check_place(output)
    names = _labels(labels, top)
    for file in inputs:  # before the model is compiled
        if wrong := no_file(Path(file)):
            raise OptionError("--input", found=f"{file}, {wrong}", allowed="a file to read")
    target = None
    if is_compiled(Path(model)):
        _no_target(asked)
    else:
        asked = asked.for_model(model)
        target = asked.target
    loaded = Model(model, target, **asdict(reading), backend=backend, method=method)
    arrays = _arrays(loaded, inputs, scaled)
    with stage("run"):
        found = loaded.run(arrays, scaled=scaled)
    if output is not None:
        import numpy as np

        with written_whole(output) as beside, beside.open("wb") as archive:
            np.savez(archive, **{_key(i, loaded.outputs): a for i, a in enumerate(found)})
    if target is not None:
        tell_rounding(model, asked, aside=as_json)
    if as_json:
        print_json(_as_json(loaded.outputs, found, top, names))
    elif output is None or top:
        _print(loaded.outputs, found, top, names)


def _no_target(asked: RequestedTarget) -> None:
    if asked.options:
        raise OptionError(
            "options of the target beside a library or package",
            found=", ".join(asked.options),
            allowed="none: it is compiled",
            hint="tinyai compile takes them",
        )


# --- Inputs --------------------------------------------------------------------------------------


def _arrays(model: Library, files: Sequence[str], scaled: bool) -> Any:
    """What the files hold, for ``Library.run``."""
    if not files:
        wanted = ", ".join(f"{each.name} {each}" for each in model.inputs)
        raise OptionError("no --input", found="none", allowed=wanted[:300])
    if len(files) == 1 and files[0].endswith(".npz"):
        import numpy as np

        with _readable(files[0], "arrays of numpy"), np.load(files[0]) as archive:
            arrays = {name: archive[name] for name in archive.files}
        if len(model.inputs) == 1 and list(arrays) == ["arr_0"]:  # numpy's name for none
            return list(arrays.values())
        return arrays
    if len(files) != len(model.inputs):
        names_ = ", ".join(each.name for each in model.inputs)
        raise OptionError(
            "number of --input", found=len(files), allowed=f"{len(model.inputs)}: {names_[:200]}"
        )
    return [_array(file, spec, scaled) for file, spec in zip(files, model.inputs, strict=True)]


def _array(file: str, spec: TensorSpec, scaled: bool) -> Array:
    if file.endswith(".npy"):
        import numpy as np

        with _readable(file, "an array of numpy"):
            array: Array = np.load(file)
            return array
    if is_picture(file):
        with _readable(file, "an image"):
            image: Array = pixels(file, "--input", spec.name, spec.shape, spec.dtype, scaled)
            return image
    raise OptionError(
        "--input", found=file, allowed="*.npy, *.png, *.jpg, or one *.npz with all inputs"
    )


@contextlib.contextmanager
def _readable(file: str, what: str) -> Any:
    try:
        yield
    except (PermissionError, TinyAIError):
        raise
    except Exception as error:  # numpy and zipfile raise exceptions of any kind
        said = " ".join(str(error).split())[:200]
        raise OptionError(
            "--input", found=f"{file}: {type(error).__name__}: {said}", allowed=what
        ) from None


# --- Outputs -------------------------------------------------------------------------------------


def _labels(file: str | None, top: int | None) -> list[str]:
    if file is None:
        return []
    if top is None:
        raise OptionError("--labels", found="without --top", allowed="--top K --labels FILE")
    try:
        if no_file(Path(file)):
            raise FileNotFoundError
        return Path(file).read_text().splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        raise OptionError(
            "--labels", found=f"{file}, no text file", allowed="a text file, one name a line"
        ) from None


def _key(index: int, specs: Sequence[TensorSpec]) -> str:
    """A name that an archive can have: a model's may be a path, or another's again."""
    name = specs[index].name
    plain = name and name.isprintable() and "/" not in name and "\\" not in name and name != "file"
    alone = sum(each.name == name for each in specs) == 1
    return name if plain and alone else f"output{index}"


def _ranked(array: Array, top: int, names: Sequence[str]) -> list[tuple[int, float, str]]:
    import numpy as np

    flat = array.reshape(-1)
    order = np.argsort(-flat.astype(np.float64), kind="stable")[:top]
    return [(int(i), flat[i].item(), names[int(i)] if int(i) < len(names) else "") for i in order]


def _as_json(
    specs: Sequence[TensorSpec], arrays: Sequence[Array], top: int | None, names: Sequence[str]
) -> dict[str, object]:
    rows = []
    for spec, array in zip(specs, arrays, strict=True):
        row: dict[str, object] = {
            "name": spec.name,
            "shape": array.shape,
            "dtype": str(array.dtype),
        }
        if top:
            row["top"] = [
                {"class": i, "value": value, "label": label}
                for i, value, label in _ranked(array, top, names)
            ]
        else:
            row["values"] = array.tolist()
        rows.append(row)
    return {"outputs": rows}


def _print(
    specs: Sequence[TensorSpec], arrays: Sequence[Array], top: int | None, names: Sequence[str]
) -> None:
    from rich.table import Table
    from rich.text import Text

    for spec, array in zip(specs, arrays, strict=True):
        title = f"{safe(spec.name, 60)}: {array.dtype}{list(array.shape)}"
        if top:
            click.echo(title)
            table = Table()
            for head in ("class", "value", *(["label"] if names else [])):
                table.add_column(head, justify="left" if head == "label" else "right")
            for i, value, label in _ranked(array, top, names):
                table.add_row(str(i), f"{value:.6g}", *([Text(safe(label))] if names else []))
            console().print(table)
            continue
        flat = array.reshape(-1)
        shown = " ".join(f"{value:.6g}" for value in flat[:_PRINTED].tolist())
        more = f" ... ({flat.size} values: -o FILE.npz)" if flat.size > _PRINTED else ""
        click.echo(f"{title}\n  {shown}{more}")
