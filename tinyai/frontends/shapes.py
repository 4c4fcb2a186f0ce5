"""The shapes that are asked for of a model file's inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tinyai.errors import OptionError
from tinyai.frontends.faults import shown

# Shapes of inputs by name, -1 for an open dimension.
Shapes = Mapping[str, Sequence[int]]


_SHAPE = re.compile(
    r"(?P<name>[^][\s,][^][]*?)\s*:\s*(?:\[(?P<dims>[^][]*)\]|(?P<plain>-?\d+(?:x-?\d+)*))"
    r"(?:\s*,\s*|\s+|$)",
    re.DOTALL,
)


def parse_shapes(text: str) -> dict[str, list[int]]:
    """``"data:1x3x32x32 other:[-1,8]"``: -1 leaves a dimension open.

    Raises ``OptionError`` for a text that is anything else.
    """
    from tinyai.report import safe

    def fail(found: str) -> OptionError:
        return OptionError(
            "input shapes",
            found=safe(found),
            allowed="name:1x3x32x32 other:[-1,8], each name once, -1 for an open dimension",
            hint="python -m tinyai explain FILE without shapes takes those of the file",
        )

    shapes: dict[str, list[int]] = {}
    rest = text.strip()
    while rest:
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
    return shapes


def check_asked(shapes: Shapes, inputs: Mapping[str, Sequence[int] | None]) -> None:
    """The shapes are of inputs that the file has, of as many dimensions where it tells.

    Raises ``OptionError`` for others.
    """
    from tinyai.report import safe

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
