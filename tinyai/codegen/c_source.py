"""A C file as a value, until it is written: its parts in their order."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tinyai.c_head import Head
from tinyai.codegen.constants import ConstantArray
from tinyai.codegen.definitions import Definition
from tinyai.codegen.isa.variant import IsaVariant


@dataclass(frozen=True)
class Served:
    """The row of the kernel table that serves a node, and why it is slower than such nodes can be:
    better rows that were rejected, and what the row itself could not do in registers. ``math``:
    whether it calls functions of the C library's such as expf. The ``call`` and the ``function`` in
    C, the names of this function and of all that it needs, and the bytes of the arrays
    that nothing before it reads."""

    kernel: str
    slower: tuple[str, ...] = ()
    math: bool = False
    call: str = ""
    function: str = ""
    functions: tuple[str, ...] = ()
    constant_bytes: int = 0


@dataclass(frozen=True)
class Piece:
    """A function or definition, which several files may have."""

    text: str


@dataclass(frozen=True)
class Microkernel(Piece):
    """A function that may be compiled apart: its definition, and the instruction set of the
    variant that has it."""

    definition: Definition
    isa: IsaVariant


# What stands in a file in its place: a piece, a constant, or text that is of this file alone.
Part = Piece | ConstantArray | str


@dataclass(frozen=True)
class CSource:
    """A C file: its ``head``, which begins a comment, and its ``parts``. Sizes in bytes.
    ``variants`` are the instruction sets with the rows of the kernel table that serve the nodes.
    ``hooks`` are the calls of the hook, a line a layer and variant. ``weights`` is the file of its
    own that a package has for its constants. ``state_bytes`` is what the caller of the entry
    "plain" keeps."""

    head: Head
    parts: tuple[Part, ...]
    arena_bytes: int
    weight_bytes: int
    variants: Mapping[IsaVariant, tuple[Served, ...]] = field(default_factory=dict)
    hooks: tuple[str, ...] = ()
    weights: str = ""
    state_bytes: int = 0

    @property
    def symbol(self) -> str:
        """The name of the entry."""
        return self.head.symbol

    @functools.cached_property
    def text(self) -> str:
        """The C file, whole."""
        return self.written(self.head, self.parts)

    @staticmethod
    def written(head: Head, parts: Iterable[Part]) -> str:
        """The text of a file."""
        return "".join((*head.lines, *map(_text, parts)))

    @property
    def code_size(self) -> int:
        """The characters of the file without those of its constants."""
        return sum(len(_text(each)) for each in self.parts if not isinstance(each, ConstantArray))

    @property
    def layers_digest(self) -> str:
        """A digest of what each layer makes, and where: files with the same one can be watched by
        the graph of one of them."""
        return hashlib.sha256("\n".join(self.hooks).encode()).hexdigest()


def _text(part: Part) -> str:
    if isinstance(part, ConstantArray):
        return part.definition
    return part.text if isinstance(part, Piece) else part
