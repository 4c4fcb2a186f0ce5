"""What microkernels of AArch64 end with, in instructions that every such CPU has."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import STRING_H
from tinyai.codegen.isa.microkernels import ConvOptions


@dataclass(frozen=True)
class _Of:
    """The set whose variant it is for: a file may hold several."""

    isa: str


def endings(options: ConvOptions, isa: str) -> tuple[Definition, ...]:
    """What requantizes and stores sums in a set's variant, where they are not stored raw."""
    if options.raw:
        return ()
    store = _ending("store", isa, STRING_H)
    if options.rounded:
        return (store,)
    if options.floats:
        scale = _ending("scale_floats", isa)
    elif options.twice:
        scale = _ending("scale_twice", isa, _ending("scale", isa))
    else:
        scale = _ending("scale", isa)
    return scale, store


def _ending(name: str, isa: str, *needs: Definition) -> Definition:
    named = f"tinyai_{name}_{isa}"
    return Definition(named, "endings_neon.c.j2", needs, name, arguments=_Of(isa))
