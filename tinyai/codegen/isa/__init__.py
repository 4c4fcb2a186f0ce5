"""The instruction sets of one C file: which kernels serve each, and how a compiler is told.

A folder here is an architecture, a folder in it an instruction set with its microkernels: its
instructions, its templates, and nothing else. They are found by being there.

A file for every machine of an architecture (``-isa=auto``) holds the network once for each of
several instruction sets and asks the CPU which to run. Their kernels read the same packed weights,
so a weight is stored once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module

from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.isa.variant import InstructionSet, IsaVariant
from tinyai.doctor import ISA_FLAGS, cpu_description, instruction_sets
from tinyai.target import ARCHITECTURES, PORTABLE, Target


def _strength(name: str) -> int:
    """The doctor lists sets from the weakest to the strongest; portable C is in front of all."""
    return list(ISA_FLAGS).index(name) if name in ISA_FLAGS else -1


# The sets of an architecture by name, the strongest first.
_SETS: dict[str, dict[str, InstructionSet]] = {
    architecture: {
        name: import_module(f"{__name__}.{architecture}.{name}").SET
        for name in sorted(names, key=_strength, reverse=True)
    }
    for architecture, names in ARCHITECTURES.items()
}

# Of all instruction sets that have some.
MICROKERNELS: tuple[Microkernels, ...] = tuple(
    each for sets in _SETS.values() for found in sets.values() for each in found.microkernels
)

# What a loop that waits does, and where it can: on each architecture.
PAUSES: tuple[tuple[str, str], ...] = tuple(
    sorted(
        {
            (each.alone.architecture.spins, each.alone.architecture.pause)
            for sets in _SETS.values()
            for each in sets.values()
            if each.alone.architecture
        },
        reverse=True,
    )
)


def instruction_sets_of(architecture: str = "") -> Mapping[str, InstructionSet]:
    """Those of an architecture, or of this machine's, by name, the strongest first."""
    return _SETS[architecture or Target().architecture]


def variants_of(target: Target) -> tuple[IsaVariant, ...]:
    """The instruction sets of the target's C file, the strongest first; the last of several runs
    on any machine."""
    sets = _SETS[target.architecture] | _SETS[PORTABLE]
    if target.isa == "auto":
        return tuple(found.among for found in sets.values() if found.among)
    if target.isa == "native":
        best = sets[best_of_this_machine()]
        return (best.native or best.alone,)
    return (sets[target.isa].alone,)


def runs_here(isas: Iterable[IsaVariant]) -> IsaVariant:
    """The one of a file's instruction sets, the strongest first, that this machine's CPU takes."""
    here = instruction_sets(cpu_description())
    return next(isa for isa in isas if isa.name in here or not isa.features)


def best_of_this_machine() -> str:
    """The strongest value of the option ``isa`` that this machine's CPU has."""
    here = instruction_sets(cpu_description())
    sets = _SETS[Target().architecture] | _SETS[PORTABLE]
    return next(name for name in sets if name in here)
