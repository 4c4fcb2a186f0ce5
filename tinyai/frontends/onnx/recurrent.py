"""LSTM, GRU and RNN of a float file, spelled out step by step: products of matrices and functions
of single values, which can be quantized. The formulas are those of ONNX's operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np

from tinyai.frontends.onnx.nodes import Nodes
from tinyai.frontends.onnx.reader import Site, fixed_sizes
from tinyai.ir import Array
from tinyai.source import require

# More would be more code than anybody wants.
MOST_STEPS = 128
# The functions of each operator where it names none: f, g and h of ONNX's formulas.
USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_FUNCTIONS = ("Sigmoid", "Tanh", "Relu")
# Beyond it a sigmoid and a tanh are 0, 1 or -1 but for the rounding of a float32.
_FLAT = 16.0
_BACKWARDS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def spelled_out(site: Site, names: Iterable[str]) -> list[Any]:
    """The nodes that compute what a recurrent node does; ``names`` are those of the file's values.

    Raises ``Refusal`` for sequences that are too long or not all of one length, weights that are
    computed, peepholes, and attributes beyond the usual ones.
    """
    steps, batch, features = fixed_sizes(site.expr(0))
    require(steps <= MOST_STEPS, "steps", steps, f"{MOST_STEPS} at most")
    if site.has(4):
        lengths = {*site.value(4, "lengths of sequences").tolist()}
        require(lengths == {steps}, "lengths of sequences", lengths, steps)
    nodes = Nodes.inside_of(site.name, names)
    rows = nodes.reshaped("rows", site.operand(0), (steps * batch, features))
    backwards = _BACKWARDS[str(site.attr("direction"))]
    ways = [_way(site, nodes, rows, number, batch) for number, _ in enumerate(backwards)]
    site.attr("hidden_size")
    site.require_all_read()
    for way, back in zip(ways, backwards, strict=True):
        way.run(range(steps)[:: -1 if back else 1])
    parts = [
        [way.sequence(steps) for way in ways],
        *zip(*(way.ends() for way in ways), strict=True),
    ]
    for result, each, axis in zip_longest(site.node.output, parts, (1, 0, 0)):
        if result:
            nodes.add("Concat", result, *each, axis=axis)
    return nodes.made


def _way(site: Site, nodes: Nodes, rows: str, number: int, batch: int) -> _Way:
    """The direction ``number`` of a node that reads ``rows``."""
    kind, name = site.node.op_type, f"way{number}"
    weights, recurrent = (site.value(place, "weights")[number] for place in (1, 2))
    units = recurrent.shape[1]
    bias = np.zeros((2, len(weights)))
    if site.has(3):
        bias = site.value(3, "bias")[number].reshape(2, -1)
    # Of a GRU the bias of the hidden values' own weights may be inside of a product.
    inner = kind == "GRU" and bool(site.attr("linear_before_reset"))
    own = np.where(inner & (np.arange(len(weights)) >= 2 * units), bias[1], 0)
    named = site.attr("activations") or USUAL[kind] * (number + 1)
    functions = [each.decode() if isinstance(each, bytes) else each for each in named]
    functions = functions[number * len(USUAL[kind]) :][: len(USUAL[kind])]
    for each in functions:
        require(each in _FUNCTIONS, "function", each, ", ".join(_FUNCTIONS))
    numbers = {"W": weights, "B": bias.sum(0) - own}
    constants = (nodes.constant(f"{name}/{each}", values) for each, values in numbers.items())
    inputs = nodes.value("Gemm", f"{name}/inputs", rows, *constants, transB=1)
    begin = site.known(5) if site.has(5) else np.zeros(())
    if "Relu" not in functions and begin is not None and np.abs(begin).max() <= 1:
        # Hidden values are within -1 and 1. Inputs beyond what all of these can bring back are
        # worth no steps.
        bound = float(_FLAT + np.abs(recurrent).sum(1).max() + np.abs(own).max())
        ends = (nodes.constant(f"{name}/{n}", end) for n, end in (("low", -bound), ("high", bound)))
        inputs = nodes.value("Clip", f"{name}/held", inputs, *ends)
    state: list[str] = []
    for place in (5, 6)[: 1 + (kind == "LSTM")]:
        given, known = site.operand(place), site.known(place)
        if known is not None and not known.any():
            given = ""
        if given:
            given = nodes.part(f"{name}/state{place}/part", given, number, number + 1, 0)
            given = nodes.reshaped(f"{name}/state{place}", given, (batch, units))
        state.append(given)
    return _Way(
        nodes, name, kind, functions, recurrent, own if inner else None, batch, inputs, state
    )


@dataclass
class _Way:
    """One direction. ``inputs`` are by their weights, [steps * batch, gates * units]; ``state`` has
    the hidden values and, of an LSTM, those of the cell, [batch, units], "" for zeros."""

    nodes: Nodes
    name: str
    kind: str
    functions: Sequence[str]
    recurrent: Array
    own: Array | None
    batch: int
    inputs: str
    state: list[str]
    results: dict[int, str] = field(default_factory=dict)
    _constants: dict[str, str] = field(default_factory=dict)

    @property
    def units(self) -> int:
        return int(self.recurrent.shape[1])

    def run(self, steps: Iterable[int]) -> None:
        """All steps, in this order."""
        kinds: dict[str, Callable[..., list[str]]]
        kinds = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}
        for number in steps:
            at = f"{self.name}/step{number}"
            start = number * self.batch
            gates = self.nodes.part(f"{at}/inputs", self.inputs, start, start + self.batch, 0)
            self.state = kinds[self.kind](at, gates, *self.state)
            self.results[number] = self.state[0]

    def sequence(self, steps: int) -> str:
        """The hidden values of all steps, [steps, 1, batch, units]."""
        whole = self.results[0]
        if steps > 1:
            parts = (self.results[number] for number in range(steps))
            whole = self.nodes.value("Concat", f"{self.name}/all", *parts, axis=0)
        return self.nodes.reshaped(f"{self.name}/steps", whole, (steps, 1, self.batch, self.units))

    def ends(self) -> list[str]:
        """The state at the end, each [1, batch, units]."""
        return [
            self.nodes.reshaped(f"{self.name}/end{number}", value, (1, self.batch, self.units))
            for number, value in enumerate(self.state)
        ]

    def _lstm(self, at: str, inputs: str, hidden: str, cell: str) -> list[str]:
        f, g, h = self.functions
        sums = self._plus(f"{at}/sums", inputs, self._product(at, hidden, 0, 4))
        gates = self._function(f, f"{at}/gates", sums, 0, 3)
        made = self._function(g, f"{at}/new", sums, 3, 4)
        kept, new = self._gate(gates, 2), self._gate(gates, 0)
        cell = self._plus(
            f"{at}/cell",
            self._times(f"{at}/kept", kept, cell),
            self._times(f"{at}/added", new, made),
        )
        out = self.nodes.value(h, f"{at}/out", cell)
        return [self._times(f"{at}/hidden", self._gate(gates, 1), out), cell]

    def _gru(self, at: str, inputs: str, hidden: str) -> list[str]:
        f, g = self.functions
        first = self._rows(f"{at}/of_gates", inputs, 0, 2)
        sums = self._plus(f"{at}/sums", first, self._product(at, hidden, 0, 2) if hidden else "")
        gates = self.nodes.value(f, f"{at}/gates", sums)
        update, reset = self._gate(gates, 0), self._gate(gates, 1)
        if self.own is not None:
            own = self._times(f"{at}/reset", reset, self._product(at, hidden, 2, 3))
        else:
            own = self._product(at, self._times(f"{at}/reset", reset, hidden), 2, 3)
        sums = self._plus(f"{at}/sums_of_new", self._rows(f"{at}/of_new", inputs, 2, 3), own)
        new = self.nodes.value(g, f"{at}/new", sums)
        rest = self.nodes.value("Sub", f"{at}/rest", self._once("one", np.ones(())), update)
        kept = self._times(f"{at}/kept", update, hidden)
        return [self._plus(f"{at}/hidden", self._times(f"{at}/added", rest, new), kept)]

    def _rnn(self, at: str, inputs: str, hidden: str) -> list[str]:
        sums = self._plus(f"{at}/sums", inputs, self._product(at, hidden, 0, 1))
        return [self.nodes.value(self.functions[0], f"{at}/hidden", sums)]

    # --- Operators, of which "" is zero ---

    def _product(self, at: str, hidden: str, first: int, last: int) -> str:
        """Of hidden values and the weights of some gates, with the bias of their own."""
        rows = slice(first * self.units, last * self.units)
        bias = self._once(f"B{first}", self.own[rows]) if self.own is not None else ""
        if not hidden:
            return bias
        operands = [hidden, self._once(f"R{first}", self.recurrent[rows])]
        name = f"{at}/of_hidden{first}"
        return self.nodes.value("Gemm", name, *operands, *filter(None, [bias]), transB=1)

    def _once(self, name: str, values: Array) -> str:
        """A constant that all steps share."""
        if name not in self._constants:
            self._constants[name] = self.nodes.constant(f"{self.name}/{name}", values)
        return self._constants[name]

    def _plus(self, name: str, one: str, other: str) -> str:
        return self.nodes.value("Add", name, one, other) if one and other else one or other

    def _times(self, name: str, one: str, other: str) -> str:
        return self.nodes.value("Mul", name, one, other) if one and other else ""

    def _rows(self, name: str, value: str, first: int, last: int) -> str:
        """Those of some gates."""
        return (
            self.nodes.part(name, value, first * self.units, last * self.units, 1) if value else ""
        )

    def _gate(self, gates: str, number: int) -> str:
        name = gates.removeprefix(f"{self.nodes.name}/")
        return self._rows(f"{name}{number}", gates, number, number + 1)

    def _function(self, function: str, name: str, sums: str, first: int, last: int) -> str:
        part = self._rows(f"{name}/sums", sums, first, last)
        return self.nodes.value(function, name, part)
