"""What stays on the host, and the clause that says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.support.cases import (
    const,
    graph_of,
)
from tinyai.errors import UnsupportedError
from tinyai.frontends.relay.source import Source
from tinyai.ir import Graph
from tinyai.lowering import refusal_of_operator


def variable(*shape: Any, dtype: str = "int8", name: str = "x") -> relay.Var:
    return relay.var(name, shape=shape, dtype=dtype)


def zeros(*shape: int, dtype: str = "int8") -> relay.Constant:
    return relay.const(np.zeros(shape, dtype))


def conv2d(data: relay.Expr, weight: relay.Expr, **attrs: Any) -> relay.Call:
    attrs = {"kernel_size": (3, 3), "channels": 4, "out_dtype": "int32", **attrs}
    return relay.nn.conv2d(data, weight, **attrs)


ANY = relay.Any()
X = variable(1, 3, 8, 8)
X32 = variable(1, 3, 8, 8, dtype="int32")
FLOAT = variable(1, 3, 8, 8, dtype="float32")
BOOL = variable(1, 3, 8, 8, dtype="bool")
WEIGHT = zeros(4, 3, 3, 3)

REFUSALS: dict[str, tuple[Callable[[], relay.Expr], str]] = {
    # name: expression, clause
    "float convolution": (
        lambda: conv2d(FLOAT, zeros(4, 3, 3, 3, dtype="float32"), out_dtype="float32"),
        "dtype of nn.conv2d",
    ),
    "uint8 convolution": (
        lambda: conv2d(variable(1, 3, 8, 8, dtype="uint8"), zeros(4, 3, 3, 3, dtype="uint8")),
        "dtypes of data and weights",
    ),
    "uint8 data by int8 weights": (
        lambda: conv2d(variable(1, 3, 8, 8, dtype="uint8"), WEIGHT),
        "dtypes of data and weights",
    ),
    "weights computed at run time": (
        lambda: conv2d(X, variable(4, 3, 3, 3, name="w")),
        "weights",
    ),
    "int16 accumulator": (lambda: conv2d(X, WEIGHT, out_dtype="int16"), "dtype of the result"),
    "dynamic batch": (lambda: conv2d(variable(ANY, 3, 8, 8), WEIGHT), "result: shape"),
    "empty batch": (lambda: conv2d(variable(0, 3, 8, 8), WEIGHT), "result: shape"),
    "blocked data": (
        lambda: conv2d(variable(1, 3, 8, 8, 4), zeros(4, 12, 3, 3), data_layout="NCHW4c"),
        "data layout",
    ),
    "blocked weights": (
        lambda: conv2d(X, zeros(1, 3, 3, 3, 4), kernel_layout="OIHW4o"),
        "kernel layout",
    ),
    "convolution into another layout": (
        lambda: conv2d(X, WEIGHT, out_layout="NHWC"),
        "output layout",
    ),
    "convolution without a result": (
        lambda: conv2d(variable(1, 3, 2, 2), WEIGHT),
        "result: shape",
    ),
    "window much larger than the image": (
        lambda: conv2d(variable(1, 3, 2, 2), zeros(4, 3, 5, 5), kernel_size=(5, 5)),
        "window",
    ),
    "negative padding": (lambda: conv2d(X, WEIGHT, padding=(-1, -1)), "padding"),
    "accumulator that may overflow": (
        lambda: conv2d(variable(1, 2**17, 1, 1), zeros(4, 2**17, 1, 1), kernel_size=(1, 1)),
        "products of one output",
    ),
    "dense that may overflow": (
        lambda: relay.nn.dense(variable(1, 2**17), zeros(2, 2**17), out_dtype="int32"),
        "k",
    ),
    "dense by weights computed at run time": (
        lambda: relay.nn.dense(variable(2, 3), variable(4, 3, name="w"), out_dtype="int32"),
        "weights",
    ),
    "dense of rank 3": (
        lambda: relay.nn.dense(variable(1, 2, 3), zeros(4, 3), out_dtype="int32"),
        "shape of the data",
    ),
    "dense of uint8": (
        lambda: relay.nn.dense(variable(2, 3, dtype="uint8"), zeros(4, 3), out_dtype="int32"),
        "dtypes of data and weights",
    ),
    "dense into int16": (
        lambda: relay.nn.dense(variable(2, 3), zeros(4, 3), out_dtype="int16"),
        "dtype of the result",
    ),
    "float pooling": (lambda: relay.nn.max_pool2d(FLOAT), "dtype of nn.max_pool2d"),
    "blocked pooling": (
        lambda: relay.nn.max_pool2d(variable(1, 3, 8, 8, 4), layout="NCHW4c"),
        "layout",
    ),
    "pooling in NWHC": (lambda: relay.nn.max_pool2d(X, layout="NWHC"), "layout"),
    "pooling into another layout": (
        lambda: relay.nn.max_pool2d(X, out_layout="NHWC"),
        "output layout",
    ),
    "pool much larger than the image": (lambda: relay.nn.max_pool2d(X, (10, 10)), "window"),
    "average of int8": (lambda: relay.nn.avg_pool2d(X, (2, 2)), "dtype of an average"),
    "global average of int8": (lambda: relay.nn.global_avg_pool2d(X), "dtype of an average"),
    "dilated average": (
        lambda: relay.nn.avg_pool2d(X32, (2, 2), dilation=(2, 2)),
        "dilation of an average",
    ),
    "dynamic image": (
        lambda: relay.nn.avg_pool2d(variable(1, 3, ANY, ANY, dtype="int32"), (2, 2)),
        "result: shape",
    ),
    "cast of a float without a clip": (lambda: relay.cast(FLOAT, "int8"), "cast of a float"),
    "cast to float alone": (lambda: relay.cast(X, "float32"), "dtype of cast"),
    "cast to float16": (lambda: relay.cast(X, "float16"), "dtype of cast"),
    "sum of bools": (lambda: relay.add(BOOL, BOOL), "dtype of add"),
    "shift of bools": (lambda: relay.left_shift(BOOL, const(1, "bool")), "dtype"),
    "cast of a float to bool": (lambda: relay.cast(FLOAT, "bool"), "dtype of cast"),
    "comparison of floats": (lambda: relay.less(FLOAT, FLOAT), "dtype of less"),
    "logic of integers": (lambda: relay.logical_and(X, X), "dtype of logical_and"),
    "choice by an integer": (lambda: relay.where(X, X, X), "dtypes of where"),
    "cast to uint16": (lambda: relay.cast(X, "uint16"), "result: dtype"),
    "shift by as many bits as there are": (
        lambda: relay.right_shift(X32, const(32)),
        "shift amount",
    ),
    "shift by a negative amount": (lambda: relay.left_shift(X32, const(-1)), "shift amount"),
    "one channel's shift too far": (
        lambda: relay.right_shift(X32, const([[[1]], [[40]], [[2]]])),
        "shift amount",
    ),
    "shift by amounts computed at run time": (
        lambda: relay.right_shift(X32, variable(1, dtype="int32", name="s")),
        "shift amount",
    ),
    "multiplier of a half in int64": (
        lambda: relay.fixed_point_multiply(variable(3, dtype="int64"), 2**30, -1),
        "multiplier of an int64",
    ),
    "multiplier of a half, shifted left": (
        lambda: relay.fixed_point_multiply(X32, 2**30, 1),
        "shift of the multiplier 2**30",
    ),
    "fixed point shift beyond 30": (
        lambda: relay.fixed_point_multiply(X32, 2**30 + 1, 31),
        "shift",
    ),
    "fixed point of int8": (lambda: relay.fixed_point_multiply(X, 2**30 + 1, 1), "dtype"),
    "float arithmetic": (lambda: relay.add(FLOAT, const(1, "float32")), "dtype of add"),
    "dynamic addition": (
        lambda: relay.add(variable(ANY, 3, dtype="int32"), const(1)),
        "result: shape",
    ),
    "unknown integer type": (
        lambda: relay.add(variable(3, dtype="uint16"), variable(3, dtype="uint16", name="y")),
        "result: dtype",
    ),
    "rounding an integer": (lambda: relay.round(X), "dtype"),
    "clip by a fraction": (lambda: relay.clip(X, 0.5, 6), "bounds of clip"),
    "clip beyond the type": (lambda: relay.clip(X, -200, 6), "bounds of clip"),
    "clip to infinity": (lambda: relay.clip(X, -float("inf"), 6), "bounds of clip"),
    "clip by a NaN": (lambda: relay.clip(X32, float("nan"), 6), "bounds of clip"),
    "clip upside down": (lambda: relay.clip(X, 6, 2), "bounds of clip"),
    "steep leaky relu": (lambda: relay.nn.leaky_relu(X, 200), "alpha"),
    "pad by reflection": (
        lambda: relay.nn.pad(variable(4, 3), ((1, 1), (1, 1)), pad_mode="reflect"),
        "mode",
    ),
    "pad by a negative width": (
        lambda: relay.nn.pad(variable(4, 3), ((-1, 1), (1, 1))),
        "pad width",
    ),
    "pad value beyond the type": (
        lambda: relay.nn.pad(variable(4, 3), ((1, 1), (1, 1)), 300),
        "pad value",
    ),
    "pad value computed at run time": (
        lambda: relay.nn.pad(variable(4, 3), ((1, 1), (1, 1)), variable(name="p")),
        "pad value",
    ),
    "empty slice": (lambda: relay.strided_slice(variable(4, 3), [2], [2]), "result: shape"),
    "concatenation of a tuple made elsewhere": (
        lambda: relay.op._make.concatenate(
            relay.Var("t", relay.TupleType([relay.TensorType((2, 3), "int8")] * 2)), 0
        ),
        "argument",
    ),
    "concatenation with an empty tensor": (
        lambda: relay.concatenate([variable(0, 3), variable(2, 3, name="y")], 0),
        "argument: shape",
    ),
    "layout_transform into blocks": (
        lambda: relay.layout_transform(variable(1, 8, 4, 4), "NCHW", "NCHW4c"),
        "layouts",
    ),
    "dynamic reshape": (lambda: relay.reshape(variable(ANY, 3), (-1,)), "result: shape"),
    "an operator without a row": (lambda: relay.bitwise_and(X, X), "operator"),
    "dynamic split": (lambda: relay.split(variable(ANY, 4), 2, 1).astuple(), "result: shape"),
    "a split of floats": (lambda: relay.split(FLOAT, 2, 2).astuple(), "dtype of split"),
    "bilinear resize": (lambda: relay.image.resize2d(X, (4, 4), method="linear"), "method"),
    "resize of int32": (
        lambda: relay.image.resize2d(X32, (4, 4), method="nearest_neighbor"),
        "dtype of image.resize2d",
    ),
    "resize of a part": (
        lambda: relay.image.resize2d(
            X,
            (4, 4),
            roi=(0.0, 0.0, 1.0, 1.0),
            method="nearest_neighbor",
            coordinate_transformation_mode="tf_crop_and_resize",
        ),
        "coordinates",
    ),
    "resize by whole factors, rounded up": (
        lambda: relay.image.resize2d(
            X,
            (16, 16),
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="ceil",
        ),
        "nearest_mode of whole factors",
    ),
    "resize into another type": (
        lambda: relay.image.resize2d(X, (4, 4), method="nearest_neighbor", out_dtype="int16"),
        "type of image.resize2d",
    ),
    "resize of blocks": (
        lambda: relay.image.resize2d(
            variable(1, 3, 8, 8, 4), (4, 4), layout="NCHW4c", method="nearest_neighbor"
        ),
        "layout",
    ),
    "bilinear upsampling": (lambda: relay.nn.upsampling(X, 2, 2, method="bilinear"), "method"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_tinyai_cannot_do_is_refused_with_the_clause_that_failed(name: str) -> None:
    build, clause = REFUSALS[name]
    expr = build()
    func = relay.Function(relay.analysis.free_vars(expr), expr)
    typed = relay.transform.InferType()(tvm.IRModule.from_expr(func))["main"].body
    refusal = refusal_of_operator(Source()(typed))
    assert refusal is not None
    assert refusal.clause == clause
    assert refusal.found
    assert refusal.allowed


def test_a_cast_of_a_float_is_taken_behind_a_clip_to_its_range_only() -> None:
    def graph(low: float, high: float, dtype: str) -> Graph:
        x = variable(3, dtype="float32")
        func = relay.Function([x], relay.cast(relay.clip(x, low, high), dtype))
        return graph_of(func, "region")

    assert len(graph(-128, 127, "int8").nodes) == 2
    for low, high, dtype in ((-129, 127, "int8"), (0, 128, "int8"), (-1, 1, "uint8")):
        with pytest.raises(UnsupportedError, match="cast of a float"):
            graph(low, high, dtype)
    with pytest.raises(UnsupportedError, match="at most 16 bits"):
        graph(-10, 10, "int32")
