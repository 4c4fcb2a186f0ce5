"""Families of cases for the operators, each case run on TVM's CPU, in numpy and as compiled C.

The cases of a family share one Relay function, so that TVM, the walk to ``ir.Graph`` and the C
compiler run once for all of them. Each case is a test of its own.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.support.oracle import TARGET, oracle
from tinyai.frontends.relay.source import graph_from_region
from tinyai.ir import Array, Graph
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target

INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
DRAWS = ("random", "extremes")


@dataclass(frozen=True)
class Input:
    """An argument; ``low`` and ``high`` bound what is drawn, where wrapping is not the subject:
    TVM may take int32 sums inside of a fused chain to be free of overflow."""

    shape: tuple[int, ...]
    dtype: str
    low: int | None = None
    high: int | None = None
    floats: tuple[float, ...] = ()

    def draw(self, kind: str, rng: np.random.Generator) -> Array:
        if self.dtype == "float32":
            return self._draw_floats(kind, rng)
        if self.dtype == "bool":
            return rng.random(self.shape) < 0.5
        info = np.iinfo(self.dtype)
        low = info.min if self.low is None else self.low
        high = info.max if self.high is None else self.high
        if kind == "random":
            return rng.integers(low, high, self.shape, self.dtype, endpoint=True)
        edges = {low, low + 1, high - 1, high, *(v for v in (-1, 0, 1) if low <= v <= high)}
        return rng.choice(np.array(sorted(edges), self.dtype), self.shape)

    def _draw_floats(self, kind: str, rng: np.random.Generator) -> Array:
        if kind == "extremes":
            return rng.choice(np.array(self.floats, np.float32), self.shape)
        return rng.normal(0, 3, self.shape).astype(np.float32)


@dataclass(frozen=True)
class Every(Input):
    """Every value of a type of 8 or 16 bits once, in any order: ``shape`` has as many elements."""

    def draw(self, kind: str, rng: np.random.Generator) -> Array:
        limits = np.iinfo(self.dtype)
        values = np.arange(limits.min, limits.max + 1).astype(self.dtype)
        return rng.permutation(values).reshape(self.shape)


@dataclass(frozen=True)
class Case:
    """``build(*variables)`` is the expression; ``oracle`` one of the same meaning that TVM's CPU
    has code for, where it has none for the expression itself."""

    name: str
    inputs: tuple[Input, ...]
    build: Callable[..., relay.Expr]
    oracle: Callable[..., relay.Expr] | None = None


@dataclass(frozen=True)
class Family:
    """Cases; TVM computes them without its passes ``passes_off``."""

    passes_off: tuple[str, ...] = ()
    cases: list[Case] = field(default_factory=list)

    def add(
        self,
        name: str,
        inputs: Input | tuple[Input, ...],
        build: Callable[..., relay.Expr],
        oracle: Callable[..., relay.Expr] | None = None,
    ) -> None:
        assert all(case.name != name for case in self.cases), f"two cases are called {name}"
        self.cases.append(
            Case(name, inputs if isinstance(inputs, tuple) else (inputs,), build, oracle)
        )


@dataclass(frozen=True)
class Results:
    """What TVM, the numpy reference and the compiled C say, by case and kind of input."""

    tvm: dict[tuple[str, str], Array]
    reference: dict[tuple[str, str], Array]
    compiled: dict[tuple[str, str], Array]


class Suite:
    """Families by name; what each of them computes is found out once, when it is asked for."""

    def __init__(
        self,
        families: Mapping[str, Callable[[], Family]],
        target: str = TARGET,
        isa: str = "native",  # compiles faster than all of them
    ) -> None:
        self._make, self._target, self._isa = families, target, isa
        self._family = cache(lambda name: self._make[name]())
        self._results = cache(self._results_or_error)

    @cached_property
    def params(self) -> list[Any]:
        """``(family, case)`` for ``pytest.mark.parametrize``."""
        return [
            pytest.param(name, case.name, id=f"{name}: {case.name}")
            for name in self._make
            for case in self._family(name).cases
        ]

    def assert_equal(self, name: str, case: str, kind: str) -> None:
        """Numpy reference and compiled C of one case equal TVM's result."""
        found = self._results(name)
        if isinstance(found, Exception):
            raise found
        expected = found.tvm[case, kind]
        assert_same(found.reference[case, kind], expected, "numpy reference and TVM")
        assert_same(found.compiled[case, kind], expected, "compiled C and TVM")

    def test(self) -> Callable[..., None]:
        """A test of every case with every kind of values."""

        @pytest.mark.parametrize("kind", DRAWS)
        @pytest.mark.parametrize(("name", "case"), self.params)
        def test(name: str, case: str, kind: str) -> None:
            self.assert_equal(name, case, kind)

        return test

    def operators(self) -> set[str]:
        """Names of the operators that the cases are made of."""
        seen: set[str] = set()

        def visit(expr: relay.Expr) -> None:
            if isinstance(expr, relay.Call):
                seen.add(expr.op.name)

        for name in self._make:
            func = function_of(self._family(name).cases, for_tvm=False)
            relay.analysis.post_order_visit(func.body, visit)
        return seen

    def _results_or_error(self, name: str) -> Results | Exception:
        """An error is kept as well: every case of the family would take as long to fail again."""
        try:
            return self._run(name)
        except Exception as error:
            return error

    def _run(self, name: str) -> Results:
        family = self._family(name)
        cases = family.cases
        func = function_of(cases, for_tvm=True)
        mod = tvm.IRModule.from_expr(func)
        graph = graph_of(function_of(cases, for_tvm=False), "family_" + re.sub(r"\W", "_", name))
        runner = Runner(graph, Target(isa=self._isa))
        found = Results({}, {}, {})
        for kind in DRAWS:
            rng = np.random.default_rng([zlib.crc32(name.encode()), DRAWS.index(kind)])
            inputs = [each.draw(kind, rng) for case in cases for each in case.inputs]
            names = [variable.name_hint for variable in func.params]
            named = dict(zip(names, inputs, strict=True))
            by_tvm = oracle(mod, named, target=self._target, passes_off=family.passes_off)
            for into, outputs in (
                (found.tvm, by_tvm),
                (found.reference, run_graph(graph, inputs)),
                (found.compiled, runner(*inputs)),
            ):
                into.update(zip(((case.name, kind) for case in cases), outputs, strict=True))
        return found


