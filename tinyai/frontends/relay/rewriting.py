"""What undoes TVM's passes: functions in the place of their calls, and names as they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relay
from tvm.relay.expr_functor import ExprMutator

from tinyai.frontends.relay.functions import compiler_of, has, with_functions
from tinyai.frontends.relay.seal import unsealed
from tinyai.target import COMPILER


def inlined(
    mod: tvm.IRModule, bodies: Mapping[str, relay.Function], composites: str = ""
) -> tvm.IRModule:
    """``mod`` without its functions of the names of ``bodies``: what a body computes stands where
    the function was called. So does what a composite of the compiler ``composites`` computes."""
    change = _Inlined(bodies, composites)
    functions = {
        variable: change.visit(func) if _is_hosts(func) else func
        for variable, func in mod.functions.items()
        if variable.name_hint not in bodies
    }
    return with_functions(mod, functions)


class _Inlined(ExprMutator):  # type: ignore[misc]
    def __init__(self, bodies: Mapping[str, relay.Function], composites: str) -> None:
        super().__init__()
        self.bodies, self.composites = bodies, composites

    def visit_call(self, call: relay.Call) -> relay.Expr:
        body = self._body(call.op)
        if body is None:
            return super().visit_call(call)
        bound = dict(zip(body.params, map(self.visit, call.args), strict=True))
        return relay.bind(self.visit(body.body), bound)

    def _body(self, op: relay.Expr) -> relay.Function | None:
        if isinstance(op, tvm.ir.GlobalVar):
            return self.bodies.get(op.name_hint)
        named = self.composites and isinstance(op, relay.Function) and has(op, "Composite")
        ours = named and str(op.attrs["Composite"]).startswith(f"{self.composites}.")
        return unsealed(op) if ours else None

    def visit_tuple_getitem(self, op: relay.TupleGetItem) -> relay.Expr:
        made = super().visit_tuple_getitem(op)
        whole = made.tuple_value
        return whole.fields[made.index] if isinstance(whole, relay.Tuple) else made

    def visit_function(self, fn: relay.Function) -> relay.Function:
        if has(fn, "Composite"):
            return fn
        body = self.visit(fn.body)
        return relay.Function(list(fn.params), body, fn.ret_type, fn.type_params, fn.attrs, fn.span)


def symbols_of_others(mod: tvm.IRModule) -> set[str]:
    """The names of the functions that are for a compiler already."""
    return {v.name_hint for v, func in mod.functions.items() if compiler_of(func) is not None}


def with_symbols(mod: tvm.IRModule, symbols: set[str]) -> tvm.IRModule:
    """``mod`` whose functions for other compilers have the names ``symbols`` again, in front of
    which PartitionGraph put its prefix."""
    names: dict[str, tvm.ir.GlobalVar] = {}
    for variable, func in mod.functions.items():
        old = next((s for s in symbols if variable.name_hint.endswith(f"_{s}")), None)
        if old is not None and compiler_of(func) not in (None, COMPILER):
            names[variable.name_hint] = tvm.ir.GlobalVar(old)
    if not names:
        return mod
    change, functions = _Renamed(names), {}
    for variable, func in mod.functions.items():
        if variable.name_hint in names:
            variable = names[variable.name_hint]
            func = func.with_attr("global_symbol", variable.name_hint)
        elif _is_hosts(func):
            func = change.visit(func)
        functions[variable] = func
    return with_functions(mod, functions)


class _Renamed(ExprMutator):  # type: ignore[misc]
    def __init__(self, names: Mapping[str, tvm.ir.GlobalVar]) -> None:
        super().__init__()
        self.names = names

    def visit_global_var(self, gvar: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        return self.names.get(gvar.name_hint, gvar)


def _is_hosts(func: Any) -> bool:
    return isinstance(func, relay.Function) and compiler_of(func) is None
