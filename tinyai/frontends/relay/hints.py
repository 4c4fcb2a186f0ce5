"""What a report says of Relay: what to change.

Knows no TVM.
"""

from __future__ import annotations

from tinyai.frontends.relay.spelling import spelled, supported
from tinyai.partition.reasons import Hints, Language, about, hint_of
from tinyai.patterns import LEFT_TO_THE_HOST
from tinyai.report import Reason

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
    return Language(spelled, tuple(supported()), hint)
