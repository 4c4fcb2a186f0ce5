"""What a report says of an edge program: what to change so that an operator is delegated."""

from __future__ import annotations

from tinyai.partition.reasons import Hints, about, hint_of
from tinyai.partition.told import NOT_QUANTIZED
from tinyai.report import Reason

# The clause of what is left out because its name was given.
NOT_TO_DELEGATE = "operators_not_to_delegate"
# The core's clause of what "torch" has no integers for.
OF_PYTORCH = "PyTorch's arithmetic of"

_QUANTIZE = (
    "quantize it: TinyAIQuantizer().set_global(quantization_config()) does for all that tinyai "
    "takes, and its attribute left says why not for the rest"
)


_HINTS: Hints = (
    (about(NOT_TO_DELEGATE), "leave its name out of operators_not_to_delegate"),
    (
        about("operator"),
        "write it with operators that tinyai takes, or let XnnpackPartitioner() take what is left",
    ),
    (
        lambda reason: reason.allowed == "fixed dimensions",
        "export without dynamic_shapes; a program may have a method for each shape",
    ),
    (
        lambda reason: reason.clause == NOT_QUANTIZED or reason.allowed == "a quantized value",
        _QUANTIZE,
    ),
    (
        lambda reason: reason.clause == "dtype of the result" and "float" in reason.found,
        "module.float() and inputs of float32 before it is exported and quantized",
    ),
    (
        about("limits", "dtype of the quantization", OF_PYTORCH),
        "quantize to all values of int8 or uint8, as TinyAIQuantizer does",
    ),
    (
        about("scale"),
        "quantize statically: scales that a calibration finds, not those of each run",
    ),
    (
        lambda reason: reason.found == "computed at run time" and "constant" in reason.allowed,
        "make it a parameter or a buffer of the module",
    ),
)


def hint(reason: Reason) -> str:
    """What to change so that the clause holds."""
    return hint_of(reason, _HINTS)
