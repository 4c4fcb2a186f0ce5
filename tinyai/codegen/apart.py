"""A C file without what a library may have from elsewhere: constants, which the assembler takes as
they are, and microkernels, which are compiled once for many networks."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tinyai.codegen.c_source import CSource, Microkernel, Part
from tinyai.codegen.constants import APART, ConstantArray
from tinyai.codegen.definitions import Linkage, in_order
from tinyai.codegen.templates import render

_STORAGE = Linkage("TINYAI_APART")


def body_of(source: CSource) -> str:
    """The C file, which declares its constants and microkernels."""
    parts = list[Part]()
    constants = False
    for part in source.parts:
        if isinstance(part, ConstantArray):
            parts += [part.place] if constants else [APART, part.place]
            constants = True
        elif isinstance(part, Microkernel):
            name, parameters = part.definition.name, part.definition.parameters
            declared = (
                f'TINYAI_C __attribute__((visibility("hidden"))) void {name}({parameters});\n'
            )
            parts += [_renamed(part), declared]
        else:
            parts.append(part)
    return source.written(source.head, parts)


def constants_of(source: CSource) -> dict[str, bytes]:
    """The bytes of each constant, by its name."""
    return {part.name: part.data for part in source.parts if isinstance(part, ConstantArray)}


def microkernels_of(source: CSource) -> list[Microkernel]:
    return [part for part in source.parts if isinstance(part, Microkernel)]


def file_of(microkernels: Iterable[Microkernel]) -> str:
    """A C file that defines microkernels of one architecture, and of any, under names of their
    contents."""
    return _file({each: _renamed(each) for each in microkernels})


@functools.cache
def digest(microkernel: Microkernel) -> str:
    """Of all that it is compiled from."""
    return hashlib.sha256(_file({microkernel: ""}).encode()).hexdigest()


def _renamed(microkernel: Microkernel) -> str:
    """Its name says what it is, for objects hold microkernels of other networks, and of other
    versions, too."""
    name = microkernel.definition.name
    return f"#define {name} {name}_{digest(microkernel)[:32]}\n"


def _file(renamed: Mapping[Microkernel, str]) -> str:
    named = (each.isa.architecture for each in renamed)
    architecture = next(filter(None, named), None)
    top = render("microkernels.c.j2", architecture=architecture, portable=False)
    needed = in_order(each.definition for each in renamed)
    parts = [top, *(each.text for each in needed if each.portable)]
    for isa in dict.fromkeys(each.isa for each in renamed):  # of several C files, each once
        values = {"isa": isa, "units": 1, "number": 0}
        members = {each.definition: text for each, text in renamed.items() if each.isa == isa}
        parts.append(render("variant_begin.c.j2", **values))
        for definition in in_order(members):
            if not definition.portable:
                stored = isinstance(definition.arguments, Linkage)
                shared = replace(definition, arguments=_STORAGE) if stored else definition
                parts += [members.get(definition, ""), shared.text]
        parts.append(render("variant_end.c.j2", **values))
    return "\n".join(parts)
