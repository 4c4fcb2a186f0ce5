"""What each quantization costs: one float build with a switch for each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tinyai.qdq.operands import Grid
from tinyai.quantizer.data import Sample
from tinyai.quantizer.float_runner import FloatModel
from tinyai.quantizer.mixed import worst
from tinyai.quantizer.params import Array
from tinyai.quantizer.points import Point, Points
from tinyai.quantizer.report import OutputRow, output_row
from tinyai.quantizer.switches import Key, Switched
from tinyai.quantizer.write import Changes
from tinyai.stages import stage


class Ranking:
    """The model on ``samples`` with some of its quantizations: in floats, which round as the
    integers do but for the last bit. N settings cost N runs and no further build."""

    def __init__(
        self,
        model: FloatModel,
        points: Points,
        grids: Mapping[int, Grid],
        changes: Changes,
        samples: Sequence[Sample],
    ) -> None:
        self._switched, self._samples = Switched(points, grids, changes), samples
        self._types = [str(of) for of in model.results]
        # No input of the model has a name of that length.
        mark = "_" * (1 + max((len(each.name) for each in model.inputs), default=0))
        switches = self._switched.switches
        self._names = {key: f"{mark}{number}" for number, key in enumerate(switches)}
        inputs = {each.input: self._names[key] for key, each in switches.items()}
        with stage("build of the switched model"):
            self._runner = model.runner(self._switched.result, switches=inputs)
        for key, each in switches.items():
            self._runner.set(self._names[key], each.off)
        self._on: frozenset[Key] = frozenset()
        self._floats = self._results()

    def layers(self) -> list[tuple[Point, float]]:
        """Each layer quantized alone, and the worst result's SQNR then: the most damage first."""
        found = [(point, worst(self._rows(keys))) for point, keys in self._switched.layers()]
        return sorted(found, key=lambda each: each[1])

    def of(self, points: Points) -> list[OutputRow]:
        """The results with what ``points``, which may be fewer, quantize."""
        return self._rows(self._switched.on(points))

    def _rows(self, on: Collection[Key]) -> list[OutputRow]:
        """The results with these switched on, beside those in float."""
        wanted = frozenset(on)
        for key in wanted ^ self._on:
            switch = self._switched.switches[key]
            self._runner.set(self._names[key], switch.on if key in wanted else switch.off)
        self._on = wanted
        pairs = zip(self._types, self._floats, self._results(), strict=True)
        return [output_row(of, floats, others) for of, floats, others in pairs]

    def _results(self) -> list[list[Array]]:
        """The values of each result on each sample."""
        runs = [self._runner.run(sample) for sample in self._samples]
        return [[run[number] for run in runs] for number, _ in enumerate(self._types)]
