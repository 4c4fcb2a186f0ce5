"""What a C file holds because something in it needs it: types, macros, functions.

Each is a value that says what it needs in turn. Whoever writes C that names one asks for it
(``Epilogue.need``); nobody looks for names in the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tinyai.codegen.templates import rendered


@dataclass(frozen=True)
class _Nothing:
    """No arguments."""


@dataclass(frozen=True)
class Linkage:
    """How microkernels are declared: as functions of their file, or of a library (``apart.py``)."""

    storage: str = "static"


@dataclass(frozen=True)
class Definition:
    """C that is known by ``name``: the text of a template, which also gets the name, or of one
    ``macro`` of it. Its arguments are the fields of a frozen dataclass. What it ``needs`` is in
    front of it.

    ``portable`` ones are in the file once; others in the variant of each instruction set that
    needs them, for it is compiled to that set's instructions. A microkernel that may be compiled
    apart has ``parameters``, in C; its storage is that of a definition whose arguments are a
    ``Linkage``, among its needs.
    """

    name: str
    template: str
    needs: tuple[Definition, ...] = ()
    macro: str = ""
    arguments: object = _Nothing()
    portable: bool = False
    parameters: str = ""

    @property
    def text(self) -> str:
        named = {} if self.macro else {"name": self.name}
        return rendered(self.template, self.macro, **named, **vars(self.arguments))


def collect(found: dict[str, Definition], definition: Definition) -> None:
    """Put a definition among others. What has one name is one thing: names say all that the text
    depends on."""
    known = found.setdefault(definition.name, definition)
    if known is not definition and known != definition:
        raise ValueError(f"{definition.name} is two things: {known} and {definition}")


def in_order(wanted: Iterable[Definition]) -> list[Definition]:
    """The definitions and all that they need, once each, after what they need themselves."""
    found: dict[str, Definition] = {}

    def add(definition: Definition) -> None:
        if definition.name not in found:
            for each in definition.needs:
                add(each)
        collect(found, definition)

    for each in wanted:
        add(each)
    return list(found.values())
