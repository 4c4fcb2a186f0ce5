"""A module as Relay's text, with its constants and the names of its inputs and layers, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import tvm
from tvm import relay

from tinyai.errors import OptionError
from tinyai.frontends.relay.functions import deep_recursion
from tinyai.frontends.relay.source import post_order, span_name

# Comments at the end of a text.
_INPUTS, _LAYERS = "inputs", "layers"
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)  # what the text can hold as a name


def text_of(mod: tvm.IRModule) -> str:
    """``main`` of a module, a plain graph, as text; the last lines have the names of its inputs,
    where the text cannot hold one (``serving_default_x:0``), and of its calls.

    TVM would write the names as comments, which a hostile one may end. Raises ``OptionError`` where
    TVM does not read the same module from it.
    """
    hints = [str(param.name_hint) for param in mod["main"].params]
    inputs = "" if all(map(_WORD.fullmatch, hints)) else _comment(_INPUTS, hints)
    main, names = _without_spans(mod["main"])
    with deep_recursion():
        try:
            plain = relay.transform.InferType()(tvm.IRModule.from_expr(main))
            text = f"{plain.astext()}\n{inputs}{_comment(_LAYERS, names)}"
            same = tvm.ir.structural_equal(plain, module_of(text))
        except Exception:  # TVM's passes and its parser raise exceptions of any kind
            same = False
    if not same:
        raise OptionError(
            "module as Relay's text",
            found="text that TVM reads as another module, or not at all",
            allowed="a module of operators and constants that the text can hold",
            hint="go on in Python: tinyai.quantize gives the module itself",
        )
    return text


def module_of(text: str) -> tvm.IRModule:
    """The typed module of a text, with the names of inputs and calls that ``text_of`` wrote, if it
    did.

    Raises what TVM's parser does."""
    # Else the parser gives each call the name of the text.
    mod = relay.transform.InferType()(relay.fromtext(text, source_name=""))
    main = mod["main"]
    inputs, names = _names(text, _INPUTS), _names(text, _LAYERS)
    # Else the comments are not of text_of, or the text was edited since.
    inputs = inputs if len(inputs) == len(main.params) else []
    calls = sum(isinstance(expr, relay.Call) for expr in post_order(main.body))
    names = names if len(names) == calls else []
    if not inputs and not names:
        return mod
    mod["main"] = _with_names(main, inputs, names or [""] * calls)
    return relay.transform.InferType()(mod)


def _comment(what: str, names: Sequence[str]) -> str:
    """Names as JSON in a comment that none of them ends."""
    escaped = json.dumps(names).replace("*", "\\u002a")
    return f"/* {what}: {escaped} */\n"


def _names(text: str, what: str) -> list[str]:
    """Of a comment at the end of the text; none where it has no such."""
    _, _, rest = text.rpartition(f"\n/* {what}: ")
    try:
        names = json.loads(rest.partition("*/")[0])
    except ValueError:
        return []
    fits = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if fits else []


def _without_spans(func: relay.Function) -> tuple[relay.Function, list[str]]:
    """With parameters that the text can hold; and the names of its calls, in order."""
    made: dict[relay.Expr, relay.Expr] = {}
    names: list[str] = []
    for place, param in enumerate(func.params):
        hint = str(param.name_hint)
        name = hint if _WORD.fullmatch(hint) else f"input{place}"
        made[param] = relay.Var(name, param.checked_type)
    for expr in post_order(func.body):
        if expr not in made:
            constant = isinstance(expr, relay.Constant)
            made[expr] = _constant(expr) if constant else _copied(expr, made)
            names += [span_name(expr)] if isinstance(made[expr], relay.Call) else []
    return relay.Function([made[param] for param in func.params], made[func.body]), names


def _with_names(
    func: relay.Function, inputs: Sequence[str], names: Sequence[str]
) -> relay.Function:
    made: dict[relay.Expr, relay.Expr] = {}
    for param, name in zip(func.params, inputs, strict=False):
        made[param] = relay.Var(name, param.checked_type)
    left = iter(names)
    for expr in post_order(func.body):
        name = next(left) if isinstance(expr, relay.Call) else ""
        span = relay.Span(relay.SourceName(name), 0, 0, 0, 0) if name else None
        if expr not in made:
            made[expr] = _copied(expr, made, span)
    params = [made.get(param, param) for param in func.params]
    return relay.Function(params, made[func.body])


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
