"""What a check found: frozen values, as text and JSON.

Names come from the user's model, so that nobody vouches for them: text shows unprintable
characters as escapes and cuts what is long; JSON holds them whole.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

from tinyai.safe_text import safe

SCHEMA = "tinyai.check/1"
Number = int | float


def _plain(value: Any) -> Any:
    """The same with numbers that JSON has: text for infinities and what is no number."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class ArithmeticLine:
    """A step of one element's arithmetic: what was done, and the value after it. ``depth`` is 1
    for what an operand goes through, 0 for the element itself."""

    says: str
    value: Number
    depth: int = 0

    def __str__(self) -> str:
        return f"{'  ' * self.depth}{self.says:<{70 - 2 * self.depth}} = {self.value}"


@dataclass(frozen=True)
class FirstDifference:
    """The first layer whose results differ.

    ``number`` counts layers from 0 in the order of execution, of ``layers``; ``names`` are the
    source model's, ``operator`` and ``type`` what the layer computes. ``found_by`` made the value
    ``found`` and ``expected_by`` the value ``expected``, at ``index``, the first of ``differing``
    elements of ``elements``. One of the two is the operators' references, and ``arithmetic`` leads
    to their value.
    """

    number: int
    layers: int
    names: tuple[str, ...]
    operator: str
    type: str
    found_by: str
    expected_by: str
    index: tuple[int, ...]
    found: Number
    expected: Number
    differing: int
    elements: int
    arithmetic: tuple[ArithmeticLine, ...] = ()

    @property
    def name(self) -> str:
        """The source model's, or the number where it has none."""
        return self.names[0] if self.names else f"layer {self.number}"

    def __str__(self) -> str:
        lines = [f"first layer that differs: {safe(self.name, 120)}"]
        lines += [f"  also from:  {safe(name, 120)}" for name in self.names[1:]]
        lines += [
            f"  layer:      {self.number} of {self.layers} (from 0 on): "
            f"{safe(self.operator)} -> {self.type}",
            f"  element:    {list(self.index)}, the first of {self.differing:,} of "
            f"{self.elements:,} that differ",
            f"  found:      {self.found} by {self.found_by}",
            f"  expected:   {self.expected} by {self.expected_by}",
        ]
        if self.arithmetic:
            lines.append("  arithmetic, by the operators' references:")
            lines += [f"    {safe(str(line), 160)}" for line in self.arithmetic]
        return "\n".join(lines)


@dataclass(frozen=True)
class Output:
    """An output of the network, over all samples: how many of ``elements`` differ, and the first
    that does, in which sample, with both values."""

    name: str
    type: str
    elements: int
    differing: int = 0
    sample: int | None = None
    index: tuple[int, ...] = ()
    found: Number | None = None
    expected: Number | None = None

    def __str__(self) -> str:
        name = f"output {safe(self.name)}: {self.type}"
        if not self.differing:
            return f"{name}: {self.elements:,} values, all equal"
        return (
            f"{name}: {self.differing:,} of {self.elements:,} values differ, first in sample "
            f"{self.sample} at {list(self.index)}: found {self.found}, expected {self.expected}"
        )


@dataclass(frozen=True)
class Comparison:
    """Code of ``model`` beside ``opponent``, such as "LiteRT 2.1".

    ``checked`` says which code. ``rounding`` is the target's. ``samples`` were run, the first
    ``given`` of them the user's own, the others drawn with a fixed seed. ``first`` is the first
    layer that differs in the first sample whose outputs do; None where all are equal, and where no
    layer can be told. ``notes`` say what the comparison could not see.
    """

    model: str
    checked: str
    opponent: str
    rounding: str
    samples: int
    given: int
    outputs: tuple[Output, ...]
    first: FirstDifference | None = None
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether all values of all outputs are."""
        return not any(output.differing for output in self.outputs)

    def json(self) -> str:
        """The comparison as JSON, by the names of its fields."""
        facts = {"schema": SCHEMA, "equal": self.equal, **dataclasses.asdict(self)}
        if self.first:
            facts["first"] = {"name": self.first.name, **facts["first"]}
        return json.dumps(_plain(facts), indent=2)

    def __str__(self) -> str:
        head = "equal" if self.equal else "different"
        lines = [
            f"{head}: {safe(self.checked, 160)} and {self.opponent}",
            f"  model:      {safe(self.model, 160)}",
            f"  rounding:   {self.rounding}",
            f"  samples:    {self.given} given, {self.samples - self.given} random",
            *(f"  {output}" for output in self.outputs),
            *(f"  note:       {safe(note, 300)}" for note in self.notes),
        ]
        return "\n".join([*lines, *([str(self.first)] if self.first else [])])
