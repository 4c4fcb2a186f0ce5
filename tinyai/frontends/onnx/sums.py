"""A value of a float file as the sums of a layer: what of it an .onnx file with pairs needs."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.ir import Array
from tinyai.qdq.operands import View, is_call
from tinyai.source import Call, Constant, Expr, SourceType

LAYERS = (
    *("conv1d", "conv2d", "conv3d", "conv2d_transpose", "conv3d_transpose"),
    *("dense", "batch_matmul"),
)
# What makes weights of constants that a file has as integers.
_OF_STORED = ("dequantize", "transpose", "reshape")


@dataclass(frozen=True, eq=False)
class Sums:
    """The product that a value is, with a bias of one number a channel or one for all."""

    product: Call
    bias: Array | None

    @classmethod
    def of(cls, expr: Expr, view: View) -> Sums | None:
        """None for any other value, and where weights are computed."""
        added: list[tuple[Call, Array]] = []
        moves: list[tuple[SourceType, SourceType]] = []
        at, moved = expr, False
        while is_call(at, "bias_add", "add", "reshape") or (moved and is_call(at, "dequantize")):
            constants = [a for a in at.args if isinstance(a, Constant) or view.is_constant(a)]
            if len(constants) == len(at.args):
                return None
            if is_call(at, "bias_add", "add"):
                if not constants:
                    return None
                (known,) = constants
                value = known.value if isinstance(known, Constant) else view.constant(known)
                added.append((at, value))
            is_move = at.op == "reshape"
            moved |= is_move  # whose pair is that of what it moves
            before = at.type
            at = next(arg for arg in at.args if arg not in constants)
            moves += [(before, at.type)] if is_move and added else []
            at = at["data"] if is_call(at, "quantize") else at
        if not is_call(at, *LAYERS):
            return None
        stored = at["weight"]
        while isinstance(stored, Call) and is_call(stored, *_OF_STORED):
            stored = stored["data"]
        if not isinstance(stored, Constant):
            return None
        last, bias = is_call(at, "dense", "batch_matmul"), None
        kept = slice(-1, None) if last else slice(0, 2)
        if any(old.shape[kept] != new.shape[kept] for old, new in moves):
            return None  # channels are others
        for step, value in added:
            numbers = _by_channel(step, value, last)
            if numbers is None:
                return None
            bias = numbers if bias is None else bias + numbers
        return cls(at, bias)

    def reads(self, expr: Expr) -> bool:
        """Whether ``expr``, perhaps in another shape, is the data."""
        at = self.product["data"]
        while at is not expr and isinstance(at, Call) and is_call(at, "reshape", "transpose"):
            at = at["data"]
        return at is expr

    @property
    def is_quantized(self) -> bool:
        return is_call(self.product["weight"], "dequantize")

    @property
    def input_scale(self) -> float | None:
        """That of the data; None of floats."""
        at = self.product["data"]
        while isinstance(at, Call) and is_call(at, "reshape", "transpose"):
            at = at["data"]
        scale = at["input_scale"] if is_call(at, "dequantize") else None
        return float(scale.value.item()) if isinstance(scale, Constant) else None


def _by_channel(step: Call, value: Array, last: bool) -> Array | None:
    """The numbers that a step adds, a number a channel or one; None of others. Channels are the
    second dimension, or the ``last``."""
    rank = len(step.type.shape)
    if is_call(step, "add"):
        along = [rank - value.ndim + d for d, n in enumerate(value.shape) if n > 1]
        if along not in ([], [rank - 1 if last else 1]):
            return None
    return value.reshape(-1)
