"""TFLite by TVM's importer: what it is known to misread is refused, and every result is held
against what the file says of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relay

from tinyai.frontends.faults import Fault, shown
from tinyai.frontends.qparams import MOVES, quant_of_output
from tinyai.frontends.relay.source import Source, source_types, span_name
from tinyai.frontends.tflite.checks import DeclaredResult
from tinyai.frontends.tflite.file import File, number_of
from tinyai.ir import QParams
from tinyai.source import Call, Expr

_OURS = "tinyai compile, which reads the file without TVM: this is a fault of TVM's importer"
_THEIRS = "another spelling of the operator that makes it; this is a fault of TVM's importer"


# Options that the importer does not look at, with what it takes them for.
_UNSEEN = {
    "FULLY_CONNECTED": ("WeightsFormat", 0),
    "GATHER": ("BatchDims", 0),
    "GELU": ("Approximate", False),
    "SOFTMAX": ("Beta", 1.0),
    "STRIDED_SLICE": ("Offset", False),
    "TRANSPOSE_CONV": ("FusedActivationFunction", 0),
}
# What it computes of integers as if they were the numbers themselves: of all, or only where a zero
# point is not 0, or where two of the inputs differ in scale.
_OF_ANY = frozenset(
    (
        *("PRELU", "SQUARE", "ELU", "POW", "DIV", "FLOOR_DIV", "FLOOR_MOD"),
        *("REDUCE_PROD", "BATCH_MATMUL", "ZEROS_LIKE"),
    )
)
_OF_ZERO_POINTS = frozenset(("SUM", "SPACE_TO_BATCH_ND"))
_OF_SCALES = frozenset(("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"))


def check_readings(model: Any, content: bytes) -> None:
    """Raises ``Fault`` for an operator that TVM's importer reads as another, without a word."""
    for code in map(model.OperatorCodes, range(model.OperatorCodesLength())):
        number, seen = number_of(code), max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        if number != seen:
            raise Fault(f"operator {number} as number {seen}", "its number in both fields", _OURS)
    file = File(model, content)
    for operator in file.operators:
        what = f"{operator.kind} {', '.join(file.tensors[i].name for i in operator.outputs)!r}"
        field, default = _UNSEEN.get(operator.kind, ("", None))
        found = operator.options.get(field, default)
        if found != default:
            raise Fault(f"{what} with {field} {found}", f"{field} {default}", _OURS)
        inputs = [file.tensors[i] for i in operator.inputs if i >= 0]
        quants = {(each.dtype, each.quant) for each in inputs if each.is_quantized}
        zeros = any(quant is None or quant.zero_point for _, quant in quants)
        plain = (
            (operator.kind in _OF_ANY and quants)
            or (operator.kind in _OF_ZERO_POINTS and zeros)
            or (operator.kind in _OF_SCALES and len(quants) > 1)
        )
        if plain:
            raise Fault(f"{what} of integers with scales", "float32, which TVM reads right", _OURS)


def imported_tflite(
    file: str | os.PathLike[str], shapes: Mapping[str, Any]
) -> tuple[tvm.IRModule, dict[str, Any]]:
    from tvm.driver.tvmc.frontends import get_frontend_by_name

    importer = get_frontend_by_name("tflite")
    mod, params = importer.load(str(file), dict(shapes) or None)
    # The importers leave contradictions between operators to whoever types the module first.
    return relay.transform.InferType()(mod), params


def check_results(
    main: relay.Function,
    results: Mapping[str, DeclaredResult],
    inputs: Mapping[str, QParams | None],
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
    name: str, result: DeclaredResult, call: relay.Call, inputs: Mapping[str, QParams | None]
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
