"""Samples of a network with state: one call after the other, of which the floats make the state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tinyai.frontends.closed import closed
from tinyai.frontends.onnx.float_model import FileModel
from tinyai.quantizer.data import Data, Sample, Samples


def calls_in_a_row(model: FileModel, data: Data, state: Mapping[str, str]) -> Iterator[Sample]:
    """The samples of ``data``, which have the inputs that are no state, with the state that the
    calls before them left: outputs of the float model by ``state``'s names of outputs and inputs,
    0 at first.

    Raises ``OptionError`` for names or types that do not fit, ``CalibrationError`` for bad samples.
    """
    initial = closed(model.model, state).initial
    names = [end.name for end in model.model.outputs]
    given = [each for each in model.inputs if each.name not in state.values()]
    runner = model.runner(model.root) if state else None
    now = dict(zip(state.values(), initial, strict=True))
    for sample in Samples(data, given):
        call = {**sample, **now}
        yield call
        if runner is not None:
            results = dict(zip(names, runner.run(call), strict=True))
            now = {before: results[after] for after, before in state.items()}
