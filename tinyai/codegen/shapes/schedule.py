"""How a layer's work is cut up, where its kernel leaves a choice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """Sums that are in registers at once: ``outputs`` of an image by ``channels``, whole blocks of
    16."""

    outputs: int
    channels: int

    def __str__(self) -> str:
        return f"{self.outputs}x{self.channels}"


@dataclass(frozen=True)
class Schedule:
    """How a layer's work is cut up, where its kernel leaves a choice. Results do not depend on it.

    - ``panels``: the channels of a group from the first on, and how many outputs meet them at a
      time.
    - ``stripe``: outputs that are computed for all panels before the next ones.
    - ``unrolled``: whether the products of a window are written out, without a loop.
    - ``by_panels``: whether threads share the panels, each with all outputs, or the outputs.
    - ``together``: neighbouring outputs that are computed as one.

    None: the kernel decides.
    """

    panels: tuple[Tile, ...]
    stripe: int
    unrolled: bool
    by_panels: bool | None = None
    together: int | None = None

    def __str__(self) -> str:
        window = "written out" if self.unrolled else "in a loop"
        facts = [f"tiles {' '.join(map(str, self.panels))}", f"stripes of {self.stripe} outputs"]
        facts.append(f"windows {window}")
        if self.by_panels is not None:
            facts.append(f"threads share {'panels' if self.by_panels else 'outputs'}")
        if self.together is not None:
            several = self.together > 1
            facts.append(f"{self.together} outputs as one" if several else "each output alone")
        return ", ".join(facts)
