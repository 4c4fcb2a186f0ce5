"""What a C file holds because something in it needs it: types, macros, functions.

Each is a value that says what it needs in turn. Whoever writes C that names one asks for it
(``Epilogue.need``); nobody looks for names in the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tinyai.codegen.templates import rendered


@dataclass(frozen=True)
class Definition:
    """C that is known by ``name``: the text of a template, or of one ``macro`` of it, from
    ``values`` that can be compared. What it ``needs`` stands in front of it.

    ``portable`` ones stand in the file once; others in the section of each instruction set that
    needs them, for it is compiled to that set's instructions.
    """

    name: str
    template: str
    needs: tuple[Definition, ...] = ()
    macro: str = ""
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    portable: bool = False

    @property
    def text(self) -> str:
        return rendered(self.template, self.macro, **self.values)


def in_order(wanted: Iterable[Definition]) -> list[Definition]:
    """The definitions and all that they need, once each, behind what they need themselves."""
    found: dict[str, Definition] = {}

    def add(definition: Definition) -> None:
        if definition.name in found:
            return
        for each in definition.needs:
            add(each)
        found[definition.name] = definition

    for each in wanted:
        add(each)
    return list(found.values())
