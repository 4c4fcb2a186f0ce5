"""What is asked for of a model file's inputs: shapes, and values that never change."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tinyai.errors import OptionError
from tinyai.frontends.faults import shown
from tinyai.model_file import InputShapes
from tinyai.safe_text import safe

# Shapes of inputs by name, -1 for an open dimension.
Shapes = Mapping[str, Sequence[int]]

_VALUE = re.compile(
    r"(?P<name>[^][\s,=:]+)=(?P<value>true|false|[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
    r"(?:\s*,\s*|\s+|$)",
    re.IGNORECASE,
)
_NAMED = {"true": "1", "false": "0"}

_SHAPE = re.compile(
    r"(?P<name>[^][\s,][^][]*?)\s*:\s*(?:\[(?P<dims>[^][]*)\]|(?P<plain>-?\d+(?:x-?\d+)*))"
    r"(?:\s*,\s*|\s+|$)",
    re.DOTALL,
)


def parse_shapes(asked: InputShapes) -> dict[str, list[int]]:
    """``"data:1x3x32x32 other:[-1,8]"``, or a mapping: -1 leaves a dimension open.

    Raises ``OptionError`` for anything else, and for a value.
    """
    shapes, values = parse_inputs(asked)
    if values:
        raise OptionError(
            "input shapes",
            found=", ".join(f"{name}={value:g}" for name, value in values.items()),
            allowed="shapes: values are for .onnx files that are read without TVM",
        )
    return shapes


def parse_inputs(asked: InputShapes) -> tuple[dict[str, list[int]], dict[str, float]]:
    """Shapes as of ``parse_shapes``, and values between them, as in ``"data:1x512 rate=16000"`` or
    ``{"data": (1, 512), "rate": 16000}``: such an input always has this one; whole numbers are
    exact. Raises ``OptionError`` for anything else.
    """
    if isinstance(asked, str):
        return _of_text(asked.strip())
    if not isinstance(asked, Mapping):
        raise _no_shapes(repr(asked))
    shapes: dict[str, list[int]] = {}
    values: dict[str, float] = {}
    for name, value in asked.items():
        if isinstance(value, int | float):
            values[name] = int(value) if isinstance(value, bool) else value
        else:
            shapes[name] = _dimensions(name, value)
    return shapes, values


def _dimensions(name: object, listed: Any) -> list[int]:
    try:
        dims = [operator.index(dim) for dim in listed]
    except TypeError:
        raise _no_shapes(f"{name}: {listed!r}") from None
    if not isinstance(name, str) or any(dim < 1 and dim != -1 for dim in dims):
        raise _no_shapes(f"{name}: {listed!r}")
    return dims


def _of_text(rest: str) -> tuple[dict[str, list[int]], dict[str, float]]:
    shapes: dict[str, list[int]] = {}
    values: dict[str, float] = {}
    while rest:
        if (one := _VALUE.match(rest)) is not None:
            if one["name"] in values:
                raise _no_shapes(one[0])
            number = _NAMED.get(one["value"].lower(), one["value"])
            whole = number.lstrip("+-").isdecimal()
            values[one["name"]] = int(number) if whole else float(number)
            rest = rest[one.end() :]
            continue
        found = _SHAPE.match(rest)
        if found is None:
            raise _no_shapes(rest)
        try:
            listed = found["plain"].split("x") if found["plain"] else found["dims"].split(",")
            dims = [int(dim) for dim in listed] if listed != [""] else []
        except ValueError:
            raise _no_shapes(found[0]) from None
        if found["name"] in shapes or any(dim < 1 and dim != -1 for dim in dims):
            raise _no_shapes(found[0])
        shapes[found["name"]] = dims
        rest = rest[found.end() :]
    return shapes, values


def _no_shapes(found: str) -> OptionError:
    return OptionError(
        "input shapes",
        found=safe(found),
        allowed="name:1x3x32x32 other:[-1,8], each name once, -1 for an open dimension; "
        'name=16000 for an input that always has one value; in Python {"name": (1, 3, 32, 32)} too',
        hint="python -m tinyai explain FILE without shapes takes those of the file",
    )


def check_asked(shapes: Shapes, inputs: Mapping[str, Sequence[int] | None]) -> None:
    """The shapes are of inputs that the file has, of as many dimensions where it tells.

    Raises ``OptionError`` for others.
    """
    known = ", ".join(f"{name}:{shown(dims or ['...'])}" for name, dims in inputs.items())
    for name, shape in shapes.items():
        dims = inputs.get(name)
        if name not in inputs or (dims is not None and len(dims) != len(shape)):
            raise OptionError(
                "input shapes",
                found=safe(f"{name}:{shown(shape)}"),
                allowed=safe(f"the model's inputs, with as many dimensions: {known}", 240),
                hint="names and numbers of dimensions as in the file",
            )
