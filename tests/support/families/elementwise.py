"""Operators on single values."""

from __future__ import annotations

import itertools

import numpy as np
from tvm import relay

from tests.support.cases import (
    INTEGERS,
    Family,
    Input,
    Suite,
    const,
    random,
)

BINARY = {
    "add": relay.add,
    "subtract": relay.subtract,
    "multiply": relay.multiply,
    "maximum": relay.maximum,
    "minimum": relay.minimum,
}


def binary_family() -> Family:
    """One operator a case, so that nothing but its own wrapping is at work."""
    family = Family()
    shape = (2, 5, 3, 4)
    for name, op in BINARY.items():
        for dtype in INTEGERS:
            scalar = random(f"{name} {dtype}", (), dtype)
            family.add(
                f"{name} {dtype} and scalar",
                Input(shape, dtype),
                lambda x, op=op, s=scalar, t=dtype: op(x, const(s, t)),
            )
        channels = random(name, (5, 1, 1), "int32")
        last = random(name, (4,), "int32")
        rows = random(name, (5, 3, 1), "int32")
        full = random(name, (2, 5, 3, 4), "int32")
        big = random(name, (2, 2, 5, 3, 4), "int32")
        x = Input(shape, "int32")
        for what, value in (
            ("channels of NCHW", channels),
            ("last axis", last),
            ("two axes", rows),
            ("whole tensor", full),
            ("larger constant", big),
        ):
            family.add(f"{name} tensor, {what}", x, lambda x, op=op, v=value: op(x, relay.const(v)))
            family.add(f"{name} {what}, tensor", x, lambda x, op=op, v=value: op(relay.const(v), x))
        for what, other in (
            ("same shape", shape),
            ("scalar", ()),
            ("vector", (4,)),
            ("channels", (5, 1, 1)),
            ("larger", (3, 2, 5, 3, 4)),
            ("outer", (2, 1, 3, 1)),
        ):
            pair = (x, Input(other, "int32"))
            family.add(f"{name} of tensor and {what}", pair, lambda a, b, op=op: op(a, b))
            family.add(f"{name} of {what} and tensor", pair, lambda a, b, op=op: op(b, a))
        outer = (Input((3, 1), "int32"), Input((1, 4), "int32"))
        family.add(f"{name} of column and row", outer, lambda a, b, op=op: op(a, b))
        family.add(f"{name} of a tensor and itself", x, lambda a, op=op: op(a, a))
        scalars = (Input((), "int32"), Input((), "int32"))
        family.add(f"{name} of scalars", scalars, lambda a, b, op=op: op(a, b))
    return family


