"""A whole model as one graph: nothing of it stays on a host, for there is none."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from tinyai.errors import BoundaryError, OptionError
from tinyai.frontends import whole
from tinyai.frontends.qparams import quant_of_input, quant_of_output, readers_of
from tinyai.frontends.relay.functions import deep_recursion, regions
from tinyai.frontends.relay.hints import language
from tinyai.frontends.relay.load import load_model
from tinyai.frontends.relay.modules import module_of, with_constants
from tinyai.frontends.relay.qdq import folding
from tinyai.frontends.relay.source import Source, rounding_of
from tinyai.frontends.source_model import End, SourceModel, unread
from tinyai.frontends.tflite.checks import Ports, ports_of
from tinyai.ir import Graph
from tinyai.model_file import InputShapes
from tinyai.network import ENDS, Network, c_name, entry_name, network_of_graph
from tinyai.ops import operators_added
from tinyai.own import NO_BACKEND, OwnBackend
from tinyai.source import Expr, Opaque, Refusal
from tinyai.target import Target


def network_of(
    model: str | os.PathLike[str] | tvm.IRModule | Graph,
    target: str | Target | None = None,
    name: str = "",
    *,
    params: dict[str, Any] | None = None,
    ends: str = "model",
    input_shapes: InputShapes = "",
    own: OwnBackend = NO_BACKEND,
) -> Network:
    """The whole of ``model`` as one graph, for ``target``'s rounding, or a file's own framework's.

    ``model`` is the path of a file that ``load_model`` reads, with ``input_shapes`` if need be; a
    module from an importer or a quantizer with its ``params``; or a graph. ``name``, a C
    identifier, is the network's; without one it is made of the file's. ``ends="int8"`` leaves out
    the quantize that each float input begins with and the dequantize that each float output ends
    with, so that all are integers. A back end of one's ``own`` goes before tinyai.

    Raises ``OptionError`` for a model or name that is none, and for ends of which one cannot be had
    as integers; ``BoundaryError``, with a report, where an operator would stay on the host.
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
    name = entry_name(name) if name else c_name(file.stem if file else "network")
    if regions(mod):
        raise OptionError(
            "module",
            found="one that is partitioned",
            allowed="what an importer or a quantizer returns",
            hint="partition_for_tinyai is for tinyai.build and relay.build",
        )
    rounding = replace(rounding_of(None), mode=target.rounding)
    with deep_recursion(), operators_added(own.operators):
        is_tflite = file is not None and file.suffix.lower() == ".tflite"
        ports = ports_of(file.read_bytes()) if file and is_tflite else ((), ())
        source_model = _source_model(mod, params, *ports)
        try:
            return whole.network_of(source_model, name, rounding, ends, own)
        except BoundaryError as error:
            raise BoundaryError(
                error.what,
                report=error.report,
                found=error.found,
                allowed=error.allowed,
                hint=f"{error.hint}; {_WITH_HOST}",
            ) from None


_WITH_HOST = "tinyai.build, or -o NAME.relay.so, leaves the rest to TVM"


def _source_model(
    mod: tvm.IRModule, params: dict[str, Any] | None, first: Ports, last: Ports
) -> SourceModel:
    """A module as expressions. Names, scales and order of its ends are those of its file, as far as
    ``first`` and ``last`` have them: importers list inputs in the order of use."""
    folded = relay.transform.FoldConstant()(with_constants(mod, params))
    main, source = relay.transform.InferType()(folded)["main"], _Operators()
    results = main.body.fields if isinstance(main.body, relay.Tuple) else [main.body]
    outputs = [source(result) for result in results]
    readers = readers_of(outputs)
    said, order = dict(first), {name: place for place, (name, _) in enumerate(first)}
    inputs = [(str(param.name_hint), source(param)) for param in main.params]
    inputs.sort(key=lambda each: order.get(each[0], len(order)))
    ends = [End(name, e, said.get(name) or quant_of_input(e, readers)) for name, e in inputs]
    quants = [quant for _, quant in last] if len(last) == len(outputs) else [None] * len(outputs)
    outs = [
        End(name, expr, quant or quant_of_output(expr))
        for name, expr, quant in zip(_names(main, last, len(outputs)), outputs, quants, strict=True)
    ]
    return SourceModel(tuple(ends), tuple(outs), language(), folding(source))


def _names(main: relay.Function, last: Ports, count: int) -> list[str]:
    listed = main.attrs and dict(main.attrs).get("output_tensor_names")
    names = [name for name, _ in last] or [str(name) for name in listed or ()]
    if len(names) == count:
        return names
    return ["output"] if count == 1 else [f"output{i}" for i in range(count)]


class _Operators(Source):
    """What a module computes in another way than by operators is refused."""

    def _make(self, expr: relay.Expr) -> Expr:
        made = super()._make(expr)
        if isinstance(made, Opaque):
            refusal = Refusal("call", "a function", "an operator")
            return unread(type(expr.op).__name__, made.types, made.args, refusal)
        if type(made) is Expr and not isinstance(expr, relay.Var):
            refusal = Refusal("expression", type(expr).__name__, "operators")
            return unread(type(expr).__name__.lower(), made.types, (), refusal)
        return made
