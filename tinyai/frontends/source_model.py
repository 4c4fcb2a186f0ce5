"""A model as a reader of files hands it over: expressions, and the names of its ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tinyai.ir import Array, QParams
from tinyai.partition.reasons import Language
from tinyai.qdq.operands import Fold, tuple_of
from tinyai.source import Call, Expr, Refusal, SourceType, Tuple, Unread


@dataclass(frozen=True)
class End:
    """An input or output of a model: its name in the file, its expression, and what its integers
    stand for, where the file says it."""

    name: str
    expr: Expr
    quant: QParams | None = None


@dataclass(frozen=True)
class SourceModel:
    """A model as a reader hands it over. ``language`` is how the file spells operators; ``fold``
    computes constants that are more than moved, dequantized or quantized (``qdq.Rewriting``).
    ``framework`` is the rounding of a framework that computes float operators between a dequantize
    and a quantize as floats; "" where they stand for operators of integers. ``initial`` are the
    first values of a model's states: its last inputs and outputs, before and after a call.
    ``rounding`` is whose integers the model has where nobody asks for others, ``image_channels``
    are the dimensions that may be channels of its images.

    What a reader does not read is a call that ``unread`` made: it is refused with its reason beside
    whatever the builders refuse.
    """

    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    language: Language
    fold: Fold | None = None
    framework: str = ""
    initial: tuple[Array, ...] = ()
    rounding: str = ""
    image_channels: tuple[int, ...] = (1, 3)

    @property
    def result(self) -> Tuple:
        return tuple_of(*(end.expr for end in self.outputs))

    def with_outputs(self, exprs: Iterable[Expr]) -> SourceModel:
        """The model with other expressions as its outputs, one for each."""
        pairs = zip(self.outputs, exprs, strict=True)
        return replace(self, outputs=tuple(replace(end, expr=expr) for end, expr in pairs))


# The clause of a reader's refusal of scales that are computed at run time.
DYNAMIC = "dynamic quantization"


def unread(
    operator: str,
    types: tuple[SourceType, ...],
    args: tuple[Expr, ...],
    why: Refusal | Unread,
    name: str = "",
) -> Call:
    """A call that stands for an operator that a reader refuses, by the file's name of it."""
    return Call(
        types,
        origin=why if isinstance(why, Unread) else Unread(why),
        op=f"unread {operator}",  # no name of the vocabulary's
        load_attrs=dict,
        load=lambda: args,
        name=name,
        spelling=operator,
    )
