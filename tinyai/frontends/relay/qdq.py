"""Integers for Relay modules that compute with floats between dequantize and quantize.

Quantized ONNX files come from ``relay.frontend.from_onnx`` as ``qnn.dequantize``, float operators,
``qnn.quantize``. They are read into the vocabulary, rewritten there (``tinyai/qdq``), and what has
changed is written as Relay again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tvm
from tvm import relay

from tinyai.frontends.relay.functions import with_functions
from tinyai.frontends.relay.source import Source
from tinyai.frontends.relay.writer import Writer
from tinyai.ir import Array
from tinyai.qdq import FloatOperator, Rewriting
from tinyai.qdq.operands import Fold, operator_name
from tinyai.source import TVMS_OWN, Expr, Refusal, Rounding


def integers_from_qdq(mod: tvm.IRModule, rounding: Rounding = TVMS_OWN) -> tvm.IRModule:
    """``mod`` with integer operators where floats lie between dequantize and quantize.

    Weights must be constants in it: bind parameters first. What has no integer form stays as it
    is, and ``float_operators`` names it. The argument is not changed, and a module without anything
    to do is returned as it is.
    """
    typed = relay.transform.InferType()(mod)
    integers = integers_of_typed(typed, rounding)
    return mod if integers.same_as(typed) else integers


def integers_of_typed(mod: tvm.IRModule, rounding: Rounding) -> tvm.IRModule:
    """``integers_from_qdq`` of a module whose types are inferred, as the result's are."""
    functions = {
        v: _Function(f, rounding).rewritten() if is_plain(f) and _quantizes(f) else f
        for v, f in mod.functions.items()
    }
    if all(functions[v].same_as(f) for v, f in mod.functions.items()):
        return mod
    return with_functions(mod, functions)


def float_operators(mod: tvm.IRModule, rounding: Rounding = TVMS_OWN) -> tuple[FloatOperator, ...]:
    """What ``integers_from_qdq`` leaves float in ``mod``, in order of computation."""
    typed = relay.transform.InferType()(integers_from_qdq(mod, rounding))
    return tuple(
        each
        for variable, func in sorted(typed.functions.items(), key=lambda f: f[0].name_hint)
        if isinstance(func, relay.Function)
        for each in (
            _Function(func, rounding).rewriting.left() if is_plain(func) else _whole(variable, func)
        )
    )


def is_plain(func: object) -> bool:
    """Whether a function is a graph of calls: no lets, branches or inner functions."""
    kinds: list[bool] = []
    if not isinstance(func, relay.Function) or "Compiler" in (func.attrs or {}):
        return False
    plain = relay.Var | relay.Constant | relay.Call | relay.Tuple | relay.TupleGetItem
    relay.analysis.post_order_visit(
        func.body, lambda e: kinds.append(isinstance(e, plain | tvm.ir.Op | tvm.ir.GlobalVar))
    )
    return all(kinds)


def _quantizes(func: relay.Function) -> bool:
    """Whether there is anything to rewrite: to read a large module takes a tenth of a second."""
    found: list[bool] = []
    relay.analysis.post_order_visit(
        func.body, lambda e: found.append(isinstance(e, tvm.ir.Op) and e.name == "qnn.quantize")
    )
    return any(found)


def _whole(variable: tvm.ir.GlobalVar, func: relay.Function) -> Iterator[FloatOperator]:
    """A function that is no plain graph of calls is left as it is."""
    if "Compiler" not in (func.attrs or {}):
        yield FloatOperator(variable.name_hint, "function", "it holds let, if or inner functions")


class _Function:
    """A plain function and its rewriting."""

    def __init__(self, func: relay.Function, rounding: Rounding) -> None:
        self.func, self.source = func, Source()
        self.rewriting = Rewriting(self.source(func.body), rounding, folding(self.source))

    def rewritten(self) -> relay.Function:
        """The rewritten function; the same object where nothing was done."""
        func, result = self.func, self.rewriting.result
        if result is self.source(func.body):
            return func
        body = Writer(self.source)(result)
        return relay.Function(
            func.params, body, func.ret_type, func.type_params, func.attrs, func.span
        )


def folding(source: Source) -> Fold:
    """TVM's value of a constant expression that ``source`` read."""

    def fold(expr: Expr) -> Array:
        written = next(written for written, each in source.made.items() if each is expr)
        folded = relay.transform.FoldConstantExpr(written, tvm.IRModule(), fold_qnn=True)
        if not isinstance(folded, relay.Constant):
            raise Refusal("constant", operator_name(expr), "a known one")
        return np.asarray(folded.data.numpy())

    return fold
