"""A module as Relay's text, with its constants and the names of its layers, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence

import tvm
from tvm import relay

from tinyai.errors import OptionError
from tinyai.frontends.relay.functions import deep_recursion
from tinyai.frontends.relay.source import post_order, span_name

_NAMES = "\n/* layers: "


def text_of(mod: tvm.IRModule) -> str:
    """``main`` of a module, a plain graph, as text; the last line has the names of its calls.

    TVM would write the names as comments, which a hostile one may end. Raises ``OptionError`` where
    TVM does not read the same module from it.
    """
    main, names = _without_spans(mod["main"])
    plain = relay.transform.InferType()(tvm.IRModule.from_expr(main))
    with deep_recursion():
        text = f"{plain.astext()}{_NAMES}{_in_comment(names)} */\n"
        try:
            same = tvm.ir.structural_equal(plain, module_of(text))
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


def module_of(text: str) -> tvm.IRModule:
    """The typed module of a text, its calls with the names that ``text_of`` wrote, if it did.

    Raises what TVM's parser does."""
    # Else the parser gives each call the name of the text.
    mod = relay.transform.InferType()(relay.fromtext(text, source_name=""))
    names, main = _names(text), mod["main"]
    if len(names) != sum(isinstance(expr, relay.Call) for expr in post_order(main.body)):
        return mod  # not of text_of, or edited since
    mod["main"] = _with_spans(main, names)
    return relay.transform.InferType()(mod)


def _in_comment(names: Sequence[str]) -> str:
    """JSON that no name ends the comment of."""
    return json.dumps(names).replace("*", "\\u002a")


def _names(text: str) -> list[str]:
    """Of the calls in order, none where the text does not end with them."""
    _, _, line = text.rstrip().rpartition(_NAMES)
    try:
        names = json.loads(line.removesuffix("*/"))
    except ValueError:
        return []
    fits = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if fits else []


def _without_spans(func: relay.Function) -> tuple[relay.Function, list[str]]:
    """And the names of its calls, in order."""
    made: dict[relay.Expr, relay.Expr] = {}
    names: list[str] = []
    for param in func.params:
        made[param] = relay.Var(param.name_hint, param.checked_type)
    for expr in post_order(func.body):
        if expr not in made:
            constant = isinstance(expr, relay.Constant)
            made[expr] = _constant(expr) if constant else _copied(expr, made)
            names += [span_name(expr)] if isinstance(made[expr], relay.Call) else []
    return relay.Function([made[param] for param in func.params], made[func.body]), names


def _with_spans(func: relay.Function, names: Sequence[str]) -> relay.Function:
    made: dict[relay.Expr, relay.Expr] = {}
    left = iter(names)
    for expr in post_order(func.body):
        name = next(left) if isinstance(expr, relay.Call) else ""
        span = relay.Span(relay.SourceName(name), 0, 0, 0, 0) if name else None
        made[expr] = _copied(expr, made, span)
    return relay.Function(func.params, made[func.body])


def _copied(
    expr: relay.Expr, made: dict[relay.Expr, relay.Expr], span: relay.Span | None = None
) -> relay.Expr:
    if isinstance(expr, relay.Call):
        return relay.Call(expr.op, [made[arg] for arg in expr.args], expr.attrs, None, span)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple([made[field] for field in expr.fields])
    if isinstance(expr, relay.TupleGetItem):
        return relay.TupleGetItem(made[expr.tuple_value], expr.index)
    return expr


def _constant(expr: relay.Constant) -> relay.Expr:
    """The text holds tensors whole, but six digits of a single float: that becomes a tensor of one
    element without its axis."""
    value = expr.data.numpy()
    if value.shape or value.dtype.kind != "f" or value == value.dtype.type(f"{value:g}"):
        return relay.Constant(expr.data)
    return relay.squeeze(relay.Constant(tvm.nd.array(value.reshape(1))), [0])
