"""What each quantization costs: one float build of TVM's with a switch for each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tinyai.frontends.relay.floats import Model, cpu_target
from tinyai.frontends.relay.source import source_types
from tinyai.qdq.operands import Grid
from tinyai.quantizer.data import Sample
from tinyai.quantizer.mixed import worst
from tinyai.quantizer.params import Array
from tinyai.quantizer.points import Point, Points
from tinyai.quantizer.report import OutputRow, output_row
from tinyai.quantizer.switches import Key, Switched
from tinyai.source import Expr
from tinyai.stages import stage


class Alone:
    """The model on ``samples`` with some of its quantizations: in floats, which round as the
    integers do but for the last bit. N settings cost N runs and no further build. ``steps`` are
    those of weights that are not rounded to the nearest."""

    def __init__(
        self,
        model: Model,
        points: Points,
        grids: Mapping[int, Grid],
        steps: Mapping[Expr, Array],
        samples: Sequence[Sample],
    ) -> None:
        self.switched, self._samples = Switched(points, grids, steps), samples
        self._types = [str(of) for of in source_types(model.main.ret_type)]
        # No input of the model has a name of that length.
        mark = "_" * (1 + max((len(each.name) for each in model.inputs), default=0))
        switches = self.switched.switches
        self._names = {key: f"{mark}{number}" for number, key in enumerate(switches)}
        inputs = {
            each.input: relay.var(self._names[key], shape=each.off.shape, dtype=each.off.dtype.name)
            for key, each in switches.items()
        }
        module = model.written(self.switched.result, inputs)
        with stage("build of the switched model"), tvm.transform.PassContext(opt_level=2):
            built = relay.build(module, target=cpu_target())
        self._executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
        for key, each in switches.items():
            self._executor.set_input(self._names[key], each.off)
        self._on: frozenset[Key] = frozenset()
        self._floats = self._results()

    def rows(self, on: Collection[Key]) -> list[OutputRow]:
        """The results with these switched on, beside those in float."""
        wanted = frozenset(on)
        for key in wanted ^ self._on:
            switch = self.switched.switches[key]
            value = switch.on if key in wanted else switch.off
            self._executor.set_input(self._names[key], value)
        self._on = wanted
        pairs = zip(self._types, self._floats, self._results(), strict=True)
        return [output_row(of, floats, others) for of, floats, others in pairs]

    def ranking(self) -> list[tuple[Point, float]]:
        """Each layer quantized alone, and the worst result's SQNR then: the most damage first."""
        layers = self.switched.layers()
        found = [(point, worst(self.rows(keys))) for point, keys in layers]
        return sorted(found, key=lambda each: each[1])

    def _results(self) -> list[list[Array]]:
        """Of each result what it is on each sample."""
        results: list[list[Array]] = [[] for _ in self._types]
        for sample in self._samples:
            self._executor.run(**sample)
            for number, values in enumerate(results):
                values.append(np.asarray(self._executor.get_output(number).numpy()))
        return results
