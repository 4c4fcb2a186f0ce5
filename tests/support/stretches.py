"""How far the integers of a stretch may be from its meaning in float64, and whether they are.

A stretch is what lies between dequantizes and a quantize. Its last rounding is half a step of the
result. ``ROUNDINGS`` has what an operator inside adds to that, in steps of the result, under each
arithmetic, and why; a bias adds half a step of its sums. docs/bounds.md shows the table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.support.float_meaning import evaluated
from tests.support.random_stretches import DISTINCT, Model
from tinyai.errors import UnsupportedError
from tinyai.ir import Array, Graph, every_step
from tinyai.lowering import graph_of
from tinyai.ops import steps
from tinyai.passes import optimize
from tinyai.qdq import Rewriting
from tinyai.source import Call, Constant, Expr, Rounding, children, ordered

ARITHMETICS = ("upward", "tflite", "onnx", "torch")
# Steps that have to become part of a table.
NO_C = (steps.Function, steps.GivenFunction)
ONE = 0.5  # step: the rounding of the result
# Of float32 in functions and scales: of 255 steps 2**-14 each would be this much.
FLOAT32 = 0.016


@dataclass(frozen=True)
class Row:
    """Steps that operators inside of a stretch add, by arithmetic; 0 where it is not named."""

    operators: tuple[str, ...]
    steps: Mapping[str, float]
    why: str


ROUNDINGS = (
    Row(
        ("quantize",),
        {"tflite": 0.25},
        "TFLite's fixed point rounds a second time, to half a step or less, before the last shift",
    ),
    Row(
        ("add", "subtract"),
        {"upward": 0.5},
        "TVM rounds both tensors at the scale of the result, and adds; nothing is rounded after",
    ),
    Row(
        ("softmax",),
        {"onnx": 1.0, "tflite": 1.0},
        "ONNX Runtime cuts the inverse scale to a whole number; TFLite's powers are fixed point",
    ),
)


PRODUCTS = (
    *("conv1d", "conv2d", "conv3d", "conv2d_transpose", "conv3d_transpose"),
    *("dense", "batch_matmul"),
)


def allowed(quantize: Call, calls: Sequence[Call], mode: str) -> float:
    """Steps that the result of a stretch of these operators may be off."""
    counts = Counter(each.op for each in (quantize, *calls))
    more = sum(row.steps.get(mode, 0.0) * counts[op] for row in ROUNDINGS for op in row.operators)
    if counts["bias_add"] + counts["add"] and any(counts[op] for op in PRODUCTS):
        more += 0.5 * step_of(quantize["data"]) / _number(quantize["output_scale"])
    return ONE + FLOAT32 + more


def step_of(expr: Expr) -> float:
    """The largest real number that an integer of a float value stands for: of sums, the product of
    their operands' steps, times what follows."""
    match expr:
        case Call(op="dequantize"):
            return float(np.max(_constant(expr["input_scale"])))
        case Call(op="multiply" | "divide" as op):
            known = [isinstance(arg, Constant) for arg in expr.args]
            if any(known):
                factor = float(np.abs(_constant(expr.args[known.index(True)])).max())
                step = step_of(expr.args[known.index(False)])
                return step * factor if op == "multiply" else step / factor
        case Call() if expr.op in PRODUCTS:
            return math.prod(map(step_of, expr.args))
    return max((step_of(child) for child in children(expr)), default=0.0)


@dataclass(frozen=True)
class Stretch:
    """A result beside its meaning. ``off`` are the most steps, ``bound`` those that it may be."""

    number: int
    operators: tuple[str, ...]
    off: float
    bound: float
    telling: bool

    @property
    def wrong(self) -> bool:
        return self.off > self.bound

    def __str__(self) -> str:
        return f"{' -> '.join(self.operators)}: {self.off:.2f} steps off, {self.bound:.2f} allowed"


def lowered(model: Model, mode: str) -> Graph:
    """Raises ``UnsupportedError`` where an operator has no integers under this arithmetic."""
    rounding = Rounding(mode)
    integers = Rewriting(model.root, rounding).result
    graph = optimize(graph_of("net", model.inputs, integers, rounding))
    if any(isinstance(step, NO_C) for node in graph.nodes for step in every_step(node.epilogue)):
        raise UnsupportedError("function", found="of several values", allowed="of one")
    return graph


def operators_of(quantize: Call, known: Mapping[Expr, Array]) -> list[Call]:
    """The float operators of a stretch, down to ``known`` values."""
    within = ordered(quantize["data"], lambda expr: () if expr in known else children(expr))
    calls = (expr for expr in within if isinstance(expr, Call))
    return [each for each in calls if each.op not in ("dequantize", "quantize")]


def compared(model: Model, results: Sequence[Array], mode: str) -> Iterator[Stretch]:
    """Each stretch on the integers that it read."""
    known: dict[Expr, Array] = dict(zip(model.inputs, model.samples, strict=True))
    known |= dict(zip(model.results, results, strict=True))
    for number, (quantize, found) in enumerate(zip(model.results, results, strict=True)):
        inside = operators_of(quantize, known)
        limits = np.iinfo(quantize.type.dtype)
        scale, zero_point = (_number(quantize[f"output_{n}"]) for n in ("scale", "zero_point"))
        floats = evaluated(quantize["data"], known)[quantize["data"]]
        wanted = np.clip(floats / scale + zero_point, limits.min, limits.max)
        assert (found.shape, found.dtype) == (wanted.shape, quantize.type.dtype), number
        inner = found[(found > limits.min) & (found < limits.max)]
        yield Stretch(
            number,
            tuple(each.op for each in inside),
            float(np.abs(found - wanted).max()),
            allowed(quantize, inside, mode),
            np.unique(inner).size >= DISTINCT,
        )


def _constant(expr: Expr) -> Array:
    assert isinstance(expr, Constant)
    return expr.value


def _number(expr: Expr) -> float:
    return float(_constant(expr))


def table() -> str:
    """``ROUNDINGS`` as docs/bounds.md has it."""
    rows = [f"| operator | {' | '.join(ARITHMETICS)} | why |", f"|---|{'---|' * 5}"]
    for row in ROUNDINGS:
        numbers = (f"{row.steps.get(mode, 0):g}" for mode in ARITHMETICS)
        names = ", ".join(f"`{name}`" for name in row.operators)
        rows.append(f"| {names} | {' | '.join(numbers)} | {row.why} |")
    return "\n".join(rows)
