"""A whole model as one graph: nothing of it stays on a host, for there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relay
from tvm.relay.expr_functor import ExprMutator

from tinyai.codegen.c import identifier
from tinyai.errors import BoundaryError, OptionError
from tinyai.frontends.relay.bench import contents, float_calls
from tinyai.frontends.relay.composites import with_composites
from tinyai.frontends.relay.explain import explain
from tinyai.frontends.relay.functions import deep_recursion, regions
from tinyai.frontends.relay.hints import language
from tinyai.frontends.relay.load import FilePorts, Shapes, load_model, ports_of_file
from tinyai.frontends.relay.modules import module_of, with_integers
from tinyai.frontends.relay.qparams import (
    MAKES,
    RESHAPES,
    operator_name,
    qparams,
    quant_of_input,
    quant_of_output,
    readers_of,
)
from tinyai.frontends.relay.source import Source, graph_from_region, post_order, rounding_of
from tinyai.ir import NARROW, Graph, QParams, verify
from tinyai.lowering import FLOATS, refusal_of_operator
from tinyai.network import ENDS, Network, Port, c_name, network_of_graph
from tinyai.partition.rows import float_row
from tinyai.report import Report, safe
from tinyai.source import Call, Refusal, Rounding
from tinyai.target import FRAMEWORKS, Target

Quants = Sequence[QParams | None]


def network_of(
    model: str | os.PathLike[str] | tvm.IRModule | Graph,
    target: str | Target | None = None,
    name: str = "",
    *,
    params: dict[str, Any] | None = None,
    ends: str = "model",
    input_shapes: str | Shapes = "",
) -> Network:
    """The whole of ``model`` as one graph, for ``target``'s rounding, or a file's own framework's.

    ``model`` is the path of a file that ``load_model`` reads, with ``input_shapes`` if need be; a
    module from an importer or a quantizer with its ``params``; or a graph. ``name``, a C
    identifier, is the network's; without one it is made of the file's. ``ends="int8"`` leaves out
    the quantize that each float input begins with and the dequantize that each float output ends
    with, so that all are integers.

    Raises ``OptionError`` for a model or name that is none, and for ends of which one cannot be had
    as integers; ``BoundaryError``, with the report of ``explain``, where an operator would stay on
    the host.
    """
    target = Target.of(target).for_model(model)
    if ends not in ENDS:
        raise OptionError("ends of a network", found=repr(ends), allowed=", ".join(ENDS))
    if isinstance(model, Graph):
        return network_of_graph(model, name)
    file = Path(model) if isinstance(model, str | os.PathLike) else None
    if file is not None and not params:
        mod, params = load_model(file, input_shapes)
    else:
        mod, params = module_of(model, params)
    name = identifier(name, "name") if name else c_name(file.stem if file else "network")
    if regions(mod):
        raise OptionError(
            "module",
            found="one that is partitioned",
            allowed="what an importer or a quantizer returns",
            hint="partition_for_tinyai is for tinyai.build and relay.build",
        )
    rounding = replace(rounding_of(None), mode=target.rounding)
    with deep_recursion():
        plain = with_integers(mod, params, rounding)
        main, ins, outs = _with_ends(plain["main"], ends)
        plain = relay.transform.InferType()(tvm.IRModule({"main": main}, plain.type_definitions))
        _refuse_floats(plain)
        composed = with_composites(plain, rounding=rounding)["main"]
        refused = next(_refusals(composed.body, rounding), None)
        if refused is not None:
            raise _boundary(mod, params, target, *refused)
        symbol = composed.with_attr("global_symbol", name)
        symbol = symbol.with_attr(Target.attribute("rounding"), target.rounding)
        graph = verify(graph_from_region(symbol))
    names = [str(param.name_hint) for param in main.params]
    known = ports_of_file(file) if file else None
    inputs = _inputs(graph, names, ins, known[0] if known else ())
    outputs = _outputs(graph, outs, known[1] if known else (), main)
    graph = replace(graph, inputs=tuple(tensor for tensor, _ in inputs))
    ports = tuple(port for _, port in inputs)
    return Network(name, graph, ports, outputs, rounding=target.rounding)


_REFUSED = "not all of the model can be compiled, and there is no host for the rest"
_WITH_HOST = "tinyai.build, or -o NAME.relay.so, leaves the rest to TVM"


def _refuse_floats(mod: tvm.IRModule) -> None:
    """Raise ``BoundaryError`` for a typed module that computes in floats alone."""
    calls = [call for call in float_calls(mod) if not _moves_floats(call)]
    if not calls:
        return
    raise BoundaryError(
        _REFUSED,
        report=Report(tuple(float_row(call, language()) for call in calls), ()),
        found=contents(mod),
        allowed=FLOATS,
        hint="quantize the model first: tinyai quantize, --calibrate, or its framework's tools; "
        + _WITH_HOST,
    )


def _boundary(
    mod: tvm.IRModule, params: Any, target: Target, call: Call, refusal: Refusal
) -> BoundaryError:
    options = {name: getattr(target, name) for name in ("rounding", "isa", "arch")}
    name = f" {safe(call.name, 60)!r}" if call.name else ""
    hint = "what the report says of each operator"
    if target.rounding != "upward" and _is_taken_upward(mod, params):
        whose = FRAMEWORKS[target.rounding]
        hint = (
            '--rounding upward, in Python rounding="upward": all of the model in TVM\'s integers, '
        )
        hint += f"which may be a step from {whose}'s"
    return BoundaryError(
        _REFUSED,
        report=explain(mod, params, **options),
        found=f"{call.spelled}{name}: {refusal.clause}: {safe(refusal.found)}",
        allowed=safe(refusal.allowed),
        hint=f"{hint}; {_WITH_HOST}",
    )


def _is_taken_upward(mod: tvm.IRModule, params: Any) -> bool:
    """Whether the rounding alone keeps a part of a model out."""
    rounding = replace(rounding_of(None), mode="upward")
    composed = with_composites(with_integers(mod, params, rounding), rounding=rounding)["main"]
    return next(_refusals(composed.body, rounding), None) is None


def _refusals(body: relay.Expr, rounding: Rounding) -> Iterator[tuple[Call, Refusal]]:
    """The calls outside of composites that are not taken, and why."""
    source = Source()
    for expr in post_order(body):
        if isinstance(expr, relay.Call) and not isinstance(expr.op, relay.Function):
            call = source(expr)
            if not isinstance(call, Call):
                shown = Call(
                    call.types, op=str(type(expr.op).__name__), load_attrs=dict, load=tuple
                )
                yield shown, Refusal("call", "a function", "an operator")
            elif not _moves_floats(call):
                refusal = refusal_of_operator(call, rounding)
                if refusal is not None:
                    yield call, refusal
        elif isinstance(expr, relay.If | relay.Let | relay.Match):
            shown = Call((), op=type(expr).__name__.lower(), load_attrs=dict, load=tuple)
            yield shown, Refusal("expression", type(expr).__name__, "operators")


def _moves_floats(call: Call) -> bool:
    """A float's reshape is of the same bytes: where a host would do it, there is nothing to do."""
    return call.op == "reshape" and all(of.dtype == "float32" for of in call.types)


