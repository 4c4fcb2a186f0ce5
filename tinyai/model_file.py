"""A model's file is looked at before what reads it is imported, which takes seconds."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

from tinyai.errors import ModelError, OptionError
from tinyai.files import no_file
from tinyai.safe_text import safe

# How names of model files end.
IMPORTED, RELAY_TEXT = (".onnx", ".tflite"), (".relay", ".txt")

# Shapes of inputs by name, and numbers for inputs that always have one value; or both as text.
InputShapes: TypeAlias = str | Mapping[str, Sequence[int] | float]


@dataclass(frozen=True)
class FileOptions:
    """What a model file leaves to its reader: ``input_shapes``, as in
    ``"data:1x3x32x32 other:1x8"`` or ``{"data": (1, 3, 32, 32), "other": (1, 8)}``; the
    ``signature`` of a .tflite file that has several; the ``state`` of an .onnx file: outputs that
    are inputs of the next call, by their names."""

    input_shapes: InputShapes = ""
    signature: str = ""
    state: Mapping[str, str] = field(default_factory=dict)

    def require_file(self, model: object) -> None:
        """Raises ``OptionError`` where there is something to choose beside what is no file."""
        if not isinstance(model, str | os.PathLike):
            self.require_only((), f"the {type(model).__name__}")

    def require_only(self, names: Collection[str], beside: str) -> None:
        """Raises ``OptionError`` for options of other names, which mean nothing there."""
        for each in fields(self):
            if getattr(self, each.name) and each.name not in names:
                raise OptionError(
                    each.name,
                    found=repr(getattr(self, each.name)),
                    allowed=f"none beside {beside}",
                    hint=_MEANT[each.name],
                )

    def shapes_for_tvm(self) -> InputShapes:
        """The shapes, for TVM's importers. Raises ``OptionError`` for what they know nothing of."""
        self.require_only(("input_shapes",), "what TVM's importers read")
        return self.input_shapes


_MEANT = {
    "input_shapes": "they are for files that leave shapes open",
    "signature": "it is for .tflite files, which are read without TVM",
    "state": "it is for .onnx files, which are read without TVM",
}
AS_IT_IS = FileOptions()


@dataclass(frozen=True)
class ModelOptions:
    """What is said of a model beside its target: the ``params`` of a Relay module, the ``name`` of
    the network, its ``ends``, what is said of its ``file``, and the name of a ``backend``."""

    params: Mapping[str, Any] | None = None
    name: str = ""
    ends: str = "model"
    file: FileOptions = AS_IT_IS
    backend: str = ""


def check_file(path: Path) -> None:
    """Raise ``OptionError`` where there is no model file, ``ModelError`` where it is empty."""
    wrong = no_file(path)
    if wrong:
        raise OptionError(
            "model file",
            found=f"{safe(str(path))}, {wrong}",
            allowed="a file to read",
            hint="the path, seen from the current folder",
        )
    if path.stat().st_size == 0:
        raise ModelError(
            "model file",
            found=f"{safe(str(path))}, an empty file",
            allowed="a whole model",
            hint="export or copy the model again",
        )


def check_model(file: str | os.PathLike[str], kind: str = "") -> str:
    """The kind of a model file: ``kind``, or how its name ends. Raises as ``check_file``, and
    ``OptionError`` for another kind."""
    check_path(file)
    kind, known = kind or Path(file).suffix.lower(), (*IMPORTED, *RELAY_TEXT)
    if kind not in known:
        raise OptionError(
            "model file",
            found=safe(str(file)),
            allowed="*" + ", *".join(known),
            hint="TVM's own importers read others; pass the module that they make",
        )
    check_file(Path(file))
    return kind


def check_path(file: str | os.PathLike[str]) -> None:
    """Raise ``OptionError`` for an empty path, which Python takes for the current folder."""
    if not os.fspath(file):
        raise OptionError("model", found="an empty path", allowed="the path of a file")


def check_no_params(params: Sized | None) -> None:
    """Raise ``OptionError`` for parameters beside a model file."""
    if params:
        raise OptionError(
            "params beside a model file",
            found=f"{len(params)} of them",
            allowed="none: the file has its own",
            hint="TVM's importers give a module and its params, to be changed",
        )
