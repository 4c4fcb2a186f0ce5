"""Model files that are read without a framework: by which reader, as a network, and as a report."""

from __future__ import annotations

import os
from pathlib import Path

from tinyai.backend import compile_once
from tinyai.errors import ModelError
from tinyai.frontends.attempt import attempt_of
from tinyai.frontends.closed import closed
from tinyai.frontends.floats import report_of_floats
from tinyai.frontends.parts import composites_in, report_of_parts, row_of_region
from tinyai.frontends.source_model import SourceModel
from tinyai.frontends.whole import network_of, tell_idle
from tinyai.model_file import AS_IT_IS, FileOptions
from tinyai.network import Network, c_name, entry_name
from tinyai.own import NO_BACKEND, OwnBackend
from tinyai.partition.told import DivisionReport
from tinyai.report import Report
from tinyai.source import Call, Rounding, post_order
from tinyai.stages import stage
from tinyai.target import Target

READ = (".onnx", ".tflite")  # how the names of such files end


def is_read(model: object) -> bool:
    """Whether a model is a file that is read here."""
    return isinstance(model, str | os.PathLike) and Path(model).suffix.lower() in READ


def read_file(file: str | os.PathLike[str], options: FileOptions = AS_IT_IS) -> SourceModel:
    """The model of a file that ``is_read``. Raises what its reader raises."""
    if Path(file).suffix.lower() == ".onnx":
        from tinyai.frontends.onnx import load

        options.require_only(("input_shapes", "state"), "an .onnx file")
        return closed(load.read_model(file, options.input_shapes), options.state)
    from tinyai.frontends.tflite.load import read_model

    options.require_only(("input_shapes", "signature"), "a .tflite file")
    return read_model(file, options.signature, options.input_shapes)


def network_of_file(
    file: str | os.PathLike[str],
    target: Target,
    name: str = "",
    ends: str = "model",
    options: FileOptions = AS_IT_IS,
    own: OwnBackend = NO_BACKEND,
) -> Network:
    """The whole of a file as one graph; arguments and errors are those of ``whole.network_of`` and
    of the reader."""
    name = entry_name(name) if name else c_name(Path(file).stem)
    model = read_file(file, options)
    with stage("model to graph"):
        return network_of(model, name, Rounding(target.for_model(file).rounding), ends, own)


def explain_file(
    file: str | os.PathLike[str],
    target: Target,
    options: FileOptions = AS_IT_IS,
    own: OwnBackend = NO_BACKEND,
) -> Report:
    """The regions of a file, and what of it would stay on a host, and why; a back end of one's
    ``own`` goes before tinyai. Raises what its reader raises, and where a whole file has no C what
    ``tinyai.compile`` does."""
    target = target.for_model(file)
    model, mode = read_file(file, options), Rounding(target.rounding)
    name = c_name(Path(file).stem)
    attempt = attempt_of(model, name, mode, own=own)
    tell_idle(attempt, model, mode, own)
    if attempt.floats:
        return report_of_floats(_to_quantize(file, options, model))
    if attempt.network is None:
        return report_of_parts(attempt, model, name, target, own)
    with stage("the C"):
        compiled = compile_once(attempt.network.graph, target, last=True, kernels=own.kernels)
    calls = (each for each in post_order(model.result) if isinstance(each, Call))
    operators = ((each.spelled, each.name) for each in calls)
    composites = composites_in(post_order(attempt.model.result))
    region = row_of_region(name, compiled, operators, target, attempt.network.states, composites)
    return DivisionReport((), (region,))


def _to_quantize(
    file: str | os.PathLike[str], options: FileOptions, model: SourceModel
) -> SourceModel:
    """A float model as the quantizer reads it: recurrent operators of ONNX are spelled out. As it
    is where the quantizer refuses the file, of which it tells then."""
    if Path(file).suffix.lower() != ".onnx":
        return model
    from tinyai.frontends.onnx.load import read_whole
    from tinyai.frontends.onnx.quantized import OLDEST as OLDEST_WITH_PAIRS

    try:
        return read_whole(file, options.input_shapes, OLDEST_WITH_PAIRS).source
    except ModelError:
        return model
