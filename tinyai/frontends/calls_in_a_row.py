"""Networks with state: samples that are calls in a row, and how the noise of a state adds up."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tinyai.frontends.closed import closed
from tinyai.frontends.onnx.float_model import FileModel, FunctionRunner
from tinyai.ir import Array
from tinyai.quantizer.data import Data, Sample, Samples
from tinyai.quantizer.report import OutputRow, output_row
from tinyai.source import Expr

# Calls in a row by which the noise is told.
MOST_CALLS = 1000


def calls_in_a_row(model: FileModel, data: Data, state: Mapping[str, str]) -> Iterator[Sample]:
    """The samples of ``data``, which have the inputs that are no state, with the state that the
    calls before them left: outputs of the float model by ``state``'s names of outputs and inputs,
    0 at first.

    Raises ``OptionError`` for names or types that do not fit, ``CalibrationError`` for bad samples.
    """
    closed(model.model, state)  # whose names are those of the samples that are missing
    given = [each for each in model.inputs if each.name not in state.values()]
    samples = Samples(data, given)
    if not state:
        yield from samples
    else:
        for call, _ in _run(model, model.runner(model.root), samples, state):
            yield call


def noise_in_a_row(
    model: FileModel, quantized: Expr, calls: Sequence[Sample], state: Mapping[str, str]
) -> tuple[OutputRow, ...]:
    """The rows of the results that are no state, where the integers read the state that they made
    themselves in the calls before, as they will: the noise of a state adds up."""
    runners = model.runner(model.root), model.integers(quantized, ())
    results = [
        [made for _, made in itertools.islice(_run(model, each, calls, state), MOST_CALLS)]
        for each in runners
    ]
    ends = [end for end in model.model.outputs if end.name not in state]
    return tuple(
        output_row(str(end.expr.type), *([made[end.name] for made in of] for of in results))
        for end in ends
    )


def _run(
    model: FileModel, runner: FunctionRunner, samples: Iterable[Sample], state: Mapping[str, str]
) -> Iterator[tuple[Sample, dict[str, Array]]]:
    """Each call, with its state, and what it makes, by the names of the outputs."""
    names = [end.name for end in model.model.outputs]
    now = dict(zip(state.values(), closed(model.model, state).initial, strict=True))
    for sample in samples:
        call = {**sample, **now}
        results = dict(zip(names, runner.run(call), strict=True))
        yield call, results
        now = {before: results[after] for after, before in state.items()}
