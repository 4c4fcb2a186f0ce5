"""What the integers of a value stand for, as the operators of Relay around it say."""

from __future__ import annotations

import tvm
from tvm import relay

from tinyai.frontends.relay.source import post_order
from tinyai.ir import QParams

# Where operators have the scale and the zero point of what they read and of what they make.
READS = {
    "qnn.dequantize": {0: (1, 2)},
    "qnn.requantize": {0: (1, 2)},
    "qnn.conv2d": {0: (4, 2)},
    "qnn.conv2d_transpose": {0: (4, 2)},
    "qnn.dense": {0: (4, 2)},
    "qnn.batch_matmul": {0: (4, 2), 1: (5, 3)},
    **{name: {0: (2, 3), 1: (4, 5)} for name in ("qnn.add", "qnn.subtract", "qnn.mul")},
}
MAKES = {
    "qnn.quantize": (1, 2),
    "qnn.requantize": (3, 4),
    "qnn.concatenate": (3, 4),
    **dict.fromkeys(("qnn.add", "qnn.subtract", "qnn.mul"), (6, 7)),
}
# What hands on its first operand's values, or some of them.
RESHAPES = frozenset(("reshape", "squeeze", "expand_dims", "nn.batch_flatten", "transpose"))
MOVES = RESHAPES | {"layout_transform", "clip", "nn.relu", "nn.max_pool2d", "strided_slice"}


def readers_of(body: relay.Expr) -> dict[relay.Expr, list[relay.Call]]:
    found: dict[relay.Expr, list[relay.Call]] = {}
    for expr in post_order(body):
        if isinstance(expr, relay.Call):
            for arg in expr.args:
                found.setdefault(arg, []).append(expr)
        elif isinstance(expr, relay.Tuple):
            for field in expr.fields:
                found.setdefault(field, []).append(expr)
    return found


def operator_name(expr: relay.Expr) -> str:
    called = isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op)
    return str(expr.op.name) if called else ""


def qparams(call: relay.Call, places: tuple[int, int]) -> QParams | None:
    """What two constants of a call say, if they are one number each."""
    scale, zero = (call.args[place] for place in places)
    for each in (scale, zero):
        if not isinstance(each, relay.Constant) or each.data.numpy().size != 1:
            return None
    return QParams((float(scale.data.numpy().item()),), int(zero.data.numpy().item()))


def quant_of_input(param: relay.Var, readers: dict[relay.Expr, list[relay.Call]]) -> QParams | None:
    for reader in readers.get(param, ()):
        if operator_name(reader) in MOVES:
            found = quant_of_input(reader, readers)
            if found is not None:
                return found
        for operand, places in READS.get(operator_name(reader), {}).items():
            if reader.args[operand].same_as(param):
                return qparams(reader, places)
    return None


def quant_of_output(result: relay.Expr) -> QParams | None:
    while operator_name(result) in MOVES:
        result = result.args[0]
    places = MAKES.get(operator_name(result))
    return qparams(result, places) if places else None
