"""What is asked for of a model file's inputs: shapes, and values that never change."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tinyai.errors import OptionError
from tinyai.frontends.faults import shown
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


def parse_shapes(text: str) -> dict[str, list[int]]:
    """``"data:1x3x32x32 other:[-1,8]"``: -1 leaves a dimension open.

    Raises ``OptionError`` for a text that is anything else, and for a value.
    """
    shapes, values = parse_inputs(text)
    if values:
        raise OptionError(
            "input shapes",
            found=", ".join(f"{name}={value:g}" for name, value in values.items()),
            allowed="shapes: values are for .onnx files that are read without TVM",
        )
    return shapes


def parse_inputs(text: str) -> tuple[dict[str, list[int]], dict[str, float]]:
    """Shapes as of ``parse_shapes``, and values between them, as in ``"data:1x512 rate=16000"``:
    such an input always has this one; whole numbers are exact. Raises ``OptionError`` for a text
    that is anything else.
    """

    def fail(found: str) -> OptionError:
        return OptionError(
            "input shapes",
            found=safe(found),
            allowed="name:1x3x32x32 other:[-1,8], each name once, -1 for an open dimension; "
            "name=16000 for an input that always has one value",
            hint="python -m tinyai explain FILE without shapes takes those of the file",
        )

    shapes: dict[str, list[int]] = {}
    values: dict[str, float] = {}
    rest = text.strip()
    while rest:
        if (one := _VALUE.match(rest)) is not None:
            if one["name"] in values:
                raise fail(one[0])
            number = _NAMED.get(one["value"].lower(), one["value"])
            whole = number.lstrip("+-").isdecimal()
            values[one["name"]] = int(number) if whole else float(number)
            rest = rest[one.end() :]
            continue
        found = _SHAPE.match(rest)
        if found is None:
            raise fail(rest)
        try:
            listed = found["plain"].split("x") if found["plain"] else found["dims"].split(",")
            dims = [int(dim) for dim in listed] if listed != [""] else []
        except ValueError:
            raise fail(found[0]) from None
        if found["name"] in shapes or any(dim < 1 and dim != -1 for dim in dims):
            raise fail(found[0])
        shapes[found["name"]] = dims
        rest = rest[found.end() :]
    return shapes, values


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
