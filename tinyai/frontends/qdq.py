"""Integers for Relay modules that compute with floats between dequantize and quantize.

Quantized ONNX files come from ``relay.frontend.from_onnx`` as ``qnn.dequantize``, float operators,
``qnn.quantize``. ``integers_from_qdq`` writes them with QNN's integer operators;
``float_operators`` tells what it has to leave.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import tvm
from tvm import relay

from tinyai.frontends.qdq_rules import MOVES, function_of_values, quantized
from tinyai.frontends.qdq_values import View, float_calls, is_call
from tinyai.frontends.relay_source import children, span_name
from tinyai.source import TVMS_OWN, Refusal, Rounding


@dataclass(frozen=True)
class FloatOperator:
    """An operator that stays float: its name in the source model, and why."""

    name: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operator} {self.name!r}: {self.reason}"


def integers_from_qdq(mod: tvm.IRModule, rounding: Rounding = TVMS_OWN) -> tvm.IRModule:
    """``mod`` with integer operators where floats lie between dequantize and quantize.

    Weights must be constants in it: bind parameters first. What has no integer form stays as it
    is, and ``float_operators`` names it; functions of single values (sigmoid, ...) and softmax stay
    between their dequantize and quantize. A float that is wanted elsewhere too keeps the operators
    that make it. Source names go with the operators. The argument is not changed, and a module
    without anything to do is returned as it is.
    """
    typed = relay.transform.InferType()(mod)
    integers = integers_of_typed(typed, rounding)
    return mod if integers.same_as(typed) else integers


def integers_of_typed(mod: tvm.IRModule, rounding: Rounding) -> tvm.IRModule:
    """``integers_from_qdq`` of a module whose types are inferred, as the result's are."""
    functions = {
        v: _Rewriting(f, rounding).function() if _is_plain(f) else f
        for v, f in mod.functions.items()
    }
    if all(functions[v].same_as(f) for v, f in mod.functions.items()):
        return mod
    rewritten = tvm.IRModule(functions, mod.type_definitions, mod.attrs)
    return relay.transform.InferType()(rewritten)


def float_operators(mod: tvm.IRModule, rounding: Rounding = TVMS_OWN) -> tuple[FloatOperator, ...]:
    """What ``integers_from_qdq`` leaves float in ``mod``, in order of computation.

    Chains that become tables, and softmax between quantized values, are not among them.
    """
    typed = relay.transform.InferType()(integers_from_qdq(mod, rounding))
    return tuple(
        each
        for variable, func in sorted(typed.functions.items(), key=lambda f: f[0].name_hint)
        if isinstance(func, relay.Function)
        for each in (
            _Rewriting(func, rounding).left() if _is_plain(func) else _whole(variable, func)
        )
    )


def _is_plain(func: object) -> bool:
    """Whether a function is a graph of calls: no lets, branches or inner functions."""
    kinds: list[bool] = []
    if not isinstance(func, relay.Function) or "Compiler" in (func.attrs or {}):
        return False
    plain = relay.Var | relay.Constant | relay.Call | relay.Tuple | relay.TupleGetItem
    relay.analysis.post_order_visit(
        func.body, lambda e: kinds.append(isinstance(e, plain | tvm.ir.Op | tvm.ir.GlobalVar))
    )
    return all(kinds)


def _whole(variable: tvm.ir.GlobalVar, func: relay.Function) -> Iterator[FloatOperator]:
    """A function that is no plain graph of calls is left as it is."""
    if "Compiler" not in (func.attrs or {}):
        yield FloatOperator(variable.name_hint, "function", "it holds let, if or inner functions")


class _Rewriting:
    """One function, rewritten expression by expression, arguments first."""

    def __init__(self, func: relay.Function, rounding: Rounding) -> None:
        self.func = func
        self.view = View(func, MOVES, rounding)
        self.refused: dict[relay.Expr, Refusal] = {}
        self.tables: set[relay.Expr] = set()
        self._made: dict[tuple[relay.Expr, object], relay.Expr] = {}
        for expr in self.view.order:
            self.view.new[expr] = self._visit(expr)

    def function(self) -> relay.Function:
        """The rewritten function; the same object where nothing was done."""
        body = self.view.new[self.func.body]
        if body.same_as(self.func.body):
            return self.func
        func = self.func
        return relay.Function(
            func.params, body, func.ret_type, func.type_params, func.attrs, func.span
        )

    def left(self) -> Iterator[FloatOperator]:
        """Float operators that stayed, and why."""
        for call in float_calls(self.view.order):
            if call not in self.tables and self.view.uniform(call) is None:
                refusal = self.refused.get(call)
                reason = str(refusal) if refusal else "its result is used as float32"
                yield FloatOperator(span_name(call), call.op.name, reason)

    def _visit(self, expr: relay.Expr) -> relay.Expr:
        if is_call(expr, "qnn.quantize") and not self.view.is_constant(expr):
            return self._quantize(expr)
        return self._rebuilt(expr)

    def _quantize(self, call: relay.Call) -> relay.Expr:
        try:
            key = call.args[0], self.view.grid(call)
            if key not in self._made:
                self._made[key] = self._integers_or_table(call)
            return self._made[key]
        except Refusal as refusal:
            self.refused[call.args[0]] = refusal
        return self._rebuilt(call)

    def _integers_or_table(self, call: relay.Call) -> relay.Expr:
        try:
            return quantized(self.view, call)
        except Refusal as refusal:
            with contextlib.suppress(Refusal):
                function = function_of_values(self.view, call)
                self.tables.update(function.calls)
                return function.expr
            raise refusal

    def _rebuilt(self, expr: relay.Expr) -> relay.Expr:
        """The same expression over what its arguments became."""
        new = [self.view.new[child] for child in children(expr)]
        if all(a.same_as(b) for a, b in zip(new, children(expr), strict=True)):
            return expr
        if isinstance(expr, relay.Call):
            return relay.Call(expr.op, new, expr.attrs, expr.type_args, expr.span)
        if isinstance(expr, relay.Tuple):
            return relay.Tuple(new, expr.span)
        return relay.TupleGetItem(new[0], expr.index, expr.span)
