"""The contents page: which operators tinyai takes, and which patterns of them.

In the vocabulary's terms (``vocabulary.py``): front ends spell them. ``OPERATORS`` has one row an
operator, from the operators' files in ``tinyai/ops``: a builder that lowers it to ``tinyai.ir`` or
refuses with the clause that failed. ``PATTERNS`` has one row a
composite, in order of preference. ``lowering.py`` asks whether something of it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tinyai import ops
from tinyai.builders import Lowering, OperatorRow
from tinyai.match import AnyConstant, Anything, AnyTuple, Chain, OneOf, Pattern, op
from tinyai.ops.functions import FUNCTIONS
from tinyai.ops.normalize import NORMS
from tinyai.source import Call, Expr, Refusal

OPERATORS: dict[str, OperatorRow] = ops.OPERATORS

# Operators that stay on the host though they could be written, and why.
LEFT_TO_THE_HOST: dict[str, Refusal] = {
    "lrn": Refusal(
        "equality of the result",
        "a power of a sum of squares over channels, which each C library rounds in its own way",
        "results that are proven equal for every value of the inputs",
    ),
}


def refusal_of_unknown(call: Call) -> Refusal:
    """Why an operator without a row stays out."""
    unknown = Refusal("operator", call.spelled, "an operator of tinyai/patterns.py")
    reason = LEFT_TO_THE_HOST.get(call.op, unknown)
    return Refusal(reason.clause, reason.found, reason.allowed)


def computes(operator: str) -> bool:
    """Whether an operator does more than move or rename values; an unknown one counts as if."""
    row = OPERATORS.get(operator)
    return row is None or row.compute


ANY, CONSTANT = Anything(), AnyConstant()

SCALE = (CONSTANT, CONSTANT)  # with its zero point

INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
# What may follow an accumulator: the requantize chain of tvm.relay.quantize and its neighbours. A
# cast to float32 is the begin of another composite, or of the host.
STEPS = (
    *(
        lambda below, name=name: op(name, below, CONSTANT)
        for name in ("add", "subtract", "multiply", "right_shift", "left_shift", "bias_add")
    ),
    *(
        lambda below, name=name: op(name, below)
        for name in ("clip", "relu", "leaky_relu", "fixed_point_multiply")
    ),
    *(lambda below, to=to: op("cast", below, dtype=to) for to in INTEGERS),
    lambda below: op("requantize", below, *SCALE, *SCALE),
)
# What may lie between a dequantize and a quantize and become a table: functions of one value.
DEQUANTIZE = op("dequantize", ANY, *SCALE)
COMMUTATIVE, ORDERED = ("add", "multiply"), ("subtract", "divide", "maximum", "minimum")
SINGLE_STEPS = (
    *(lambda below, name=name: op(name, below) for name in (*FUNCTIONS, "relu", "clip")),
    *(lambda below, name=name: op(name, below) for name in ("leaky_relu", "round", "function")),
    *(
        lambda below, name=name: op(name, below, CONSTANT)
        for name in (*COMMUTATIVE, *ORDERED, "prelu")
    ),
    *(lambda below, name=name: op(name, CONSTANT, below) for name in ORDERED),
)
# A number in some places.
CHOICES = (
    lambda below: op("where", ANY, CONSTANT, below),
    lambda below: op("where", ANY, below, CONSTANT),
)
# The shorter side of an operator of two such: swish's x, GELU's x / 2, ELU's relu(x).
SIDE = Chain(DEQUANTIZE, SINGLE_STEPS, 3)
FUNCTION_STEPS = (
    *SINGLE_STEPS,
    # The side comes first: where it does not match, the longer chain is not tried.
    *(lambda below, name=name: op(name, SIDE, below) for name in (*COMMUTATIVE, *ORDERED)),
    *(lambda below, name=name: op(name, below, SIDE) for name in ORDERED),
    # What the gate of an LSTM adds, and the square of an imaginary part.
    lambda below: op("add", op("multiply", DEQUANTIZE, DEQUANTIZE), below),
    *CHOICES,
    lambda below: op("where", ANY, SIDE, below),
    lambda below: op("where", ANY, below, SIDE),
)
BOUNDS = tuple(lambda below, name=name: op(name, below) for name in ("relu", "clip"))
# A sum of branches that stays float, as ONNX's Sum of three: TVM and ONNX Runtime round it once.
SUM_STEPS = (
    lambda below: op("add", DEQUANTIZE, below),
    lambda below: op("add", CONSTANT, below),
    *BOUNDS,
)
# Arithmetic on numbers that a caller passes as integers, or that a bool chooses, as those of a mask
# of attention.
NUMBERS = OneOf((op("cast", ANY, dtype="float32"), op("where", ANY, CONSTANT, CONSTANT)))
NUMBER_STEPS = (
    *(lambda below, name=name: op(name, below, CONSTANT) for name in (*COMMUTATIVE, *ORDERED)),
    *(lambda below, name=name: op(name, CONSTANT, below) for name in ORDERED),
    *CHOICES,
    *BOUNDS,
)
STOP_FUSION = (lambda below: op("stop_fusion", below),)
# Of a product of more than two dimensions: some frameworks start from the scales of its operands.
RESHAPED_SUMS = (lambda below: op("requantize", op("reshape", below), *SCALE, *SCALE),)
LONGEST_CHAIN = 16


def chain(base: Pattern, *, stop_fusion: bool = True) -> Chain:
    return Chain(base, STEPS + (STOP_FUSION if stop_fusion else ()), LONGEST_CHAIN)


@dataclass(frozen=True)
class PatternRow:
    """A composite. ``floats`` marks the edges of a region, where float32 is part of the pattern;
    anywhere else a float stays on the host.

    Its calls are lowered one by one, or all as one by ``build``: from the parts that the pattern
    names, and a ``Lowering``, to the name of the tensor that holds the result.
    """

    name: str
    pattern: Pattern
    floats: bool = False
    build: Callable[[Mapping[str, Expr], Lowering], str] | None = None


def pattern_rows(*, stop_fusion: bool = True) -> tuple[PatternRow, ...]:
    """The composites. Without ``stop_fusion`` no pattern has ``stop_fusion`` in it: that
    shows what the operator does to a partition (tutorial 1)."""

    def follow(base: Pattern) -> Chain:
        return chain(base, stop_fusion=stop_fusion)

    def follow_sums(base: Pattern) -> Chain:
        whole = follow(base)
        return replace(whole, steps=RESHAPED_SUMS + whole.steps)

    pools = [name for name in OPERATORS if "pool2d" in name]
    scaled = op("multiply", OneOf((op("pad", ANY, CONSTANT), ANY)), CONSTANT)
    pooled = OneOf(tuple(op(name, ANY) for name in pools))
    averages = tuple(op(name, DEQUANTIZE) for name in ("avg_pool2d", "interpolate2d"))
    # The constants of a qnn accumulator: weights, zero points, scales.
    weighed = (CONSTANT, *SCALE, *SCALE)
    return (
        # These first: TVM takes long to infer their types, until they are composites and sealed.
        PatternRow(
            "conv2d",
            follow(OneOf((op("conv2d", ANY, CONSTANT), op("quantized_conv2d", ANY, *weighed)))),
        ),
        PatternRow("conv2d_transpose", follow(op("quantized_conv2d_transpose", ANY, *weighed))),
        PatternRow(
            "dense",
            follow_sums(OneOf((op("dense", ANY, CONSTANT), op("quantized_dense", ANY, *weighed)))),
        ),
        # Before the chains that begin anywhere: these would begin inside.
        PatternRow(
            "sum",
            op(
                "quantize",
                Chain(op("add", DEQUANTIZE, DEQUANTIZE), SUM_STEPS, LONGEST_CHAIN),
                *SCALE,
            ),
            floats=True,
        ),
        PatternRow(
            "table",
            op("quantize", Chain(DEQUANTIZE, FUNCTION_STEPS, LONGEST_CHAIN), *SCALE),
            floats=True,
        ),
        PatternRow(
            "softmax",
            op(
                "quantize",
                OneOf(tuple(op(name, DEQUANTIZE) for name in ("softmax", "log_softmax"))),
                *SCALE,
            ),
            floats=True,
        ),
        PatternRow(
            "layer_norm",
            op(
                "quantize",
                OneOf(tuple(op(n, DEQUANTIZE, CONSTANT, CONSTANT) for n in NORMS)),
                *SCALE,
            ),
            floats=True,
        ),
        # ONNX Runtime's, which adds up floats.
        PatternRow(
            "average",
            op("quantize", Chain(OneOf(averages), BOUNDS, 4), *SCALE),
            floats=True,
        ),
        PatternRow(
            "numbers",
            op("quantize", Chain(NUMBERS, NUMBER_STEPS, LONGEST_CHAIN), *SCALE),
            floats=True,
        ),
        PatternRow(
            "quantize",
            OneOf((op("quantize", ANY, *SCALE), op("cast", op("clip", op("round", scaled))))),
            floats=True,
        ),
        PatternRow(
            "dequantize",
            OneOf(
                (
                    DEQUANTIZE,
                    op("multiply", op("cast", ANY, dtype="float32"), CONSTANT),
                )
            ),
            floats=True,
        ),
        PatternRow(
            "matmul",
            follow_sums(
                OneOf(
                    tuple(
                        op(n, ANY, ANY, *SCALE, *SCALE)
                        for n in ("quantized_batch_matmul", "quantized_dense")
                    )
                )
            ),
        ),
        PatternRow("pool2d", follow(pooled)),
        PatternRow(
            "concatenate",
            follow(
                OneOf(
                    (
                        op("concatenate", AnyTuple()),
                        op("stack", AnyTuple()),
                        op("quantized_concatenate", AnyTuple(), AnyTuple(), AnyTuple(), *SCALE),
                    )
                )
            ),
        ),
        PatternRow("reduce", follow(OneOf((op("mean", ANY), op("sum", ANY))))),
        PatternRow(
            "binary",
            follow(
                OneOf(
                    tuple(
                        op(name, ANY, ANY, *SCALE, *SCALE, *SCALE)
                        for name in ("quantized_add", "quantized_subtract", "quantized_multiply")
                    )
                )
            ),
        ),
        PatternRow("add", follow(op("add", follow(ANY), follow(ANY)))),
    )


PATTERNS = pattern_rows()
