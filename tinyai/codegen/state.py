"""States: inputs and outputs of a graph that its holder keeps from one call to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tinyai.codegen.c import C_TYPES
from tinyai.ir import Array, DType

ALIGNMENT = 64  # of a state in a library's block, in bytes


@dataclass(frozen=True)
class EntryState:
    """A state as the entries' templates need it. ``input`` and ``output`` are its numbers among
    those of the graph, ``offset`` its place in a library's block. It begins as ``size`` bytes of
    ``fill``, or as the constant ``initial``, which is "" then."""

    input: int
    output: int
    c_type: str
    elements: int
    size: int
    offset: int
    fill: int
    initial: str


def states_of(
    values: Sequence[Array], inputs: int, outputs: int, constant: Callable[[Array], str]
) -> tuple[tuple[EntryState, ...], int]:
    """The states that begin with ``values``, which are the last of so many inputs and outputs, and
    the bytes of one half of a library's block; ``constant`` is the name of an array in C."""
    states: list[EntryState] = []
    offset = 0
    for place, value in enumerate(values):
        content = value.tobytes()
        filled = len(set(content)) == 1
        states.append(
            EntryState(
                input=inputs - len(values) + place,
                output=outputs - len(values) + place,
                c_type=C_TYPES[DType(value.dtype.name)],
                elements=value.size,
                size=value.nbytes,
                offset=offset,
                fill=content[0],
                initial="" if filled else constant(value),
            )
        )
        offset += value.nbytes + -value.nbytes % ALIGNMENT
    return tuple(states), offset