# --- Inputs and outputs --------------------------------------------------------------------------


def _inputs(
    graph: Graph, names: Sequence[str], quants: Quants, known: FilePorts
) -> list[tuple[str, Port]]:
    """The graph's inputs with their ports, in the file's order: importers list them in that of
    use."""
    said = dict(known)
    found = [
        (tensor, Port(name, graph.type(tensor), _fitting(graph, tensor, said.get(name), quant)))
        for tensor, name, quant in zip(graph.inputs, names, quants, strict=True)
    ]
    order = {name: place for place, (name, _) in enumerate(known)}
    return sorted(found, key=lambda each: order.get(each[1].name, len(order)))


def _outputs(
    graph: Graph, quants: Quants, known: FilePorts, main: relay.Function
) -> tuple[Port, ...]:
    listed = main.attrs and dict(main.attrs).get("output_tensor_names")
    names = [name for name, _ in known] or [str(name) for name in listed or ()]
    if len(names) != len(graph.outputs):
        count = len(graph.outputs)
        names = ["output"] if count == 1 else [f"output{i}" for i in range(count)]
    said = [quant for _, quant in known] if len(known) == len(names) else [None] * len(names)
    return tuple(
        Port(name, graph.type(tensor), _fitting(graph, tensor, quant, own))
        for name, tensor, quant, own in zip(names, graph.outputs, said, quants, strict=True)
    )