def function_of(cases: list[Case], *, for_tvm: bool) -> relay.Function:
    """One function of all inputs, whose result is the tuple of all cases."""
    variables: list[relay.Var] = []
    fields: list[relay.Expr] = []
    for case in cases:
        own = [
            relay.var(f"x{len(variables) + i}", shape=each.shape, dtype=each.dtype)
            for i, each in enumerate(case.inputs)
        ]
        variables += own
        build = case.oracle if for_tvm and case.oracle else case.build
        fields.append(build(*own))
    return relay.Function(variables, relay.Tuple(fields))


def graph_of(func: relay.Function, symbol: str) -> Graph:
    return graph_from_region(func.with_attr("global_symbol", symbol))


def assert_same(found: Array, expected: Array, what: str) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), what
    np.testing.assert_array_equal(found, expected, what)
    if expected.dtype == np.float32:
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected), what)


# --- Parts of cases ---


def const(value: Any, dtype: str = "int32") -> relay.Constant:
    return relay.const(np.asarray(value, dtype), dtype)


def random(seed: str, shape: tuple[int, ...], dtype: str = "int8") -> Array:
    """Values that depend on nothing but ``seed``, the whole range of the type."""
    info = np.iinfo(dtype)
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def nchw_or_nhwc(layout: str, n: int, c: int, h: int, w: int) -> tuple[int, int, int, int]:
    return (n, c, h, w) if layout == "NCHW" else (n, h, w, c)


CONVOLUTIONS: dict[str, tuple[tuple[int, int, int, int], tuple[int, int, int, int], Any]] = {
    # name: data NCHW, weights OIHW, attributes
    "3x3 padded": ((1, 3, 5, 7), (4, 3, 3, 3), {"padding": (1, 1)}),
    "3x2 strided asymmetric pads": (
        (2, 5, 9, 8),
        (7, 5, 3, 2),
        {"strides": (2, 1), "padding": (0, 1, 1, 0)},
    ),
    "dilated": ((1, 4, 9, 9), (6, 4, 3, 3), {"dilation": (2, 3), "padding": (2, 3, 2, 3)}),
    "1x1 batch 3": ((3, 16, 5, 3), (20, 16, 1, 1), {}),
    "1x1 strided": ((1, 33, 7, 7), (5, 33, 1, 1), {"strides": (2, 2)}),
    "border wider than kernel": (
        (1, 2, 3, 3),
        (3, 2, 3, 3),
        {"padding": (4, 4), "strides": (3, 3)},
    ),
    "one pixel": ((1, 3, 1, 1), (2, 3, 3, 3), {"padding": (1, 1)}),
    "one channel": ((1, 1, 6, 5), (2, 1, 3, 3), {"padding": (1, 0, 0, 1)}),
    "grouped": ((1, 8, 6, 6), (12, 2, 3, 3), {"groups": 4, "padding": (1, 1)}),
    "grouped 1x1 strided": ((1, 6, 5, 5), (9, 2, 1, 1), {"groups": 3, "strides": (2, 2)}),
}
DEPTHWISE: dict[str, tuple[tuple[int, int, int, int], tuple[int, int, int, int], Any]] = {
    # weights: Relay's O is the channel and I the multiplier
    "depthwise": ((1, 19, 8, 8), (19, 1, 3, 3), {"groups": 19, "padding": (1, 1)}),
    "depthwise 5x5 strided": ((1, 6, 9, 9), (6, 1, 5, 5), {"groups": 6, "strides": (2, 2)}),
    "depthwise dilated asymmetric": (
        (2, 5, 9, 7),
        (5, 1, 3, 2),
        {"groups": 5, "dilation": (2, 3), "padding": (2, 0, 1, 3)},
    ),
    "depthwise multiplier 2": (
        (2, 3, 7, 9),
        (3, 2, 3, 3),
        {"groups": 3, "channels": 6, "padding": (1, 0, 0, 1)},
    ),
    "depthwise multiplier 2 strided": (
        (1, 4, 7, 6),
        (4, 2, 3, 3),
        {"groups": 4, "channels": 8, "strides": (2, 3), "padding": (1, 1)},
    ),
}


HALVES = tuple(sign * (n + 0.5) for n in range(6) for sign in (1.0, -1.0))
FLOATS = (
    *HALVES,
    0.0,
    -0.0,
    126.5,
    -126.5,
    127.5,
    -127.5,
    1e-45,
    -1e-45,
    0.49999997,
    -0.49999997,
    8388607.5,
    8388608.0,
    16777217.0,
    -8388609.0,
    3e9,
    -3e9,
    3.4028235e38,
    -3.4028235e38,
    float("inf"),
    float("-inf"),
    float("nan"),
)
