"""Calibration: samples through a float model, in this process or as a map over a cluster."""

from __future__ import annotations

from typing import Any

from tinyai.errors import OptionError
from tinyai.quantizer.calibration import Calibration, Watch, merged
from tinyai.quantizer.cluster import mapped
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import Data, Sample, Samples, bar
from tinyai.quantizer.equalization import Equalizer
from tinyai.quantizer.float_runner import FloatModel, Observed
from tinyai.quantizer.folding import Folding
from tinyai.quantizer.observers import Seen
from tinyai.quantizer.points import Points
from tinyai.quantizer.reconstruction import SAMPLES, looks_at_samples
from tinyai.safe_text import safe
from tinyai.source import post_order

# Samples that the report compares.
COMPARED = 8


def points_of(model: FloatModel, config: QuantConfig) -> Points:
    """The points of a float model, with batch norm folded, and channels equalized if asked.

    Raises ``OptionError`` where nothing would be quantized.
    """
    root, sources = model.root, {expr: expr for expr in post_order(model.root)}
    if model.image_channels is not None:
        folding = Folding(root, model.fold, model.image_channels)
        root, sources = folding.result, folding.new
    if config.equalize:
        equalizer = Equalizer(root, model.fold)
        root, new = equalizer.result, equalizer.new
        sources = {source: new[expr] for source, expr in sources.items() if expr in new}
    points = model.points(root, config, sources=sources)
    if not points.points and not points.has_float_weights:
        inputs = "; ".join(f"{each.name}: {each}" for each in model.inputs)
        left = "".join(f"; {safe(str(each), 160)}" for each in points.left[:2])
        raise OptionError(
            "model to quantize",
            found=f"no float operator with integers, of inputs {inputs}{left}",
            allowed="a float model, some of whose operators are quantized",
            hint="a model that is quantized already is compiled as it is; QuantConfig's "
            "operators and float_... leave others in float",
        )
    return points


def calibrated(
    model: FloatModel,
    points: Points,
    data: Data,
    *,
    client: Any = None,
    compared: int = COMPARED,
    progress: bool = False,
    every: bool = True,
) -> Calibration:
    """What the values of a float model are on samples. ``every`` value is kept, or only those that
    are not seen elsewhere on their grid."""
    samples = Samples(data, model.inputs)
    kept = compared + (SAMPLES if looks_at_samples(points.config) else 0)
    if client is not None:
        return mapped(client, model, points, samples, kept, progress)
    floats, watch = Observed.of(model, points), Watch.of(points, every)
    seen: dict[int, Seen] = {}
    first: dict[int, Sample] = {}
    with bar(samples, samples.count, progress) as shown:
        for number, sample in enumerate(shown):
            if number < kept:
                first[number] = sample
            floats.runner.run(sample)
            seen = merged(seen, watch.seen(number, floats.values()))
    return Calibration(model.key(points.root), seen, samples.seen, first, floats)
