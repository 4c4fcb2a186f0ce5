"""Names of a model file's layers for the variables of a Relax module, whose importers drop them."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from itertools import zip_longest

from tvm import relax

from tinyai.errors import UsageWarning
from tinyai.frontends.files import read_file
from tinyai.frontends.relax.block import RelaxBlock
from tinyai.safe_text import safe
from tinyai.source import Call, Expr, Tuple, post_order

# What importers put in, leave out or spell otherwise; the rest has to be the same.
_PASSED_OVER = ("reshape", "transpose", "cast", "copy", "broadcast_to", "clip", "relu", "pad")
_PAIRS = ("quantize", "dequantize", "requantize")
# The reader of files may have one operator of integers for several of floats, and other names of
# the same.
_PREFIX = "quantized_"
_SAME = {"global_avg_pool2d": "avg_pool2d", "mean": "avg_pool2d", "batch_matmul": "dense"}


def names_in(
    file: str | os.PathLike[str], block: RelaxBlock, results: Collection[relax.Var]
) -> tuple[dict[relax.Var, str], UsageWarning | None]:
    """The names of a model file's operators by the variables of a block, found in the order of
    computation by operator and shape; none, and a warning, where the two differ. Raises what the
    file's reader raises."""
    theirs = _calls(read_file(file).result)
    fields = tuple(block(each) for each in results)
    ours = _calls(Tuple(tuple(of for each in fields for of in each.types), load=lambda: fields))
    for number, (one, other) in enumerate(zip_longest(ours, theirs)):
        if one is None or other is None or _looks(one) != _looks(other):
            found = f"operator {number}: {_shown(one)} in the module, {_shown(other)} in the file"
            return {}, UsageWarning(
                f"no names from {safe(os.fspath(file), 60)}",
                found=found,
                allowed="the file that the module was imported from",
                hint="import this file, and partition before other passes",
            )
    known = {one.name: other.name for one, other in zip(ours, theirs, strict=True)}
    named = {item: known.get(block.name(item), "") for item in block.bindings}
    return {item: name for item, name in named.items() if name}, None


def _calls(root: Expr) -> list[Call]:
    skipped = (*_PASSED_OVER, *_PAIRS)
    calls = (e for e in post_order(root) if isinstance(e, Call) and e.op not in skipped)
    return [each for each in calls if not _is_bias(each)]


def _is_bias(call: Call) -> bool:
    """A sum with constants, which a convolution of integers may have inside."""
    return call.op in ("add", "bias_add") and any(map(_is_known, call.args))


def _is_known(value: Expr) -> bool:
    return not any(type(each) is Expr for each in post_order(value))


def _looks(call: Call) -> tuple[object, ...]:
    """What it computes, and how many values."""
    operator = call.op.removeprefix(_PREFIX)
    sizes = [math.prod(dim or 0 for dim in of.shape) for of in call.types]
    return _SAME.get(operator, operator), sizes


def _shown(call: Call | None) -> str:
    return f"{call.op} {', '.join(map(str, call.types))}" if call else "nothing"