def shift_family() -> Family:
    family = Family()
    for dtype in INTEGERS:
        bits = np.iinfo(dtype).bits
        for name, op in (("right", relay.right_shift), ("left", relay.left_shift)):
            for amount in sorted({0, 1, bits // 2, bits - 1}):
                family.add(
                    f"{name} shift of {dtype} by {amount}",
                    Input((3, 4), dtype),
                    lambda x, op=op, a=amount, t=dtype: op(x, const(a, t)),
                )
    amounts = np.array([0, 1, 7, 30, 31])
    for name, op in (("right", relay.right_shift), ("left", relay.left_shift)):
        family.add(
            f"{name} shift per channel of NCHW",
            Input((2, 5, 3, 4), "int32"),
            lambda x, op=op: op(x, const(amounts.reshape(5, 1, 1))),
        )
        family.add(
            f"{name} shift per channel of NHWC",
            Input((2, 3, 4, 5), "int32"),
            lambda x, op=op: op(x, const(amounts)),
        )
        family.add(
            f"{name} shift by amounts of a larger shape",
            Input((3, 5), "int32"),
            lambda x, op=op: op(x, const(np.broadcast_to(amounts, (2, 3, 5)))),
        )
    return family


def unary_family() -> Family:
    family = Family()
    for dtype in INTEGERS:
        family.add(f"relu {dtype}", Input((3, 5, 4), dtype), relay.nn.relu)
    for dtype in ("int8", "int16", "int32", "int64"):
        for alpha in (0.1, 0.99, 1.0, 1.5, -0.5, -2, 100.9, -127.5):
            family.add(
                f"leaky relu {dtype} alpha {alpha}",
                Input((3, 5, 4), dtype),
                lambda x, a=alpha: relay.nn.leaky_relu(x, a),
            )
    for alpha in (0.1, 1.5, 2.0):
        family.add(
            f"leaky relu uint8 alpha {alpha}",
            Input((3, 5, 4), "uint8"),
            lambda x, a=alpha: relay.nn.leaky_relu(x, a),
        )
    for dtype, low, high in (
        ("int8", -127, 127),
        ("int8", -128, 127),
        ("int8", 0, 6),
        ("int8", 5, 5),
        ("uint8", 0, 255),
        ("uint8", 3, 200),
        ("int16", -300, 299),
        ("int32", 0, 192),
        ("int32", -(2**31), 2**31 - 1),
        ("int64", -(2**40), 2**40),
    ):
        family.add(
            f"clip {dtype} {low} {high}",
            Input((3, 5, 4), dtype),
            lambda x, lo=low, hi=high: relay.clip(x, lo, hi),
        )
    for source, target in itertools.permutations(INTEGERS, 2):
        family.add(
            f"cast {source} to {target}",
            Input((4, 9), source),
            lambda x, t=target: relay.cast(x, t),
        )
    family.add("cast int8 to int8", Input((2, 3), "int8"), lambda x: relay.cast(x, "int8"))
    family.add(
        "stop_fusion between adds",
        Input((3, 4), "int32"),
        lambda x: relay.add(relay.annotation.stop_fusion(relay.add(x, const(3))), const(-5)),
    )
    for multiplier in (1, 2**30 + 1, 2**31 - 1, 1518500250, -(2**31), -1518500250, 0):
        for shift in (-30, -7, 0, 1, 5):
            bound = 2**31 - 1 if shift <= 0 else 2 ** (31 - shift) - 1
            family.add(
                f"fixed point int32 by {multiplier} shift {shift}",
                Input((3, 7), "int32", -bound - 1, bound),
                lambda x, m=multiplier, s=shift: relay.fixed_point_multiply(x, m, s),
            )
            # TVM's own result is int32 on int64 values too: it runs only in front of a cast.
            family.add(
                f"fixed point int64 by {multiplier} shift {shift}",
                Input((3, 7), "int64", -bound - 1, bound),
                lambda x, m=multiplier, s=shift: relay.cast(
                    relay.fixed_point_multiply(x, m, s), "int32"
                ),
            )
    for shift in (-30, -8, -1, 0, 2, 5):
        family.add(
            f"fixed point by a half shift {shift}",
            Input((3, 7), "int32", -(2**30), 2**30),
            lambda x, s=shift: relay.fixed_point_multiply(x, 2**30, s),
        )
    family.add("relu of a scalar", Input((), "int8"), relay.nn.relu)
    family.add("cast of a scalar", Input((), "int32"), lambda x: relay.cast(x, "int8"))
    return family


def bias_family() -> Family:
    family = Family()
    for shape, axis in (
        ((2, 5, 3, 4), 1),
        ((2, 3, 4, 5), 3),
        ((2, 3, 4, 5), -1),
        ((7, 5), 1),
        ((5, 7), 0),
    ):
        for dtype in ("int32", "int16"):
            bias = random(f"bias {axis}", (5,), dtype)
            family.add(
                f"bias_add {dtype} axis {axis} of rank {len(shape)}",
                Input(shape, dtype),
                lambda x, b=bias, a=axis: relay.nn.bias_add(x, relay.const(b), a),
            )
    family.add(
        "bias_add of a run-time vector",
        (Input((2, 5, 3, 4), "int32"), Input((5,), "int32")),
        lambda x, b: relay.nn.bias_add(x, b, 1),
    )
    family.add(
        "bias_add of a vector along the last axis",
        (Input((2, 3, 5), "int8"), Input((5,), "int8")),
        lambda x, b: relay.nn.bias_add(x, b, -1),
    )
    return family


COMPARED = {
    "equal": relay.equal,
    "not equal": relay.not_equal,
    "less": relay.less,
    "less equal": relay.less_equal,
    "greater": relay.greater,
    "greater equal": relay.greater_equal,
}
LOGIC = {"and": relay.logical_and, "or": relay.logical_or, "xor": relay.logical_xor}


def logic_family() -> Family:
    """Comparisons, logic of bools, and choices between two values."""
    family = Family()
    shape = (2, 3, 4)
    bools, column = Input(shape, "bool"), Input((2, 1, 4), "bool")
    for name, op in COMPARED.items():
        for dtype in INTEGERS:
            pair = Input(shape, dtype, 0, 3), Input((3, 1), dtype, 0, 3)
            family.add(f"{name} of {dtype}", pair, lambda a, b, op=op: op(a, b))
            family.add(f"{name} of a smaller {dtype}", pair, lambda a, b, op=op: op(b, a))
        few = Input(shape, "int32", 3, 9)
        family.add(f"{name} of a number", few, lambda x, op=op: op(const(6), x))
    for name, op in LOGIC.items():
        family.add(f"logical {name}", (bools, column), lambda a, b, op=op: op(b, a))
    family.add("logical not", bools, relay.logical_not)
    for dtype in (*INTEGERS, "bool"):
        data, other = Input(shape, dtype), Input((4,), dtype)
        number = const(1, dtype)
        family.add(f"where of {dtype}", (column, data, other), relay.where)
        family.add(
            f"number where, of {dtype}", (bools, other), lambda c, x, n=number: relay.where(c, n, x)
        )
        family.add(
            f"number elsewhere, of {dtype}",
            (bools, data),
            lambda c, x, n=number: relay.where(c, x, n),
        )
        family.add(
            f"two numbers of {dtype}",
            bools,
            lambda c, n=number, t=dtype: relay.where(c, n, const(0, t)),
        )
    for dtype in INTEGERS:
        family.add(
            f"cast {dtype} to bool", Input(shape, dtype, 0, 2), lambda x: relay.cast(x, "bool")
        )
        family.add(f"cast bool to {dtype}", bools, lambda x, t=dtype: relay.cast(x, t))
    family.add("bools that move", bools, lambda x: relay.transpose(relay.concatenate([x, x], 1)))
    return family


SUITE = Suite(
    {
        "binary": binary_family,
        "logic": logic_family,
        "shift": shift_family,
        "unary": unary_family,
        "bias": bias_family,
    }
)