def _fitting(graph: Graph, tensor: str, *quants: QParams | None) -> QParams | None:
    """The first that is known; none for floats."""
    of = graph.tensors[tensor]
    return None if of.type.dtype.is_float else next(filter(None, (*quants, of.quant)), None)


def _with_ends(main: relay.Function, ends: str) -> tuple[relay.Function, Quants, Quants]:
    """A typed function with such ends, and what the integers of its parameters and of its results
    stand for, where it says so."""
    whole = isinstance(main.body, relay.Tuple)
    results = list(main.body.fields) if whole else [main.body]
    readers = readers_of(main.body)
    ins = [quant_of_input(param, readers) for param in main.params]
    outs = [quant_of_output(result) for result in results]
    if ends == "model":
        return main, ins, outs
    params, cut = [], _Cut()
    for place, param in enumerate(main.params):
        new, quant = _integer_input(param, readers, cut)
        params.append(new)
        ins[place] = quant or ins[place]
    for place, result in enumerate(results):
        results[place], quant = _integer_output(result)
        outs[place] = quant or outs[place]
    results = [cut.visit(result) for result in results]
    body = relay.Tuple(results) if whole else results[0]
    return relay.Function(params, body, attrs=main.attrs, span=main.span), ins, outs


class _Cut(ExprMutator):  # type: ignore[misc]
    """Expressions in another's place."""

    def __init__(self) -> None:
        super().__init__()
        self.instead: dict[relay.Expr, relay.Expr] = {}

    def visit(self, expr: relay.Expr) -> relay.Expr:
        return self.instead[expr] if expr in self.instead else super().visit(expr)


def _no_integers(what: str, found: str) -> OptionError:
    return OptionError(
        "ends='int8'",
        found=f"{what}: {found}",
        allowed="a model whose float inputs are quantized and whose float outputs are dequantized, "
        "each by one scale, and nothing else",
        hint="ends='model'",
    )


def _integer_input(
    param: relay.Var, readers: dict[relay.Expr, list[relay.Call]], cut: _Cut
) -> tuple[relay.Var, QParams | None]:
    """The parameter itself where it is none of floats, else what its quantize makes."""
    if not param.checked_type.dtype.startswith("float"):
        return param, None
    what, calls = f"input {safe(param.name_hint, 60)!r}", readers.get(param, [])
    others = [call for call in calls if operator_name(call) != "qnn.quantize"]
    if others or not calls:
        raise _no_integers(
            what, f"read by {operator_name(others[0]) or 'an output'}" if others else "idle"
        )
    quants = {qparams(call, MAKES["qnn.quantize"]) for call in calls}
    types = {str(call.checked_type.dtype) for call in calls}
    (quant, *more), (dtype, *_) = quants, sorted(types)
    if quant is None or more or len(types) > 1 or dtype not in NARROW:
        raise _no_integers(what, f"{len(quants)} scales, {', '.join(sorted(types))}")
    new = relay.Var(param.name_hint, calls[0].checked_type, param.span)
    cut.instead |= dict.fromkeys(calls, new)
    return new, quant


def _integer_output(result: relay.Expr) -> tuple[relay.Expr, QParams | None]:
    """The result itself where it is none of floats, else what is dequantized."""
    if not result.checked_type.dtype.startswith("float"):
        return result, None
    if operator_name(result) in RESHAPES:
        inner, quant = _integer_output(result.args[0])
        return relay.Call(
            result.op, [inner, *result.args[1:]], result.attrs, None, result.span
        ), quant
    if operator_name(result) != "qnn.dequantize":
        raise _no_integers("an output", f"made by {operator_name(result) or 'no operator'}")
    quant, of = qparams(result, (1, 2)), result.args[0].checked_type.dtype
    if quant is None or of not in NARROW:
        raise _no_integers("an output", f"dequantized from {of}")
    return result.args[0], quant
