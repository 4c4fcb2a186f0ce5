"""An .onnx file as a model in the vocabulary: checked, then read, once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tinyai.errors import UnsupportedError, UsageWarning
from tinyai.frontends.faults import Fault, faults_of, missing
from tinyai.frontends.norms import norms_in
from tinyai.frontends.onnx.attention import as_attention
from tinyai.frontends.onnx.branches import taken_branch
from tinyai.frontends.onnx.checks import Inputs, check_external, check_model
from tinyai.frontends.onnx.definitions import DEFINED, OF_FLOATS, by_definition, spell_out_lengths
from tinyai.frontends.onnx.einsum import as_products, as_sum
from tinyai.frontends.onnx.facts import (
    dtype_of,
    opset_of,
    set_shapes,
    set_values,
)
from tinyai.frontends.onnx.functions import inlined
from tinyai.frontends.onnx.fused import FUSED, spellings_of
from tinyai.frontends.onnx.halves import in_float32
from tinyai.frontends.onnx.older import converted
from tinyai.frontends.onnx.operators import READERS
from tinyai.frontends.onnx.reader import Reading
from tinyai.frontends.onnx.recurrent import USUAL, spelled_out
from tinyai.frontends.qparams import quant_of_input, quant_of_output, readers_of
from tinyai.frontends.shapes import Shapes, check_asked, parse_inputs
from tinyai.frontends.source_model import End, SourceModel
from tinyai.ir import Array
from tinyai.lowering import graph_of
from tinyai.model_file import InputShapes
from tinyai.model_file import check_model as check_model_file
from tinyai.partition.reasons import Language
from tinyai.qdq.operands import operator_name, tuple_of
from tinyai.reference import run_graph
from tinyai.safe_text import safe
from tinyai.source import TVMS_OWN, UNKNOWN, Expr, Refusal
from tinyai.stages import stage

# The first that has operators of quantized values, and what a file of floats alone becomes.
OLDEST, CONVERTED = 10, 13
# What becomes other nodes wherever it stands; what has recurrent values does in float files.
SPELLINGS = {
    "If": taken_branch,
    "Einsum": as_products,
    "Mean": as_sum,
    "Attention": as_attention,
    **dict.fromkeys(DEFINED, by_definition),
}


@dataclass(frozen=True, eq=False)
class OnnxFile:
    """A file that was read: ``exprs`` are those of its values, by name in the order of the file,
    and ``inside`` has the call that values inside of a norm are part of. ``widened`` says of which
    floats it was, before they were made float32."""

    source: SourceModel
    proto: Any
    exprs: Mapping[str, Expr]
    inside: Mapping[Expr, Expr]
    widened: UsageWarning | None


def read_model(file: str | os.PathLike[str], input_shapes: InputShapes = "") -> SourceModel:
    """``read_whole`` for who needs the model alone."""
    return read_whole(file, input_shapes).source


def read_whole(
    file: str | os.PathLike[str],
    input_shapes: InputShapes = "",
    oldest: int = 0,
    usual: Shapes = MappingProxyType({}),
) -> OnnxFile:
    """The model of an .onnx file. ``input_shapes``, as in ``"data:1x3x32x32 rate=16000"``, are
    those of inputs that it leaves open, and values of inputs that always have one; ``usual``
    shapes, with a batch of 1 in front or without it, are for those that neither tells of. A file of
    an opset before 10 becomes one of 13. With ``oldest``, a file of an older opset becomes one of
    this, recurrent operators and lengths are spelled out, and softmaxes put together: such a file
    is quantized.

    Raises ``OptionError`` where there is no such file, and for shapes that are not of its inputs;
    ``ModelError`` for one that contradicts itself or cannot be read; ``EnvironmentProblem`` where
    the package onnx is missing.
    """
    path = Path(file)
    shapes, values = parse_inputs(input_shapes)
    check_model_file(path, ".onnx")
    if find_spec("onnx") is None:
        raise missing("onnx")
    with stage(f"read {safe(path.name, 60)}"), faults_of(path, ".onnx"):
        import onnx

        model = onnx.load(path, load_external_data=False)
        opset, newest = opset_of(model), onnx.defs.onnx_opset_version()
        if not 1 <= opset <= newest:
            allowed = f"1 to {newest}, the newest of this onnx"
            raise Fault(f"opset {opset}", allowed, "pip install -U onnx")
        model = inlined(model)
        inputs = check_model(model)
        check_asked(shapes, inputs)
        set_shapes(model, {**_told(inputs, usual), **shapes})
        set_values(model, values)
        check_external(model, path.parent)
        onnx.load_external_data_for_model(model, str(path.parent))
        wanted = oldest or (CONVERTED if opset < OLDEST else opset)
        if opset < wanted:
            model, opset = converted(model, opset, wanted), wanted
        widened = in_float32(model)
        if oldest:
            spell_out_lengths(model.graph)
        floats = {**dict.fromkeys(USUAL, spelled_out), **OF_FLOATS} if oldest else {}
        own = {("", name): spelling for name, spelling in {**SPELLINGS, **floats}.items()}
        spellings = {**own, **spellings_of(opset)}
        reading = Reading(model, READERS, opset, spellings)
        _spell(model.graph, reading.spelled)
        read = {value.name: _output(reading, value) for value in model.graph.output}
        norms = norms_in(tuple_of(*read.values()), softmaxes=bool(oldest))
        outputs = {name: norms.new[expr] for name, expr in read.items()}
        readers = readers_of(outputs.values())
        source = SourceModel(
            tuple(
                End(n, expr, quant_of_input(expr, readers)) for n, expr in reading.inputs.items()
            ),
            tuple(
                End(value.name, outputs[value.name], quant_of_output(outputs[value.name]))
                for value in model.graph.output
            ),
            language(),
            _folded,
            image_channels=(1,),
        )
        exprs = {name: norms.new.get(expr, expr) for name, expr in reading.exprs.items()}
        return OnnxFile(source, model, exprs, norms.inside, widened)


def _told(inputs: Inputs, usual: Shapes) -> dict[str, Sequence[int]]:
    """The usual shapes of inputs that the file leaves open, where they are of this rank."""
    open_ = {name: dims for name, dims in inputs.items() if dims and min(dims) < 1}
    told: dict[str, Sequence[int]] = {}
    for name, dims in open_.items():
        shape = (1,) * (len(dims) - len(usual.get(name, ()))) + tuple(usual.get(name, ()))
        if name in usual and len(shape) == len(dims) <= len(usual[name]) + 1:
            told[name] = shape
    return told


def _spell(graph: Any, spelled: Mapping[str, list[Any]]) -> None:
    """Put nodes that were spelled out in the places of those that they spell."""
    if spelled:
        first = [next(filter(None, node.output), "") for node in graph.node]
        nodes = [spelled.get(n, [node]) for n, node in zip(first, graph.node, strict=True)]
        made = type(graph)(node=[*chain(*nodes)])
        del graph.node[:]
        graph.node.extend(made.node)


def _output(reading: Reading, value: Any) -> Expr:
    """An output's expression. Raises ``Fault`` where the file says that it has another type."""
    expr, said = reading.exprs[value.name], dtype_of(value.type.tensor_type.elem_type)
    if said and expr.types[0] != UNKNOWN and said != expr.types[0].dtype:
        raise Fault(f"output {value.name!r} of {expr.types[0].dtype}", f"{said}, as it is declared")
    return expr


def language() -> Language:
    """ONNX's names of the operators that are read."""
    names = {name for table in (READERS, FUSED) for _, name in table}
    return Language(supported=tuple(sorted({*SPELLINGS, *names})))


def _folded(expr: Expr) -> Array:
    """The value of a constant expression, by the references of the operators in it."""
    try:
        (value,) = run_graph(graph_of("constant", (), expr, TVMS_OWN), [])
    except UnsupportedError as error:
        raise Refusal("constant", operator_name(expr), f"a known one: {error.found}") from None
    return np.asarray(value)
