"""What a report says of Relay: an operator's work by its attributes, and what to change.

Knows no TVM.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from tinyai.frontends.relay.spelling import spelled, supported
from tinyai.partition.reasons import Hints, Language, about, hint_of
from tinyai.patterns import LEFT_TO_THE_HOST
from tinyai.report import Reason
from tinyai.source import Call

# --- Multiply-accumulates ----------------------------------------------------------------------


def macs(call: Call) -> int | None:
    """Multiply-accumulates of a convolution or a product of matrices in one run, by its shapes and
    without regard to padding; None for another operator, or where shapes are not known."""
    rule = next((rule for name, rule in _MACS if re.fullmatch(name, call.spelled)), None)
    shapes = [of.shape for expr in (call, *call.args[:2]) for of in expr.types]
    if rule is None or len(shapes) != 3 or any(None in shape for shape in shapes):
        return None
    result, data, weight = ([dim for dim in shape if dim is not None] for shape in shapes)
    return rule(call, result, data, weight)


def _layout(call: Call) -> str:
    """An operator that the vocabulary does not have keeps Relay's name of it."""
    return str(call.attrs.get("layout") or call.attrs.get("data_layout") or "NCHW")


def _conv_macs(call: Call, result: list[int], data: list[int], weight: list[int]) -> int:
    """Each place of the result meets every weight once."""
    layout = str(call.attrs.get("out_layout") or _layout(call))
    return _places(result, layout) * math.prod(weight)


def _transposed_macs(call: Call, result: list[int], data: list[int], weight: list[int]) -> int:
    """Each place of the data meets every weight once."""
    return _places(data, _layout(call)) * math.prod(weight)


def _matmul_macs(call: Call, result: list[int], data: list[int], weight: list[int]) -> int:
    turned = call.attrs.get("transpose_a") or call.attrs.get("tensor_a_transpose")
    return math.prod(result) * data[-2 if turned and len(data) > 1 else -1]


def _places(shape: list[int], layout: str) -> int:
    """Elements of all dimensions but the channels'; ``NCHW4c`` has two of those."""
    axes = re.sub(r"\d", "", layout)
    pairs = zip(shape, axes.ljust(len(shape), "?"), strict=False)
    return math.prod(dim for dim, axis in pairs if axis not in "Cc")


_MACS: tuple[tuple[str, Callable[[Call, list[int], list[int], list[int]], int]], ...] = (
    (r".*\bconv\dd_transpose", _transposed_macs),
    (r".*\b(contrib_)?(depthwise_)?conv\dd(_NCHWc)?(_int8)?", _conv_macs),
    (r".*\bdense", lambda call, result, data, weight: math.prod(result) * data[-1]),
    (r".*\b(batch_)?matmul", _matmul_macs),
)


# --- What to change ----------------------------------------------------------------------------


def hint(reason: Reason) -> str:
    """What to change so that the clause holds."""
    return hint_of(reason, _HINTS)


# A parameter or an input: what an operator computes is named by the operator.
_VARIABLE = ("computed at run time", "a value computed at run time")
_HINTS: Hints = (
    (
        about("operator"),
        "write it with operators that tinyai takes, or add a row in tinyai/ops",
    ),
    (
        about(*(refusal.clause for refusal in LEFT_TO_THE_HOST.values())),
        "nothing has to change, for the host computes it as TVM does",
    ),
    (
        about("idle region"),
        "nothing, since it computes nothing; prune=False keeps such regions",
    ),
    (
        about("detour"),
        "get the operator in between into a region first",
    ),
    (
        about("partition"),
        "restore_predicates() if predicates were registered; then partition the source module",
    ),
    (
        about("other readers"),
        "compute the value once for each reader, so that the composite owns it",
    ),
    (
        lambda reason: "?" in reason.found and reason.allowed == "fixed dimensions",
        "import with fixed shapes (from_onnx(..., shape={name: dims})), or run DynamicToStatic",
    ),
    (
        lambda reason: reason.found in _VARIABLE and "constant" in reason.allowed,
        "hand its values over: partition_for_tinyai(mod, params), or bind_params_by_name",
    ),
    (
        lambda reason: (
            "computed at run time" in reason.found
            and "constant" in reason.allowed
            and not reason.clause.startswith("pattern: ")
        ),
        "make it a constant: relay.transform.FoldConstant() where it depends on no input",
    ),
    (
        lambda reason: reason.clause.startswith(
            ("TFLite's arithmetic of", "ONNX Runtime's arithmetic of")
        ),
        'rounding="upward" (--rounding upward), which computes it as TVM does',
    ),
    (
        lambda reason: reason.clause.startswith("pattern: "),
        "write the edge of the quantized part as the composite has it, or quantize this part",
    ),
    (
        about("data layout", "output layout", "kernel layout", "layout", "layouts"),
        "relay.transform.ConvertLayout to an allowed layout, before partitioning",
    ),
    (
        lambda reason: "dtype" in reason.clause and reason.found.startswith("float"),
        "quantize this part of the network, as relay.quantize does within opt_level=3",
    ),
    (
        lambda reason: "dtype" in reason.clause,
        "cast to an allowed dtype in the model, or quantize to int8",
    ),
)


def language() -> Language:
    """Relay, for reasons and reports."""
    return Language(spelled, tuple(supported()), hint, macs)
