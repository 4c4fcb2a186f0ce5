"""``tinyai.quantize_file`` and ``tinyai.calibrate_file``: float models of files, without TVM."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from tinyai.errors import EnvironmentProblem, OptionError
from tinyai.files import written_whole
from tinyai.frontends.closed import closed
from tinyai.frontends.files import is_read, read_file
from tinyai.frontends.source_model import DYNAMIC, SourceModel
from tinyai.frontends.whole import require_all_read
from tinyai.model_file import FileOptions, InputShapes, check_model
from tinyai.quantizer.calibrate import COMPARED, calibrated, points_of
from tinyai.quantizer.calibration import Calibration
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import Data, shapes_of
from tinyai.quantizer.mixed import Mixed
from tinyai.quantizer.quantize import Result, quantized
from tinyai.quantizer.report import QuantReport
from tinyai.safe_text import safe
from tinyai.source import Call, Unread, post_order

if TYPE_CHECKING:
    from tinyai.frontends.onnx.float_model import FileModel
    from tinyai.frontends.onnx.load import OnnxFile


class QuantizeKeywords(TypedDict, total=False):
    """What ``tinyai.quantize`` takes by these names too."""

    compared: int
    progress: bool
    rank: bool
    mixed: Mixed | None


@dataclass(frozen=True, eq=False)
class QuantizedFile:
    """``model`` has quantize and dequantize around its operators: ``tinyai.compile`` takes it, and
    whatever else takes a model. ``report`` says what was lost where, ``floats`` is the model
    before."""

    model: SourceModel
    report: QuantReport
    floats: FileModel = field(repr=False)
    _result: Result = field(repr=False)
    _file: OnnxFile | None = field(repr=False)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the .onnx file that was quantized with pairs put in, as ONNX Runtime's quantizer
        writes them, whole or not at all. Nodes and values keep their names.

        Raises ``OptionError`` for a .tflite file, and a layer that has no form with pairs.
        """
        from tinyai.frontends.onnx.quantized import with_pairs

        if self._file is None:
            raise OptionError(
                "model to write as .onnx with pairs",
                found="a .tflite file",
                allowed="what was quantized of an .onnx file",
            )
        content = with_pairs(self._file, self._result).SerializeToString()
        with written_whole(Path(file)) as beside:
            beside.write_bytes(content)


def quantize_file(
    file: str | os.PathLike[str],
    calibration: Data | Calibration,
    config: QuantConfig | None = None,
    *,
    input_shapes: InputShapes = "",
    signature: str = "",
    state: Mapping[str, str] | None = None,
    whole: bool = False,
    **asked: Unpack[QuantizeKeywords],
) -> QuantizedFile:
    """Quantize the float model of an .onnx or .tflite file by what its values are on samples.

    The arguments are those of ``tinyai.quantize`` (``compared``, ``progress``, ``rank`` and
    ``mixed`` too), a calibration is that of ``tinyai.calibrate_file``; ``input_shapes`` and
    ``signature`` are those of ``tinyai.compile``; inputs of an .onnx file that are open have the
    shapes of the samples. With the ``state`` of an .onnx file samples are calls in a row, without
    arrays for the inputs that are state, which the float model makes; ``model`` has it then. For an
    .onnx file of opset 21 or later int8 activations become uint8, with the same steps, as
    ``QuantizedFile.save`` writes them. ONNX Runtime runs the floats, a sample at a time, and the
    integers of the report are tinyai's own. With ``whole``, for a model to compile, an operator
    that tinyai does not read is a ``BoundaryError`` before any sample runs.
    Raises ``CalibrationError`` for bad samples, ``OptionError`` for a bad argument, or a model with
    an operator that tinyai does not read; what the reader of the file raises; and
    ``EnvironmentProblem`` where a package is missing: onnx, onnxruntime, or the reader's.
    """
    options = FileOptions(input_shapes, signature, state or {})
    model, onnx_file = _model_of(file, options, calibration)
    if whole:
        require_all_read(model.model)
    _require_static(model.model)
    config = config or QuantConfig()
    if onnx_file is not None:
        from tinyai.frontends.onnx.quantized import as_stored

        config = as_stored(config, onnx_file)
    if not options.state or isinstance(calibration, Calibration):
        result = quantized(model, calibration, config, **asked)
        report = result.report
    else:
        from tinyai.frontends.calls_in_a_row import calls_in_a_row, noise_in_a_row

        calls = [*calls_in_a_row(model, calibration, options.state)]
        result = quantized(model, calls, config, **asked)
        in_a_row = noise_in_a_row(model, result.root, calls, options.state)
        report = replace(result.report, in_a_row=in_a_row)
    found = closed(model.quantized(result.root), options.state)
    return QuantizedFile(found, report, model, result, onnx_file)


