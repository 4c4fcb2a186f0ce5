"""Composites that TVM does not look into.

``relay.build`` infers the types of a module some 75 times, and its rule for a convolution prints
layouts for a log that is off: half a millisecond a convolution each time. Types are four fifths of
what ``relay.build`` does for mobilenet_v2. A sealed composite has the type and the attributes of
another, which it carries as an attribute, and a body that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relay
from tvm.relay.expr_functor import ExprMutator

from tinyai.frontends.relay.functions import deep_recursion, has, with_functions
from tinyai.target import COMPILER

SEALED = f"{COMPILER}.sealed"


def seal(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with tinyai's composites sealed, so that ``relay.build`` is quicker.

    ``mod`` is the result of ``partition_for_tinyai``. What is built from it is the same; to read
    it, ``unseal`` it. The argument is not changed. A composite whose types were not inferred stays
    as it is.
    """
    return _changed(mod, _sealed)


def unseal(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with every composite as it was before ``seal``. The argument is not changed."""
    return _changed(mod, unsealed)


def unsealed(func: relay.Function) -> relay.Function:
    """The composite that a sealed one stands for; any other as it is."""
    return func.attrs[SEALED] if has(func, SEALED) else func


def _sealed(func: relay.Function) -> relay.Function:
    try:
        result = func.checked_type.ret_type
    except ValueError:
        return func
    if has(func, SEALED):
        return func
    params = [relay.Var(param.name_hint, param.checked_type) for param in func.params]
    sealed = relay.Function(params, _zeros(result), result, func.type_params, func.attrs, func.span)
    return sealed.with_attr(SEALED, func)


def _zeros(of: relay.Type) -> relay.Expr:
    """A value of a type, whose shape is fixed: no other composite is tinyai's."""
    if isinstance(of, relay.TupleType):
        return relay.Tuple([_zeros(field) for field in of.fields])
    return relay.zeros([int(dim) for dim in of.shape], of.dtype)


Change = Callable[[relay.Function], relay.Function]


def _changed(mod: tvm.IRModule, change: Change) -> tvm.IRModule:
    """``mod`` with ``change`` of each of tinyai's composites, its types inferred."""
    changed = Composites(change)
    with deep_recursion():
        functions = {
            variable: changed.visit(func) if isinstance(func, relay.Function) else func
            for variable, func in mod.functions.items()
        }
    return with_functions(mod, functions)


class Composites(ExprMutator):  # type: ignore[misc]
    """Each of tinyai's composites changed by a function."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change

    def visit_function(self, fn: relay.Function) -> relay.Function:
        if has(fn, "Composite") and str(fn.attrs["Composite"]).startswith(f"{COMPILER}."):
            return self.change(fn)
        body = self.visit(fn.body)
        return relay.Function(list(fn.params), body, fn.ret_type, fn.type_params, fn.attrs, fn.span)
