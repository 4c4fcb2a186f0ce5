"""Samples through a float module of Relay's: in this process, or as a map over a cluster."""

from __future__ import annotations

import os
from typing import Any

import tvm

from tinyai.errors import OptionError
from tinyai.frontends.relay.cluster import mapped
from tinyai.frontends.relay.floats import Floats, Model
from tinyai.frontends.relay.partition import module_of
from tinyai.quantizer.calibration import Calibration, Watch, merged
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import Data, Sample, Samples, bar
from tinyai.quantizer.observers import Seen
from tinyai.quantizer.points import Points
from tinyai.quantizer.reconstruction import SAMPLES, reconstructs

COMPARED = 8


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

    The arguments are ``quantize``'s; ``compared`` samples are kept for its report, more where the
    configuration rounds weights or corrects biases by them. With ``client``, a
    ``dask.distributed.Client``, the samples are run by its cluster, some at a time: the result is
    the same, bit for bit, and what a worker that dies has not handed over is done again. Of a
    folder the workers get the names of files, which they must see under the same path.
    Raises ``CalibrationError`` for bad samples, ``OptionError`` for a bad module or argument.
    """
    config = config or QuantConfig()
    model = Model(*module_of(mod, params), equalize=config.equalize)
    points = Points(model.root, config, model.fold)
    require_points(points, model)
    return calibrated(model, points, calibration, client, compared, progress, every=True)


def calibrated(
    model: Model,
    points: Points,
    data: Data,
    client: Any = None,
    compared: int = COMPARED,
    progress: bool = False,
    every: bool = False,
) -> Calibration:
    """``every`` value is kept, also those that are seen elsewhere on their grid."""
    samples = Samples(data, model.inputs)
    kept = max(compared, SAMPLES if reconstructs(points.config) else 0)
    if client is not None:
        return mapped(client, model, points, samples, kept, progress)
    floats = Floats.of(model, points)
    watch = Watch.of(points, every)
    seen: dict[int, Seen] = {}
    first: dict[int, Sample] = {}
    with bar(samples, samples.count, progress) as shown:
        for number, sample in enumerate(shown):
            if number < kept:
                first[number] = sample
            floats.run(sample)
            seen = merged(seen, watch.seen(number, floats.values()))
    return Calibration(model.key(), seen, samples.seen, first, floats)


def require_points(points: Points, model: Model) -> None:
    if not points.points:
        raise OptionError(
            "model to quantize",
            found=f"no float operator with integers, of inputs {'; '.join(map(str, model.inputs))}",
            allowed="a float model, some of whose operators are quantized",
            hint="a model that is quantized already goes to tinyai.build as it is; QuantConfig's "
            "operators and float_... leave others in float",
        )
