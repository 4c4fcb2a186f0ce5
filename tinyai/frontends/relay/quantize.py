"""``tinyai.quantize`` and ``tinyai.calibrate`` of float modules of Relay's."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import tvm

from tinyai.frontends.relay.float_model import RelayModel
from tinyai.frontends.relay.partition import module_of
from tinyai.frontends.relay.qdq import integers_from_qdq
from tinyai.quantizer.calibrate import COMPARED, calibrated, points_of
from tinyai.quantizer.calibration import Calibration
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import Data
from tinyai.quantizer.mixed import Mixed
from tinyai.quantizer.quantize import quantized
from tinyai.quantizer.report import QuantReport
from tinyai.source import TVMS_OWN, Rounding


@dataclass(frozen=True, eq=False)
class Quantized:
    """``module`` has quantize and dequantize around its operators and its weights as constants;
    ``params`` is empty, for who hands on module and parameters together. ``report`` says what was
    lost where."""

    module: tvm.IRModule
    report: QuantReport
    params: dict[str, Any] = field(default_factory=dict)

    def integers(self, rounding: Rounding = TVMS_OWN) -> tvm.IRModule:
        """The module with integer operators, as ``partition_for_tinyai`` makes it for itself."""
        return integers_from_qdq(self.module, rounding)


def quantize(
    mod: tvm.IRModule | str | os.PathLike[str],
    params: dict[str, Any] | None = None,
    calibration: Data | Calibration = (),
    config: QuantConfig | None = None,
    *,
    compared: int = COMPARED,
    progress: bool = False,
    rank: bool = False,
    mixed: Mixed | None = None,
) -> Quantized:
    """Quantize the float model ``mod`` by what its values are on the samples ``calibration``.

    ``mod`` may be the path of an .onnx or .tflite file. ``calibration`` is an iterable of dicts of
    arrays by the names of the inputs, an .npz file of arrays with all samples, a folder of .npy
    files or of pictures, or what ``tinyai.calibrate`` made of such. Batch norm is folded; TVM's CPU
    build runs the float model, a sample at a time. ``compared`` samples run by the integers too,
    for the report: those behind the 32 that constants are fitted to, as far as there are so many.
    ``progress`` shows a bar on standard error, where that is a terminal. The argument is not
    changed.

    ``rank`` quantizes each layer alone too, and the report says what damage it does to the results.
    ``mixed`` is a goal for the results on the samples that are compared: layers get 16 bits, or are
    left in float where that gains much more, the worst first, until the integers reach it. The
    report says which, why, and whether they do.
    Raises ``CalibrationError`` for bad samples, ``OptionError`` for a bad module or argument.
    """
    model = RelayModel(*module_of(mod, params))
    result = quantized(
        model,
        calibration,
        config or QuantConfig(),
        compared=compared,
        progress=progress,
        rank=rank,
        mixed=mixed,
    )
    return Quantized(model.written(result.root), result.report)


def calibrate(
    mod: tvm.IRModule | str | os.PathLike[str],
    params: dict[str, Any] | None = None,
    calibration: Data = (),
    config: QuantConfig | None = None,
    *,
    client: Any = None,
    compared: int = COMPARED,
    progress: bool = False,
) -> Calibration:
    """What the values of the float model ``mod`` are on samples, for ``tinyai.quantize``.

    The arguments are ``quantize``'s; ``compared`` samples are kept for its report, 32 more where
    the configuration fits constants to them. With ``client``, a
    ``dask.distributed.Client``, the samples are run by its cluster, some at a time: the result is
    the same, bit for bit, and what a worker that dies has not handed over is done again. Of a
    folder the workers get the names of files, which they must see under the same path.
    Raises ``CalibrationError`` for bad samples, ``OptionError`` for a bad module or argument.
    """
    model = RelayModel(*module_of(mod, params))
    points = points_of(model, config or QuantConfig())
    return calibrated(
        model, points, calibration, client=client, compared=compared, progress=progress
    )
