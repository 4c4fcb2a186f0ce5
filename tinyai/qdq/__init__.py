"""Quantize/dequantize pairs become integers, for every front end.

Quantized models come in as dequantize, float operators, quantize. ``Rewriting`` writes them with
the vocabulary's integer operators, and tells what it has to leave.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from tinyai.qdq.functions import function_of_values
from tinyai.qdq.moves import MOVES
from tinyai.qdq.operands import Fold, View, float_calls, is_call
from tinyai.qdq.rules import quantized
from tinyai.source import Call, Expr, Refusal, Rounding, children, post_order, rebuilt


@dataclass(frozen=True)
class FloatOperator:
    """An operator that stays float: its name in the source model, and why."""

    name: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operator} {self.name!r}: {self.reason}"


class Rewriting:
    """A model, rewritten expression by expression, arguments first.

    Weights must be constants in it. What has no integer form stays as it is; functions of single
    values (sigmoid, ...) and softmax stay between their dequantize and quantize. A float that is
    wanted elsewhere too keeps the operators that make it. Names of nodes go with the operators.
    ``fold`` computes constants that are more than moved, dequantized or quantized; without it they
    are refused. ``as_written`` is for a model whose framework computes the floats of such operators
    as floats: then only what moves or bounds values becomes integers, where no bit changes.
    ``result`` is the rewritten model: the same object where nothing was done.
    """

    def __init__(
        self, root: Expr, rounding: Rounding, fold: Fold | None = None, *, as_written: bool = False
    ) -> None:
        self.view = View(root, MOVES, rounding, fold, as_written=as_written)
        self.refused: dict[Expr, Refusal] = {}
        self.tables: set[Expr] = set()
        self._made: dict[tuple[Expr, object], Expr] = {}
        for expr in self.view.order:
            self.view.new[expr] = self._visit(expr)
        self.result = self.view.new[root]

    def left(self) -> Iterator[FloatOperator]:
        """The float operators of ``floats``, with their names and reasons."""
        for call, refusal in self.floats():
            reason = str(refusal) if refusal else "its result is used as float32"
            yield FloatOperator(call.name, call.spelled, reason)

    def floats(self) -> Iterator[tuple[Call, Refusal | None]]:
        """The float operators that are left, in order of computation, each with its refusal, or
        None where nothing quantizes its result. Chains that become tables, and softmax between
        quantized values, are left out unless their float results are read too."""
        for call in float_calls(self.view.order):
            table = call in self.tables and self.view.only_for(call, self.tables)
            if not table and self.view.uniform(call) is None:
                yield call, self.refused.get(call)

    def _visit(self, expr: Expr) -> Expr:
        if is_call(expr, "quantize") and not self.view.is_constant(expr):
            return self._quantize(expr)
        return self._rebuilt(expr)

    def _quantize(self, call: Call) -> Expr:
        try:
            key = call["data"], self.view.grid(call)
            if key not in self._made:
                self._made[key] = self._integers_or_table(call)
            return self._made[key]
        except Refusal as refusal:
            self.refused[call["data"]] = refusal
        return self._rebuilt(call)

    def _integers_or_table(self, call: Call) -> Expr:
        try:
            return quantized(self.view, call)
        except Refusal as refusal:
            with contextlib.suppress(Refusal):
                function = function_of_values(self.view, call)
                self.tables.update(function.calls)
                return function.expr
            raise refusal

    def _rebuilt(self, expr: Expr) -> Expr:
        """The same expression over what its arguments became."""
        return rebuilt(expr, [self.view.new[child] for child in children(expr)])


def floats_of(integers: Expr, rounding: Rounding) -> Iterator[tuple[Call, Refusal | None]]:
    """What ``Rewriting.floats`` yields of a model that was rewritten before."""
    if any(float_calls(tuple(post_order(integers)))):
        yield from Rewriting(integers, rounding).floats()
