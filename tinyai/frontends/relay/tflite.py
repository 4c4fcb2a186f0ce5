"""TFLite by TVM's importer, whose every result is held against what the file says of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relay

from tinyai.frontends.faults import Fault, shown
from tinyai.frontends.qparams import MOVES, quant_of_output
from tinyai.frontends.relay.source import Source, source_types, span_name
from tinyai.frontends.tflite.checks import Result
from tinyai.ir import QParams
from tinyai.source import Call, Expr

_THEIRS = "another spelling of the operator that makes it; this is a fault of TVM's importer"


def imported_tflite(
    file: str | os.PathLike[str], shapes: Mapping[str, Any]
) -> tuple[tvm.IRModule, dict[str, Any]]:
    from tvm.driver.tvmc.frontends import get_frontend_by_name

    importer = get_frontend_by_name("tflite")
    mod, params = importer.load(str(file), dict(shapes) or None)
    # The importers leave contradictions between operators to whoever types the module first.
    return relay.transform.InferType()(mod), params


def check_results(
    main: relay.Function, results: Mapping[str, Result], inputs: Mapping[str, QParams | None]
) -> None:
    """Each result has the file's shape, dtype and, where operators of Relay say it, scale;
    ``inputs`` are the scales of the model's own.

    Raises ``Fault`` for one that differs.
    """
    values: dict[str, relay.Call] = {}  # the last call of each name makes the tensor

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call):
            values[span_name(expr)] = expr

    relay.analysis.post_order_visit(main, visit)
    for name, result in results.items():
        if name in values:
            _check_result(name, result, values[name], inputs)


def _check_result(
    name: str, result: Result, call: relay.Call, inputs: Mapping[str, QParams | None]
) -> None:
    types = list(source_types(call.checked_type))
    if len(types) != 1 or None in types[0].shape:
        return
    (found,) = types
    if (found.shape, found.dtype) != (result.shape, result.dtype):
        raise Fault(
            f"TVM's importer reads the tensor {name!r} as {found.dtype} {shown(found.shape)}",
            f"{result.dtype} {shown(result.shape)}, as the file says",
            _THEIRS,
        )
    quant = _quant(Source()(call), inputs)
    if result.quant is not None and quant is not None and quant != result.quant:
        raise Fault(
            f"TVM's importer reads the tensor {name!r} with {_scale(quant)}",
            f"{_scale(result.quant)}, as the file says",
            _THEIRS,
        )


def _quant(expr: Expr, inputs: Mapping[str, QParams | None]) -> QParams | None:
    while isinstance(expr, Call) and expr.op in MOVES:
        expr = expr.args[0]
    if isinstance(expr.origin, relay.Var):
        return inputs.get(str(expr.origin.name_hint))
    return quant_of_output(expr)


def _scale(quant: QParams) -> str:
    return f"scale {quant.scale[0]:.9g} and zero point {quant.zero_point}"
