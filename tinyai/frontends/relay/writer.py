"""Relay from expressions of the vocabulary: what was left alone is the same object again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relay

from tinyai.frontends.relay.source import Source
from tinyai.source import Call, Constant, Expr, Field, Opaque, Tuple, post_order

qnn = relay.qnn.op


class Writer:
    """``source`` read the Relay that expressions came from. An operator that was read goes on with
    its attributes in Relay, on other arguments; a new one is spelled by ``NEW``. ``inputs`` are
    new ones."""

    def __init__(self, source: Source, inputs: Mapping[Expr, relay.Var] | None = None) -> None:
        self._made: dict[Expr, relay.Expr] = dict(inputs or {})
        self._spans: dict[str, relay.Span] = {}
        for written, expr in source.made.items():
            self._made.setdefault(expr, written)
            if isinstance(expr, Call) and expr.name:
                self._spans.setdefault(expr.name, written.span)

    def __call__(self, root: Expr) -> relay.Expr:
        for expr in post_order(root):
            if expr not in self._made:
                self._made[expr] = self._written(expr)
        return self._made[root]

    def _written(self, expr: Expr) -> relay.Expr:
        match expr:
            case Constant():
                return relay.const(expr.value, expr.type.dtype)
            case Tuple():
                span = expr.origin.span if isinstance(expr.origin, relay.Tuple) else None
                return relay.Tuple([self._made[field] for field in expr.fields], span)
            case Field():
                return relay.TupleGetItem(self._made[expr.call], expr.index, self._span(expr.call))
            case Call() | Opaque():
                return self._call(expr)
        raise TypeError(f"no expression of Relay's: {expr!r}")

    def _call(self, expr: Call | Opaque) -> relay.Call:
        args, origin = [self._made[arg] for arg in expr.args], expr.origin
        if isinstance(origin, relay.Call):
            return relay.Call(origin.op, args, origin.attrs, None, origin.span)
        assert isinstance(expr, Call)
        made = NEW[expr.op](expr, *args)
        return relay.Call(made.op, made.args, made.attrs, None, self._span(expr))

    def _span(self, call: Call) -> relay.Span | None:
        if not call.name:
            return None
        known = self._spans.get(call.name)
        return known or relay.Span(relay.SourceName(call.name), 0, 0, 0, 0)


# --- How new operators are spelled -------------------------------------------------------------

New = Callable[..., relay.Call]


def _convolution(make: Callable[..., relay.Call], *more: str) -> New:
    def write(call: Call, data: relay.Expr, weight: relay.Expr, *quantization: relay.Expr) -> Any:
        attrs, layout = call.attrs, call.attrs["weight_layout"]
        sizes = dict(zip(layout, call["weight"].type.shape, strict=True))
        return make(
            data,
            weight,
            *quantization,
            channels=call.type.shape[attrs["layout"].index("C")],
            kernel_size=tuple(sizes[axis] for axis in "HW"),
            data_layout=attrs["layout"],
            kernel_layout=layout,
            out_dtype=call.type.dtype,
            **{name: attrs[name] for name in (*_CONVOLUTION, *more)},
        )

    return write


_CONVOLUTION = ("strides", "padding", "dilation", "groups", "out_layout")
_POOLING = ("strides", "padding", "dilation", "ceil_mode", "layout", "out_layout")


def _pooling(make: Callable[..., relay.Call], *more: str) -> New:
    def write(call: Call, data: relay.Expr) -> Any:
        attrs = {name: call.attrs[name] for name in (*_POOLING, *more)}
        return make(data, pool_size=call.attrs["kernel"], **attrs)

    return write


def _with_attributes(make: Callable[..., relay.Call]) -> New:
    """Operators whose attributes have the same names in Relay."""
    return lambda call, *args: make(*args, **call.attrs)


def _reshape(call: Call, data: relay.Expr) -> relay.Call:
    """A dimension of length 1 more or less is an operator of its own."""
    before, after = call["data"].type.shape, call.type.shape
    for at in range(max(len(before), len(after))):
        if after == (*before[:at], 1, *before[at:]):
            return relay.expand_dims(data, at)
        if before == (*after[:at], 1, *after[at:]):
            return relay.squeeze(data, [at])
    return relay.reshape(data, after)


NEW: dict[str, New] = {
    "conv2d": _convolution(relay.nn.conv2d),
    "quantized_conv2d": _convolution(qnn.conv2d),
    "quantized_conv2d_transpose": _convolution(qnn.conv2d_transpose, "output_padding"),
    "quantized_dense": lambda call, *args: qnn.dense(
        *args, units=call.type.shape[-1], out_dtype=call.type.dtype
    ),
    "quantized_batch_matmul": _with_attributes(qnn.batch_matmul),
    "quantized_add": _with_attributes(qnn.add),
    "quantized_subtract": _with_attributes(qnn.subtract),
    "quantized_multiply": _with_attributes(qnn.mul),
    "quantized_concatenate": _with_attributes(qnn.concatenate),
    "requantize": lambda call, *args: qnn.requantize(
        *args, **call.attrs, out_dtype=call.type.dtype
    ),
    "quantize": lambda call, *args: qnn.quantize(*args, **call.attrs, out_dtype=call.type.dtype),
    "dequantize": _with_attributes(qnn.dequantize),
    "add": _with_attributes(relay.add),
    "subtract": _with_attributes(relay.subtract),
    "multiply": _with_attributes(relay.multiply),
    "where": _with_attributes(relay.where),
    "bias_add": _with_attributes(relay.nn.bias_add),
    "cast": _with_attributes(relay.cast),
    "clip": lambda call, data: relay.clip(data, call.attrs["low"], call.attrs["high"]),
    "leaky_relu": _with_attributes(relay.nn.leaky_relu),
    "sum": _with_attributes(relay.sum),
    "max": _with_attributes(relay.max),
    "mean": _with_attributes(relay.mean),
    "transpose": _with_attributes(relay.transpose),
    "reshape": _reshape,
    "pad": lambda call, data, value: relay.nn.pad(
        data, call.attrs["widths"], value, call.attrs["mode"]
    ),
    "take": _with_attributes(relay.take),
    "avg_pool2d": _pooling(relay.nn.avg_pool2d, "count_include_pad"),
    "max_pool2d": _pooling(relay.nn.max_pool2d),
    "global_max_pool2d": _with_attributes(relay.nn.global_max_pool2d),
}
