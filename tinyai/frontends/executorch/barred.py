"""``operators_not_to_delegate``: the names that operators go by, and which nodes have one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from tinyai.errors import OptionError, UsageWarning
from tinyai.frontends.executorch.hints import NOT_TO_DELEGATE
from tinyai.frontends.executorch.reader import QUANTIZATION, calls, operator_of
from tinyai.partition.reasons import such_as

# What is read whole goes by the names of what the edge dialect would make of it, too.
_PARTS = {"aten.linear": ("aten.addmm", "aten.mm")}


def checked_names(names: Any) -> frozenset[str]:
    """Operators by the names of ``names_of``: they are text, as ``aten.linear``,
    ``aten::linear.default`` or ``torch.ops.aten.linear``, or torch's operators themselves. Raises
    ``OptionError`` for what are none."""
    several = isinstance(names, Collection) and not isinstance(names, str | bytes)
    return frozenset(map(_checked, names)) if several else frozenset((_checked(None, names),))


def _checked(operator: Any, given: Any = None) -> str:
    name = _name(operator)
    if not _is_operator(name):
        raise OptionError(
            NOT_TO_DELEGATE,
            found=repr(given or operator),
            allowed='names of operators, such as ("aten.add", "aten.linear.default")',
            hint="tinyai.executorch.explain shows the names that a program has",
        )
    return name


def _name(operator: Any) -> str:
    """The name of an operator of torch or of the edge dialect, of one with all its overloads, or
    one that a user wrote; nothing for anything else."""
    if hasattr(operator, "_schema"):
        return _overload(operator)
    name = getattr(operator, "_qualified_op_name", operator)
    return name.removeprefix("torch.ops.").replace("::", ".") if isinstance(name, str) else ""


def _overload(target: Any) -> str:
    schema = target._schema
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


def _is_operator(name: str) -> bool:
    """Whether torch has an operator of a name, with its overload or without."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None) if part.isidentifier() else None
    return name.count(".") in (1, 2) and found is not None


def names_of(node: Node) -> frozenset[str]:
    """What an operator is called, with its overload and without: by its own name, by those of the
    operators that torch made it of (a convolution of a ``conv2d``), and by those that its parts
    would have."""
    own = _overload(node.target) if hasattr(node.target, "_schema") else operator_of(node)
    if own.startswith(QUANTIZATION):  # pairs are put beside operators: they come from none
        return frozenset(_both(own))
    made_of = (name for name in _origins(node.meta.get("from_node")) if _is_operator(name))
    whole = frozenset(each for name in (own, *made_of) for each in _both(name))
    parts = (each for name in whole for part in _PARTS.get(name, ()) for each in _both(part))
    return whole.union(parts)


def _both(name: str) -> tuple[str, ...]:
    """``aten.add.Tensor``, and ``aten.add``."""
    if name.count(".") == 1:
        return name, f"{name}.default"
    return name, name.rpartition(".")[0]


def _origins(sources: Any) -> Iterator[str]:
    """The operators that a node came from, through all of torch's passes."""
    while sources:
        yield str(sources[-1].target)
        sources = sources[-1].from_node


def without_match(program: ExportedProgram, names: Iterable[str]) -> UsageWarning | None:
    """What to say of names that no operator of a program has."""
    known = {each for node in calls(program) for each in names_of(node)}
    missing = sorted(set(names) - known)
    if not missing:
        return None
    own = sorted({operator_of(node) for node in calls(program)} - {"getitem"})
    close = "".join(such_as(name.removesuffix(".default"), own) for name in missing)
    return UsageWarning(
        f"{NOT_TO_DELEGATE}: the program has no operator of a name",
        found=", ".join(missing),
        allowed=f"names of operators that it has{close}",
        hint="tinyai.executorch.explain shows the names that a program has",
    )
