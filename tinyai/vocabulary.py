"""The vocabulary: the operators that front ends read their graphs into. ``docs/vocabulary.md`` says
what each one means.

What has a builder has a row in its file of ``tinyai/ops``. ``FLOATS`` are the others, which come in
between a dequantize and a quantize and are written with integers (``tinyai/qdq``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from tinyai.ir import Array
from tinyai.ops import operator_row
from tinyai.ops.conv2d import CONVOLUTION
from tinyai.ops.pool2d import POOLING
from tinyai.source import Call, Constant, Expr, SourceType


@dataclass(frozen=True)
class Signature:
    """The names of an operator's operands, in order, and of its attributes."""

    operands: tuple[str, ...]
    attributes: tuple[str, ...]

    @classmethod
    def of(cls, operands: str, attributes: str = "") -> Signature:
        return cls(tuple(operands.split()), tuple(attributes.split()))


FLOATS: Mapping[str, Signature] = MappingProxyType(
    {
        "conv1d": Signature.of("data weight", CONVOLUTION),
        "conv3d": Signature.of("data weight", CONVOLUTION),
        **dict.fromkeys(
            ("conv2d_transpose", "conv3d_transpose"),
            Signature.of("data weight", f"{CONVOLUTION} output_padding"),
        ),
        "batch_matmul": Signature.of("data weight", "transpose_a transpose_b"),
        "max_pool1d": Signature.of("data", POOLING),
        "max_pool3d": Signature.of("data", POOLING),
        "avg_pool1d": Signature.of("data", f"{POOLING} count_include_pad"),
        "adaptive_max_pool1d": Signature.of("data", "output_size layout"),
        "adaptive_avg_pool1d": Signature.of("data", "output_size layout"),
        "broadcast_to_like": Signature.of("data like"),
        "l2": Signature.of("data", "axis keepdims exclude"),
    }
)


def signature(operator: str) -> Signature | None:
    """None for an operator that the vocabulary does not have."""
    row = operator_row(operator)
    return Signature.of(row.operands, row.attributes) if row else FLOATS.get(operator)


def constant(value: Any, dtype: str | None = None) -> Constant:
    array: Array = np.asarray(value, dtype)
    return Constant((SourceType(array.shape, array.dtype.name),), load=lambda: array)


def call(
    operator: str,
    of: SourceType | tuple[SourceType, ...],
    *args: Expr,
    name: str = "",
    **attributes: Any,
) -> Call:
    """A call whose result has the type ``of``, or the types of a tuple.

    Raises ``TypeError`` for operands or attributes that are not the operator's.
    """
    known = signature(operator)
    if known is None:
        raise TypeError(f"no operator of the vocabulary: {operator}")
    if len(args) != len(known.operands) or attributes.keys() != set(known.attributes):
        wanted = ", ".join((*known.operands, *(f"{each}=" for each in known.attributes)))
        given = ", ".join((f"{len(args)} operands", *(f"{each}=" for each in attributes)))
        raise TypeError(f"{operator}({wanted}): found {given}")
    return Call(
        of if isinstance(of, tuple) else (of,),
        op=operator,
        load_attrs=lambda: attributes,
        load=lambda: args,
        operands=known.operands,
        name=name,
    )
