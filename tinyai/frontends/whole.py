"""A whole model as one network, from expressions that a reader of files made: nothing of it stays
on a host, for there is none. Knows no file format and no framework."""

from __future__ import annotations

import warnings
from dataclasses import replace

from tinyai.errors import BoundaryError, OptionError
from tinyai.frontends.attempt import QUANTIZE_THE_REST, Attempt, attempt_of
from tinyai.frontends.source_model import SourceModel
from tinyai.lowering import FLOATS
from tinyai.network import ENDS, Network, entry_name
from tinyai.own import NO_BACKEND, OwnBackend
from tinyai.partition.own import idle
from tinyai.partition.told import DivisionReport
from tinyai.safe_text import safe
from tinyai.source import Rounding, Unread
from tinyai.target import FRAMEWORKS


def network_of(
    model: SourceModel,
    name: str,
    rounding: str | Rounding = "upward",
    ends: str = "model",
    own: OwnBackend = NO_BACKEND,
) -> Network:
    """The whole of ``model`` as the network ``name``, a C identifier, in the integers of
    ``rounding`` or of such a mode. ``ends="int8"`` leaves out the quantize that each float input
    begins with and the dequantize that each float output ends with, so that all are integers.
    A back end of one's ``own`` goes before tinyai.

    Raises ``OptionError`` for a name that is none, and for ends of which one cannot be had as
    integers; ``BoundaryError``, with a report of all operators that stay out, where one does.
    """
    if ends not in ENDS:
        raise OptionError("ends of a network", found=repr(ends), allowed=", ".join(ENDS))
    mode = Rounding(rounding) if isinstance(rounding, str) else rounding
    attempt = attempt_of(model, entry_name(name), mode, ends, own)
    tell_idle(attempt, model, mode, own)
    if attempt.network is None:
        raise _boundary(model, attempt, mode, own)
    return attempt.network


def require_all_read(model: SourceModel) -> None:
    """Raises ``BoundaryError``, with a report, for operators that no reader took: they stay out,
    whatever of the model is quantized."""
    mode = Rounding("upward")
    attempt = attempt_of(model, "network", mode)
    rows = {call: r for call, r in attempt.refused.items() if isinstance(call.origin, Unread)}
    if rows:
        raise _boundary(model, replace(attempt, refused=rows, floats=""), mode, NO_BACKEND)


def tell_idle(attempt: Attempt, model: SourceModel, mode: Rounding, own: OwnBackend) -> None:
    """Warn of a back end of one's own that took nothing of ``model``."""
    told = idle(own, [attempt.model.result], model.result, mode, model.language)
    if told is not None:
        warnings.warn(told, stacklevel=3)


_REFUSED = "not all of the model can be compiled, and there is no host for the rest"


def _boundary(
    model: SourceModel, attempt: Attempt, mode: Rounding, own: OwnBackend
) -> BoundaryError:
    report = DivisionReport(attempt.rows, ())
    if attempt.floats:
        return BoundaryError(
            _REFUSED,
            report=report,
            found=f"a float model: no value of 8 bits, but {attempt.floats}",
            allowed=FLOATS,
            hint="quantize the model first: tinyai quantize, --calibrate, or its framework's tools",
        )
    first = attempt.rows[0]
    name = f" {safe(first.name, 60)!r}" if first.name else ""
    hint = "what the report says of each operator; tinyai cut leaves those at the ends out"
    if all(row.hint == QUANTIZE_THE_REST for row in attempt.rows):
        hint = QUANTIZE_THE_REST
    upward = replace(mode, mode="upward")
    if mode != upward and not attempt_of(model, "upward", upward, own=own).rows:
        whose = FRAMEWORKS[mode.mode]
        hint = (
            '--rounding upward, in Python rounding="upward": all of the model in TVM\'s integers, '
            f"which may be a step from {whose}'s"
        )
    return BoundaryError(
        _REFUSED,
        report=report,
        found=f"{first.operator}{name}: {first.reason.clause}: {safe(first.reason.found)}",
        allowed=safe(first.reason.allowed),
        hint=hint,
    )
