"""The operators of a model file by what they read and make: what is asked of a format where a file
is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tinyai.frontends.source_model import SourceModel


@dataclass(frozen=True)
class NamedOperator:
    """An operator of a file: the names of the values that it ``reads`` and ``makes``; its own
    ``name`` is that of the calls that its reader makes of it."""

    name: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]


class CuttableFile(Protocol):
    """A file that can be cut: its operators in the order of computation, and the names of its
    inputs and outputs."""

    operators: Sequence[NamedOperator]
    inputs: Sequence[str]
    outputs: Sequence[str]

    def part(self, kept: Sequence[int], inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
        """The content of a file of the operators at the places ``kept`` alone."""

    def read(self) -> SourceModel:
        """The whole as the quantizer reads it, with the shapes that were asked for."""

    def type_of(self, name: str) -> str:
        """The type of a value, as it is shown: ``float32[1,8,?]``."""
