"""An ISA variant of a C file: what the file says to the compiler, and asks the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tinyai.codegen.definitions import Definition
from tinyai.codegen.isa.microkernels import Microkernels


@dataclass(frozen=True)
class Architecture:
    """What instruction sets of one family of CPUs share: the preprocessor's ``guard`` around their
    code, the ``header`` of the compiler's intrinsics, the expression by which C asks whether the
    CPU ``has`` a feature, with the header that this needs (``asks``), and what gcc calls a target
    with these features. Where ``spins`` holds, a loop that waits does ``pause``."""

    name: str
    guard: str
    header: str
    has: Callable[[str], str]
    asks: str = ""
    gcc: Callable[[tuple[str, ...]], str] = ",".join
    spins: str = ""
    pause: str = ""


@dataclass(frozen=True)
class IsaVariant:
    """The functions of a file for one instruction set.

    - ``rows``: the values of ``Kernel.isa`` that serve, the preferred first.
    - ``architecture``: None where any machine runs it.
    - ``features``: what the compiler may use and the CPU must have; ``options`` are more words for
      the compiler's target.
    - ``question``: C that must be in front of the expressions of ``fits``; ``asks`` are such of it,
      which must hold too.
    - ``unsigned``: its products are those of unsigned by signed bytes, so that images are best
      stored unsigned; else those of signed bytes.
    """

    name: str
    rows: tuple[str, ...]
    architecture: Architecture | None = None
    features: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    question: Definition | None = None
    unsigned: bool = False
    asks: tuple[str, ...] = ()

    @property
    def gcc_target(self) -> str:
        """What gcc may use, in its words."""
        assert self.architecture is not None
        return self.architecture.gcc((*self.features, *self.options))

    @property
    def fits(self) -> str:
        """Whether the CPU runs it, as C."""
        assert self.architecture is not None
        return " && ".join((*map(self.architecture.has, self.features), *self.asks))


@dataclass(frozen=True)
class Peak:
    """A C ``program`` that measures how many multiply-accumulates of an instruction set the cores
    make in a second, at most; and the set's ``name`` for people."""

    name: str
    program: Path


@dataclass(frozen=True)
class InstructionSet:
    """What a folder is, whose name is a value of the option ``isa``.

    ``alone`` is the variant of a file that is for it alone, ``among`` its variant of a file for
    every machine of the architecture; None where such a file does without. ``native`` is that of a
    file for the machine at hand, where it is not ``alone``. ``peak``: None where nobody measures
    it.
    """

    alone: IsaVariant
    among: IsaVariant | None = None
    native: IsaVariant | None = None
    microkernels: tuple[Microkernels, ...] = ()
    peak: Peak | None = None
