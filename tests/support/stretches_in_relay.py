"""Random stretches as Relay modules, written operator by operator as an importer would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relay

from tests.support.random_stretches import Model
from tinyai.frontends.relay import writer
from tinyai.frontends.relay.spelling import UNSPELLED, spelled
from tinyai.source import Call, Constant, Expr, Field, Tuple, post_order

_NAMES = {
    "kernel": "pool_size",
    "source": "src_layout",
    "target": "dst_layout",
    "low": "a_min",
    "high": "a_max",
}


def as_relay(model: Model) -> tvm.IRModule:
    """Parameters are named x0, x1, ... in order."""
    made: dict[Expr, Any] = {
        expr: relay.var(f"x{place}", shape=expr.type.shape, dtype=expr.type.dtype)
        for place, expr in enumerate(model.inputs)
    }
    params = list(made.values())
    root = model.root
    for expr in post_order(root):
        if expr not in made:
            made[expr] = _written(expr, made)
    func = relay.Function(params, made[root])
    return relay.transform.InferType()(tvm.IRModule.from_expr(func))


def _written(expr: Expr, made: dict[Expr, Any]) -> Any:
    match expr:
        case Constant():
            return relay.const(expr.value, expr.type.dtype)
        case Tuple():
            return relay.Tuple([made[each] for each in expr.fields])
        case Field():
            return made[expr.call][expr.index]
        case Call():
            args = [made[arg] for arg in expr.args]
            return WRITERS.get(expr.op, _plainly)(expr, *args)
    raise TypeError(repr(expr))


def _plainly(call: Call, *args: Any) -> Any:
    """By the function that has the operator's name, with its attributes' names in Relay."""
    name = spelled(call.op)
    if call.op in UNSPELLED:
        raise tvm.TVMError(f"Relay has no {name}")
    function: Any = relay.qnn.op if name.startswith("qnn.") else relay
    for part in name.removeprefix("qnn.").split("."):
        function = getattr(function, part)
    return function(*args, **{_NAMES.get(name, name): v for name, v in call.attrs.items()})


def _transposed(call: Call, data: Any, weight: Any) -> Any:
    attrs = dict(call.attrs)
    layout = attrs.pop("layout")
    shape = call["weight"].type.shape
    return getattr(relay.nn, call.op)(
        *(data, weight),
        channels=shape[1],
        kernel_size=shape[2:],
        data_layout=layout,
        kernel_layout=attrs.pop("weight_layout"),
        **attrs,
    )


def _convolved(call: Call, data: Any, weight: Any) -> Any:
    """Along one dimension or three."""
    attrs = dict(call.attrs)
    shape = call["weight"].type.shape
    return getattr(relay.nn, call.op)(
        *(data, weight),
        channels=shape[0],
        kernel_size=shape[2:],
        data_layout=attrs.pop("layout"),
        kernel_layout=attrs.pop("weight_layout"),
        **attrs,
    )


def _slice(call: Call, data: Any) -> Any:
    attrs, shape = call.attrs, call["data"].type.shape
    starts = [b % shape[a] for b, a in zip(attrs["begin"], attrs["axes"], strict=True)]
    ends = [
        start + (call.type.shape[axis] - 1) * step + 1
        for start, axis, step in zip(starts, attrs["axes"], attrs["strides"], strict=True)
    ]
    return relay.strided_slice(data, attrs["begin"], ends, attrs["strides"], attrs["axes"])


def _tile(call: Call, data: Any) -> Any:
    pairs = zip(call.type.shape, call["data"].type.shape, strict=True)
    return relay.tile(data, [after // before for after, before in pairs])


WRITERS: dict[str, Callable[..., Any]] = {
    **{name: writer.NEW[name] for name in ("conv2d", "quantize", "reshape", "clip")},
    "conv1d": _convolved,
    "conv3d": _convolved,
    "conv2d_transpose": _transposed,
    "conv3d_transpose": _transposed,
    "dense": lambda call, data, weight: relay.nn.dense(data, weight),
    "strided_slice": _slice,
    "tile": _tile,
    "broadcast_to": lambda call, data: relay.broadcast_to(data, call.type.shape),
    "split": lambda call, data: relay.split(data, len(call.types), call.attrs["axis"]),
    "pad": lambda call, data, value: relay.nn.pad(data, call.attrs["widths"], value),
    "space_to_depth": lambda call, data: relay.nn.space_to_depth(
        data, call.attrs["block_size"], call.attrs["layout"]
    ),
}
