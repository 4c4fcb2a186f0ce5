"""A model whose outputs are inputs of its next call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from tinyai.errors import OptionError
from tinyai.frontends.source_model import End, SourceModel
from tinyai.ir import Array
from tinyai.safe_text import safe


def closed(model: SourceModel, state: Mapping[str, str]) -> SourceModel:
    """``model``, whose outputs that ``state`` has by name are the inputs of these names in the next
    call. In the first call these are the real number 0, as integers their zero point.

    Raises ``OptionError`` for a name that the model does not have, an input of two outputs, types
    that differ, and where no output is left.
    """
    if not state:
        return model
    befores = _named(model.inputs, state.values(), "inputs")
    afters = _named(model.outputs, state.keys(), "outputs")
    for before, after in zip(befores, afters, strict=True):
        known = None not in after.expr.type.shape  # else its operator is not read, which is told
        if known and before.expr.type != after.expr.type:
            raise _error(f"{after.name} of {after.expr.type}", f"{before.expr.type}, as its input")
    if len(afters) == len(model.outputs):
        raise _error("all outputs", "one output that is none, at least")
    return replace(
        model,
        inputs=(*(end for end in model.inputs if end not in befores), *befores),
        outputs=(*(end for end in model.outputs if end not in afters), *afters),
        initial=tuple(map(_zero, befores)),
    )


def _named(ends: Iterable[End], names: Iterable[str], what: str) -> list[End]:
    known = {end.name: end for end in ends}
    for name, count in Counter(names).items():
        if name not in known or count > 1:
            found = f"{name}, {count} times" if name in known else name
            raise _error(found, f"each once, {what} of the model: {', '.join(known)}")
    return [known[name] for name in names]


def _zero(end: End) -> Array:
    of = end.expr.type
    zero = end.quant.zero_point if end.quant and not of.dtype.startswith("float") else 0
    return np.full([dim or 0 for dim in of.shape], zero, of.dtype)


def _error(found: str, allowed: str) -> OptionError:
    return OptionError(
        "state",
        found=safe(found, 240),
        allowed=safe(allowed, 240),
        hint="--state OUTPUT=INPUT once for each, in Python state={output: input}",
    )
