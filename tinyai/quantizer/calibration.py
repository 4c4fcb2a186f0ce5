"""What a float model's values were on samples: a value that merges, and that a file holds.

Calibration is a map over samples and a reduction by ``Calibration.merge``: in any order and cut up
in any way it gives the same bits (``observers.py``).
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tinyai.errors import FormatError
from tinyai.files import written_whole
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import CalibrationError, Sample
from tinyai.quantizer.float_runner import Observed
from tinyai.quantizer.observers import Observer, Seen
from tinyai.quantizer.params import Array
from tinyai.quantizer.points import Points
from tinyai.quantizer.softmax_inputs import limit_of

SCHEMA = "tinyai.calibration/1"
_HISTOGRAMS = ("percentile", "mse", "entropy")


@dataclass(frozen=True, eq=False)
class Calibration:
    """The observers' states of the values of one float model.

    ``model`` identifies it. ``seen`` is by the place of a value in the model's order, so that it
    serves every configuration that quantizes no further values and needs no more of them.
    ``samples`` were seen; ``first`` are some of them, by number, on which a report compares.
    ``floats`` is what ran the model, to be used again in this process.
    """

    model: str
    seen: Mapping[int, Seen]
    samples: int
    first: Mapping[int, Sample] = field(default_factory=dict)
    floats: Observed | None = field(default=None, repr=False)

    def merge(self, other: Calibration) -> Calibration:
        """The calibration by the samples of both, those of ``other`` last. What one of the two did
        not keep is left out: it would be that of some samples only.

        Raises ``CalibrationError`` for that of another model.
        """
        _require_model(other.model, self.model)
        seen = {place: state for place, state in self.seen.items() if place in other.seen}
        after = {}
        for place in seen:  # the numbers of the other's samples count on
            state = other.seen[place]
            extremes = {self.samples + number: each for number, each in state.extremes.items()}
            after[place] = replace(state, extremes=extremes)
        first = {self.samples + number: sample for number, sample in other.first.items()}
        return Calibration(
            self.model,
            merged(seen, after),
            self.samples + other.samples,
            {**self.first, **first},
            self.floats,
        )

    def grids(self, points: Points, model: str) -> dict[int, Seen]:
        """The states of each grid of ``points``, by its number.

        Raises ``CalibrationError`` where this is of another model, or lacks what the configuration
        of ``points`` needs.
        """
        _require_model(self.model, model)
        found: dict[int, Seen] = {}
        for point, place in zip(points.points, points.places(), strict=True):
            if not point.observed:
                continue
            state = self.seen.get(place)
            if state is None or _lacks(state, points.config):
                raise CalibrationError(
                    f"calibration for layer {point.name!r}",
                    found="one without it"
                    if state is None
                    else f"one without what observer {points.config.observer} needs",
                    allowed="one that was made with this configuration",
                    hint="tinyai.calibrate(model, params, samples, config)",
                )
            found[point.grid] = found[point.grid].merge(state) if point.grid in found else state
        return found

    def save(self, file: str | Path) -> None:
        """Write an .npz file, whole or not at all."""
        facts = {
            "schema": SCHEMA,
            "model": self.model,
            "samples": self.samples,
            "seen": {str(place): state.state() for place, state in sorted(self.seen.items())},
            "first": [[number, *sample] for number, sample in self.first.items()],
        }
        arrays: dict[str, Any] = {
            f"{number}_{index}": value
            for number, sample in self.first.items()
            for index, value in enumerate(sample.values())
        }
        arrays["calibration"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        with written_whole(Path(file)) as beside, beside.open("wb") as archive:
            np.savez_compressed(archive, **arrays)

    @classmethod
    def load(cls, file: str | Path) -> Calibration:
        """What ``save`` wrote. Raises ``FormatError`` for any other file."""
        try:
            # numpy leaves a broken file open that it opened itself.
            with open(file, "rb") as content, np.load(content, allow_pickle=False) as archive:
                facts = json.loads(archive["calibration"].tobytes())
                if facts["schema"] != SCHEMA:
                    raise ValueError(f"schema {facts['schema']}")
                return cls(
                    str(facts["model"]),
                    {int(at): Seen.of_state(each) for at, each in facts["seen"].items()},
                    int(facts["samples"]),
                    {
                        int(number): {
                            name: archive[f"{number}_{index}"] for index, name in enumerate(names)
                        }
                        for number, *names in facts["first"]
                    },
                )
        except (KeyError, TypeError, ValueError, EOFError, IndexError, zipfile.BadZipFile) as error:
            raise FormatError(
                f"calibration {str(file)!r}",
                found=f"{type(error).__name__}: {error}",
                allowed=f"a file of Calibration.save, {SCHEMA}",
            ) from error


class Watch:
    """Reduces the values at each place of a model to the states that a configuration needs."""

    def __init__(self, points: Points, observed: Collection[int]) -> None:
        at = dict(zip(points.places(), points.points, strict=True))
        self._observer, self._observed = Observer(points.config), observed
        self._names = {place: point.name for place, point in at.items()}
        self._limits = {place: limit_of(points, point.expr) for place, point in at.items()}

    @classmethod
    def of(cls, points: Points, every: bool) -> Watch:
        at = zip(points.places(), points.points, strict=True)
        return cls(points, {place for place, point in at if every or point.observed})

    def seen(self, number: int, values: Iterable[tuple[int, Array]]) -> dict[int, Seen]:
        """The states after one sample, by place; ``values`` are pairs of a place and its values.
        Raises ``CalibrationError`` for values that are not finite."""
        found, bad = {}, list[str]()
        for place, value in values:
            value = self._limits[place](value)
            if not np.isfinite(value).all():
                bad.append(self._names[place])
            elif place in self._observed and not bad:
                found[place] = self._observer.see(number, value)
        if bad:
            raise _not_finite(bad, number)
        return found


def _not_finite(names: Sequence[str], sample: int) -> CalibrationError:
    first, *more = dict.fromkeys(names)
    also = f" and of {len(more)} more" if more else ""
    return CalibrationError(
        f"float values of layer {first!r}{also} at calibration sample {sample}",
        found="NaN or infinite",
        allowed="finite numbers",
        hint="the model on this sample, before it is quantized; where such values belong to it, "
        f"leave in float what makes them: float_layers, --float-layers {first!r}",
    )


def _require_model(found: str, allowed: str) -> None:
    if found != allowed:
        raise CalibrationError(
            "calibration of another model",
            found=found,
            allowed=f"{allowed}: the same operators and weights",
            hint="tinyai.calibrate with this model",
        )


def _lacks(state: Seen, config: QuantConfig) -> bool:
    """Whether a state lacks what a configuration's observer needs."""
    if config.observer in _HISTOGRAMS:
        return state.histogram is None
    return config.observer == "average" and not state.extremes


def merged(one: Mapping[int, Seen], other: Mapping[int, Seen]) -> dict[int, Seen]:
    """The states of both, by place, merged where both have one."""
    found = dict(one)
    for place, state in other.items():
        found[place] = found[place].merge(state) if place in found else state
    return dict(sorted(found.items()))
