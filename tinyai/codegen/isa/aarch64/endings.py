"""What microkernels of AArch64 end with, in instructions that every such CPU has."""

from __future__ import annotations

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import STRING_H
from tinyai.codegen.isa.microkernels import Options


def _ending(name: str, *needs: Definition) -> Definition:
    return Definition(f"tinyai_{name}_neon", "endings_neon.c.j2", needs, name)


_SCALE = _ending("scale")
_SCALES = {
    "": _SCALE,
    "twice": _ending("scale_twice", _SCALE),
    "floats": _ending("scale_floats"),
}
_STORE = _ending("store", STRING_H)


def endings(options: Options) -> tuple[Definition, ...]:
    """What requantizes and stores sums, where they are not stored raw."""
    if options.raw:
        return ()
    scale = "floats" if options.floats else "twice" if options.twice else ""
    return _SCALES[scale], _STORE
