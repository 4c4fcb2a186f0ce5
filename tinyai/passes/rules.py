"""In which order passes may run: what each needs of a graph, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tinyai.errors import GraphError
from tinyai.ir import Graph

Pass: TypeAlias = Callable[[Graph], Graph]


class Fact(Enum):
    """What holds of a graph, in words."""

    APART = "every function of the source model is a node of its own"
    OPEN = "no table hides the steps that it is made of"
    KNOWN = "what depends on no input is a constant"
    UNIQUE = "no two nodes are equal"
    USED = "an output depends on every node"
    TABULATED = "a function from one 8-bit tensor to another is a table"
    PADDED = "convolutions add their borders themselves"
    FUSED = "elementwise nodes are steps of others where they can be"
    PERMUTED = "operators on images have the order of dimensions that kernels want"
    CHANNELS_LAST = "images are transposed as seldom as can be"
    NARROW = "what is stored is stored narrow"
    NARROW_STEPS = "steps work in 32 bits where that is enough"
    CHANNELS_DROPPED = "channels that need not be computed are gone"
    PHASES = "transposed convolutions are plain ones"
    TABLES = "steps between 8 bits are tables where these cost less"


@dataclass(frozen=True)
class Rule:
    """What a pass ``needs`` of a graph, what holds after it (``makes``), and what may not any more
    (``ends``)."""

    needs: Set[Fact] = frozenset()
    makes: Set[Fact] = frozenset()
    ends: Set[Fact] = frozenset()


def check_order(passes: Iterable[Pass], rules: Mapping[Pass, Rule], result: Set[Fact]) -> None:
    """Raise ``GraphError`` where a pass runs before what it needs holds, or after it has ended; or
    where the last one leaves less than ``result``."""
    holding, ended = {Fact.APART, Fact.OPEN}, dict[Fact, str]()

    def require(needed: Set[Fact], by: str) -> None:
        for fact in sorted(needed - holding, key=list(Fact).index):
            why = f"{ended[fact]} ended it" if fact in ended else "no pass before sees to it"
            raise GraphError(
                "order of the passes", found=why, allowed=f"for {by}: {fact.value} ({fact.name})"
            )

    for run in passes:
        rule = rules[run]
        require(rule.needs, run.__name__)
        holding = (holding - rule.ends) | rule.makes
        ended |= dict.fromkeys(rule.ends, run.__name__)
    require(result, "the result")
