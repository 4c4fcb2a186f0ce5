"""Relax functions of int8 images that tests put together operator by operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tests.relax.nets import Array

SHAPE = (1, 4, 6, 6)
SCALE = 0.05


class Net:
    """A function of one int8 input that grows by operators in pairs."""

    def __init__(self, builder: relax.BlockBuilder, weights: Array | None = None) -> None:
        self.builder = builder
        drawn = np.random.default_rng(3)
        self.weights = relax.const(
            drawn.integers(-90, 90, (4, 4, 3, 3), dtype=np.int8) if weights is None else weights
        )

    def emit(self, value: Any) -> Any:
        return self.builder.emit(value)

    def floats(self, value: Any, scale: float = SCALE) -> Any:
        return self.emit(relax.op.dequantize(value, relax.const(scale), relax.const(0, "int8"), 1))

    def integers(self, value: Any, scale: float = SCALE) -> Any:
        zero = relax.const(0, "int8")
        return self.emit(relax.op.quantize(value, relax.const(scale), zero, 1, "int8"))

    def convolution(self, value: Any) -> Any:
        weights = self.floats(self.weights, 0.002)
        data = self.floats(value)
        return self.integers(self.emit(relax.op.nn.conv2d(data, weights, padding=1)))

    def add(self, one: Any, other: Any) -> Any:
        return self.integers(self.emit(relax.op.add(self.floats(one), self.floats(other))))

    def relu(self, value: Any) -> Any:
        return self.integers(self.emit(relax.op.nn.relu(self.floats(value))))


Body = Callable[[Net, Any], Any]


def function(builder: relax.BlockBuilder, name: str, body: Body, count: int = 1) -> None:
    """One dataflow block whose results are those of the body, a tuple of any depth."""
    params = [relax.Var(f"{name}_{n}", relax.TensorType(SHAPE, "int8")) for n in range(count)]
    with builder.function(name, params):
        with builder.dataflow():
            result = builder.emit_output(body(Net(builder), *params))
        builder.emit_func_output(result)


def module(body: Body, count: int = 1) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    function(builder, "main", body, count)
    return builder.get()


def images(count: int = 1) -> list[Array]:
    drawn = np.random.default_rng(5)
    return [drawn.integers(-128, 128, SHAPE, dtype=np.int8) for _ in range(count)]


def diamond(net: Net, x: Any) -> Any:
    stem = net.convolution(x)
    return net.add(net.convolution(stem), net.relu(stem))


def several_outputs(net: Net, x: Any) -> Any:
    stem = net.convolution(x)
    return relax.Tuple([stem, net.relu(stem), net.add(stem, net.convolution(stem))])


def nested_outputs(net: Net, x: Any) -> Any:
    stem = net.convolution(x)
    return relax.Tuple([relax.Tuple([stem, net.relu(stem)]), stem])