def calibrate_file(
    file: str | os.PathLike[str],
    calibration: Data,
    config: QuantConfig | None = None,
    *,
    input_shapes: InputShapes = "",
    signature: str = "",
    state: Mapping[str, str] | None = None,
    client: Any = None,
    compared: int = COMPARED,
    progress: bool = False,
) -> Calibration:
    """What the values of a file's float model are on samples, for ``tinyai.quantize_file``; the
    arguments are those of ``tinyai.calibrate`` and of ``quantize_file``, as are the errors."""
    options = FileOptions(input_shapes, signature, state or {})
    model, _ = _model_of(file, options, calibration)
    _require_static(model.model)
    points = points_of(model, config or QuantConfig())
    if options.state:
        from tinyai.frontends.calls_in_a_row import calls_in_a_row

        calibration = [*calls_in_a_row(model, calibration, options.state)]
    return calibrated(
        model, points, calibration, client=client, compared=compared, progress=progress
    )


def _require_static(model: SourceModel) -> None:
    """Refuse what computes its scales at run time: its layers are no floats any more."""
    for call in post_order(model.result):
        if not isinstance(call, Call) or not isinstance(call.origin, Unread):
            continue
        if (refusal := call.origin.refusal).clause == DYNAMIC:
            raise OptionError(
                "model to quantize",
                found=f"{DYNAMIC}: {safe(refusal.found, 160)}",
                allowed="a float model, or one that is quantized in part, with scales it has",
                hint="the float model of which this one was made",
            )


def _model_of(
    file: str | os.PathLike[str], options: FileOptions, data: Data | Calibration
) -> tuple[FileModel, OnnxFile | None]:
    """The float model of a file, and what was read of an .onnx file. Samples tell the shapes of
    inputs that file and options leave open."""
    kind = check_model(file)
    if not is_read(file):
        raise OptionError(
            "float file to quantize without TVM",
            found=kind,
            allowed="an .onnx or a .tflite file",
            hint="tinyai.quantize, with a TVM with Relay",
        )
    require_runner_of_floats()

    from tinyai.frontends.onnx.computed_constants import with_constants_computed
    from tinyai.frontends.onnx.float_model import FileModel
    from tinyai.frontends.onnx.framework import framework_of
    from tinyai.frontends.onnx.load import read_whole
    from tinyai.frontends.onnx.quantized import OLDEST

    if kind != ".onnx":
        from tinyai.frontends.tflite import litert

        options.require_only(("input_shapes", "signature"), "a .tflite file")
        own = litert.framework_of(Path(file), options.signature)
        return FileModel(with_constants_computed(read_file(file, options)), own), None
    options.require_only(("input_shapes", "state"), "an .onnx file")
    whole = read_whole(file, options.input_shapes, OLDEST, shapes_of(data))
    if whole.widened is not None:
        warnings.warn(whole.widened, stacklevel=3)
    return FileModel(whole.source, framework_of(Path(file), options.input_shapes)), whole


def require_runner_of_floats() -> None:
    """Raises ``EnvironmentProblem`` where a package is missing that runs float models."""
    for package in ("onnx", "onnxruntime"):
        if find_spec(package) is None:
            raise EnvironmentProblem(
                f"the package {package} is missing, by which float models run",
                found="no such module",
                allowed="onnx and onnxruntime",
                hint=f"pip install {package}",
            )
