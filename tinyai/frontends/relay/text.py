"""A module as Relay's text, with its constants, to be read again by ``load_model``."""

from __future__ import annotations

import tvm
from tvm import relay

from tinyai.errors import OptionError
from tinyai.frontends.relay.functions import deep_recursion
from tinyai.frontends.relay.source import post_order


def text_of(mod: tvm.IRModule) -> str:
    """``main`` of a module, a plain graph, as text. Names of layers are not in it: TVM writes them
    as comments, which a name may end.

    Raises ``OptionError`` where TVM does not read the same module from it.
    """
    plain = relay.transform.InferType()(tvm.IRModule.from_expr(_without_spans(mod["main"])))
    with deep_recursion():
        text = str(plain.astext())
        try:
            again = relay.transform.InferType()(relay.fromtext(text))
            same = tvm.ir.structural_equal(plain, again)
        except Exception:  # the parser raises what it likes
            same = False
    if not same:
        raise OptionError(
            "module as Relay's text",
            found="text that TVM reads as another module, or not at all",
            allowed="a module with names of inputs that the text can hold",
            hint="name the inputs by letters, digits and _",
        )
    return text


def _without_spans(func: relay.Function) -> relay.Function:
    made: dict[relay.Expr, relay.Expr] = {}
    for param in func.params:
        made[param] = relay.Var(param.name_hint, param.checked_type)
    for expr in post_order(func.body):
        if expr not in made:
            made[expr] = _copied(expr, made)
    return relay.Function([made[param] for param in func.params], made[func.body])


def _copied(expr: relay.Expr, made: dict[relay.Expr, relay.Expr]) -> relay.Expr:
    if isinstance(expr, relay.Call):
        return relay.Call(expr.op, [made[arg] for arg in expr.args], expr.attrs)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple([made[field] for field in expr.fields])
    if isinstance(expr, relay.TupleGetItem):
        return relay.TupleGetItem(made[expr.tuple_value], expr.index)
    if isinstance(expr, relay.Constant):
        return _constant(expr)
    return expr


def _constant(expr: relay.Constant) -> relay.Expr:
    """The text holds tensors whole, but six digits of a single float: that becomes a tensor of one
    element without its axis."""
    value = expr.data.numpy()
    if value.shape or value.dtype.kind != "f" or value == value.dtype.type(f"{value:g}"):
        return relay.Constant(expr.data)
    return relay.squeeze(relay.Constant(tvm.nd.array(value.reshape(1))), [0])
